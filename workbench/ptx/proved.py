"""A proof about the accesses of a kernel as a plain value, with its preconditions as formulas of sizes.

`workbench.proof` makes the value; the machine knows nothing of provers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Formula = Any
"""A whole number, the name of a size, or (operation, operand, ...): see `value_of`. Conditions are formulas as well."""
Sizes = Mapping[str, Any]
POINTER = "pointer"
INDEX, ELEMENT = "[i]", "[v]"
"""Names of an element and of its index in the condition of `ProvedElements`; no size has such a name."""


@dataclass(frozen=True)
class ProvedTensor:
    """A tensor of a proof: its ``shape``, and the bytes of an element."""

    name: str
    shape: tuple[Formula, ...]
    element: int

    def bytes(self, sizes: Sizes) -> int:
        """Return the bytes of the tensor for some sizes."""
        return math.prod(int(value_of(one, sizes)) for one in self.shape) * self.element


@dataclass(frozen=True)
class ProvedElements:
    """A fact about the elements v of a ``tensor`` at their index i, in the words of ``text``.

    If ``distinct``, no two elements are alike, except those of the values ``free``. ``signed`` tells how the bytes of
    an element are read. If ``apart`` names a tensor of lengths, each element is the start of so many places, and no
    place is that of two elements.
    """

    tensor: str
    text: str
    condition: Formula
    distinct: bool
    free: tuple[int, ...]
    signed: bool
    apart: str = ""
    apart_signed: bool = True


@dataclass(frozen=True)
class ProvedAccesses:
    """A proof of a kernel's accesses for all launches of a family.

    ``digest`` is that of the PTX text. ``arguments`` has the value of each parameter: a formula, ``("pointer", name)``
    of a tensor, or None for any value. ``sizes`` are symbols with their least and largest values, ``conditions`` hold
    for them. ``accesses`` are the arrays that each statement, by its place in the text, may access; ``arrays`` are
    those of which every access is proved to be in bounds and without a race. ``whole`` is True if these are all, and
    barriers are reached by all threads. ``repeats`` is that of `LaunchOptions`.
    """

    digest: str
    kernel: str
    block: tuple[int, int, int]
    grid: tuple[Formula, Formula, Formula]
    arguments: tuple[Formula, ...]
    tensors: tuple[ProvedTensor, ...]
    shared_bytes: Formula
    sizes: tuple[tuple[str, int | None, int | None], ...]
    conditions: tuple[tuple[str, Formula], ...]
    elements: tuple[ProvedElements, ...]
    accesses: tuple[tuple[int, tuple[str, ...]], ...]
    arrays: tuple[str, ...]
    open_arrays: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def whole(self) -> bool:
        """True if the accesses of all arrays are proved."""
        return not self.open_arrays

    def statements(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the statements all of whose arrays are proved, with these arrays."""
        proved = frozenset(self.arrays)
        return ((start, bases) for start, bases in self.accesses if proved.issuperset(bases))


@dataclass(frozen=True)
class ProofUse:
    """Use of a proof in a checked launch: what it covers, or why it covers nothing (``refused``)."""

    text: str
    refused: str = ""
    whole: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)

    def on_blocks(self, blocks: int, of: int) -> ProofUse:
        """Return the use with the number of blocks that ran, of a sample; 0 for all."""
        ran = f"{blocks:,} of {of:,} blocks ran; the others wrote no results." if blocks else "All blocks ran."
        return replace(self, text=f"{self.text} {ran}")

    def __str__(self) -> str:
        return self.text if not self.refused else f"checked in full, as the proof does not cover this: {self.refused}"


def digest_of(text: str) -> str:
    """Return the digest of a PTX text."""
    return hashlib.sha256(text.encode()).hexdigest()


def value_of(formula: Formula, sizes: Sizes) -> Any:
    """Return the value of a formula, for sizes that are numbers or arrays of them.

    The operations are ``+``, ``*``, ``//`` (of which the divisor is positive), ``ratio`` (the quotient, rounded down; 0
    where the dividend is negative or the divisor is not positive), ``if``, ``number`` (1 where a condition holds), and
    of conditions ``negative``, ``zero``, ``not``, ``and``, ``or``, ``true`` and ``false``.
    """
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        return sizes[formula]
    operation, *operands = formula
    found = [value_of(one, sizes) for one in operands]
    arrays = any(isinstance(one, np.ndarray) for one in found)
    if operation == "+":
        return sum(found)
    if operation == "*":
        return math.prod(found)
    if operation == "//":
        return found[0] // found[1]
    if operation == "ratio":
        dividend, divisor = found
        if not arrays:
            return dividend // divisor if divisor >= 1 and dividend >= 0 else 0
        fits = np.logical_and(np.greater_equal(dividend, 0), np.greater_equal(divisor, 1))
        return np.where(fits, dividend // np.where(fits, divisor, 1), 0)
    if operation == "if":
        return np.where(found[0], found[1], found[2]) if arrays else found[1] if found[0] else found[2]
    if operation == "number":
        return found[0] * 1
    if operation in ("negative", "zero"):
        return found[0] < 0 if operation == "negative" else found[0] == 0
    if operation == "not":
        return np.logical_not(found[0]) if arrays else not found[0]
    if operation in ("and", "or"):
        if not arrays:
            return all(found) if operation == "and" else any(found)
        return (np.logical_and if operation == "and" else np.logical_or).reduce(np.broadcast_arrays(*found))
    if operation in ("true", "false"):
        return operation == "true"
    raise ValueError(f"no operation of a formula: {operation!r}")


def bound_of(formula: Formula, bounds: Mapping[str, int]) -> int:
    """Return a bound on the absolute value of a formula and of all its parts, from those of its names."""
    if isinstance(formula, int):
        return abs(formula)
    if isinstance(formula, str):
        return bounds[formula]
    operation, *operands = formula
    found = [bound_of(one, bounds) for one in operands]
    return max(1, math.prod(max(one, 1) for one in found) if operation == "*" else sum(found))
