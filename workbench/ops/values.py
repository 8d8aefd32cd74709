"""The small values around a variant: a rule, a launch, a verdict, and what every op's case offers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

Config = Mapping[str, Any]
"""A configuration: one value per tunable."""


def cdiv(number: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-number // divisor)


def padded(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


RULE_FUNCTIONS: Mapping[str, Callable] = {
    "cdiv": cdiv,
    "is_power_of_two": lambda number: number > 0 and number & (number - 1) == 0,
    "max": max,
    "min": min,
    "next_power_of_2": padded,
}
"""What the formula of a rule may call."""


@dataclass(frozen=True)
class Restriction:
    """A named rule that a legal configuration keeps, so that a rejected one can say which rule it broke."""

    name: str
    rule: str
    """The rule as a formula, e.g. ``32 % THREAD_GROUP_SIZE == 0``."""
    holds: Callable[[Config, Any], bool] = field(repr=False)

    @classmethod
    def of(cls, name: str, rule: str, meaning: str = "") -> Self:
        """A rule whose formula is Python: over tunables, fields of the problem (``head_size``) and `RULE_FUNCTIONS`.

        Tunables are in capitals, or num_warps and num_stages. ``meaning`` is for whoever reads the rule.
        """
        read = {node.id for node in ast.walk(ast.parse(rule, mode="eval")) if isinstance(node, ast.Name)}
        names = sorted(read - RULE_FUNCTIONS.keys())
        formula = eval(f"lambda {', '.join(names)}: {rule}", dict(RULE_FUNCTIONS))
        tunable = [name.isupper() or name in ("num_warps", "num_stages") for name in names]

        def holds(config: Config, problem: Any) -> bool:
            given = zip(names, tunable, strict=True)
            return bool(formula(*(config[name] if own else getattr(problem, name) for name, own in given)))

        return cls(name, f"{rule}{meaning and ': '}{meaning}", holds)

    def __str__(self) -> str:
        return f"{self.name}: {self.rule}"


@dataclass(frozen=True)
class Launch:
    """One kernel launch: what to run on how many threads, on either device."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple
    """Tensors (pointers) and Python numbers in the kernel's own order; for Triton without the constexprs."""
    shared_bytes: int = 0
    """Dynamic shared memory that the caller provides, in bytes (Triton's is part of the compiled kernel)."""


@dataclass(frozen=True)
class Footprint:
    """What one block of a variant's first kernel takes of a multiprocessor, and what it has asked memory for at a time.

    Known without compiling it: registers and shared memory are upper bounds.
    """

    blocks: int
    """Blocks of the launch."""
    threads: int
    registers: int
    """Per thread."""
    shared_bytes: int
    """Static and dynamic."""
    bytes_in_flight: int
    """Of keys and values: asked for and not yet used, while the block is in its loop."""


@dataclass(frozen=True)
class Check:
    """The verdict on one output: the largest error, what was allowed where it occurred, and whether it passed.

    ``place`` says which element that is, where the op knows.
    """

    max_error: float
    bound: float
    ok: bool
    place: str = ""

    def __str__(self) -> str:
        text = f"{'ok' if self.ok else 'WRONG'}: error {self.max_error:.2e}, bound {self.bound:.2e}"
        return f"{text}: {self.place}" if self.place else text


class Case(Protocol):
    """What tuning, comparison and tracing may ask of any op's case: named inputs with a known answer."""

    name: str

    @property
    def label(self) -> str:
        """The name with what distinguishes it, for titles and tables."""

    def override(self, **changes) -> Self:
        """The case with some of its fields changed."""

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> Any:
        """The op's problem: what a kernel is compiled and launched for. A configuration may choose the page size."""

    def inputs(self, problem: Any, device: str = "cpu") -> Any:
        """Fresh tensors of a run, the same values each time; ``.out`` is what the variant fills and `check` judges."""

    def reference(self) -> Any:
        """The known answer."""

    def check(self, out: Any) -> Check:
        """The verdict on an output."""

    def minimum_bytes(self, problem: Any) -> int:
        """Bytes that must cross memory once, whatever the variant: what its traffic is compared with."""

    def to_dict(self) -> dict:
        """Plain values, for a store or another process."""

    @classmethod
    def from_dict(cls, record: Mapping) -> Self:
        """The case of a record made by `to_dict`."""
