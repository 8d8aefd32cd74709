"""The comparison of a launch with the preconditions of a proof.

A launch is covered if there are sizes for which the proof is about it: its grid, block and arguments have the values of
the formulas, its tensors are as large, do not overlap, begin at multiples of 16 bytes and hold elements as the facts
say. All of that is compared for each launch.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.ptx.proved import (
    ELEMENT,
    INDEX,
    POINTER,
    Formula,
    ProvedAccesses,
    ProvedElements,
    bound_of,
    value_of,
)

if TYPE_CHECKING:
    from workbench.ptx.bound import BoundLaunch
    from workbench.ptx.buffers import Row
    from workbench.ptx.kernel import DecodedKernel

OTHER = "it is about other PTX"
_ALIGNMENT = 16
_EXACT = 1 << 62  # bound of values that int64 computes without wrapping


def solved(proof: ProvedAccesses, launch: BoundLaunch[Any, Any], arguments: Sequence[int | None]) -> dict[str, int]:
    """Return the sizes that a launch shows: numbers among the arguments, sizes of tensors and of the grid.

    Only formulas in which one size is unknown, as a product with a number, are looked at; the caller compares the rest.
    """
    known: dict[str, int] = {}
    pairs: list[tuple[Formula, int]] = []
    of_tensors: list[tuple[Formula, int]] = []
    shapes = {one.name: one.shape for one in proof.tensors}
    for at, (formula, value) in enumerate(zip(proof.arguments, arguments, strict=True)):
        if isinstance(formula, tuple) and formula[0] == POINTER:
            shape = getattr(launch.values[at], "shape", ()) if at < len(launch.values) else ()
            expected = shapes.get(formula[1], ())
            if len(shape) == len(expected):
                of_tensors += zip(expected, map(int, shape), strict=True)
        elif formula is not None and value is not None:
            pairs.append((formula, value))
    for formula, value in (*pairs, *of_tensors, *zip(proof.grid, launch.grid, strict=True)):
        if isinstance(formula, str):
            known.setdefault(formula, value)
        elif isinstance(formula, tuple) and formula[0] == "*" and [*map(type, formula[1:])] == [int, str]:
            _, factor, name = formula
            if factor and not value % factor:
                known.setdefault(name, value // factor)
    return known


class Covering:
    """The comparison of one launch with the preconditions of a proof: `refused` says which one it does not keep."""

    def __init__(
        self, proof: ProvedAccesses, kernel: DecodedKernel, launch: BoundLaunch[Any, Any], rows: Sequence[Row],
        variables: Mapping[str, np.ndarray],
    ):  # fmt: skip
        self.proof, self.kernel, self.launch, self.rows, self.variables = proof, kernel, launch, rows, variables
        self.sizes: dict[str, int] = {}
        self.places: dict[str, tuple[int, int]] = {}  # address and bytes of each tensor
        self.refused = next(self._refusals(), "")

    def marked(self) -> frozenset[str]:
        """Return the tensors in memory of which the written bytes are marked."""
        return frozenset(name for name, (address, _) in self.places.items() if (row := self._row(address)) and row[4])

    def _refusals(self) -> Iterator[str]:
        proof, launch = self.proof, self.launch
        if proof.digest != self.kernel.digest or proof.kernel != self.kernel.name:
            yield OTHER
            return
        yield from self._options()
        if tuple(launch.block) != proof.block:
            yield f"the block is {tuple(launch.block)}, not {proof.block}"
            return
        arguments = [self._argument(at) for at in range(len(self.kernel.parameters))]
        self.sizes = solved(proof, launch, arguments)
        for name, low, high in proof.sizes:
            if name not in self.sizes:
                yield f"the size {name} is not among the arguments, the tensors' shapes and the grid"
                return
            if (low is not None and self.sizes[name] < low) or (high is not None and self.sizes[name] > high):
                yield f"{name} is {self.sizes[name]:,}"
        grid = tuple(int(value_of(one, self.sizes)) for one in proof.grid)
        if grid != tuple(launch.grid):
            yield f"the grid is {tuple(launch.grid)}, not {grid}"
        shared = int(value_of(proof.shared_bytes, self.sizes))
        if launch.shared_bytes < shared:
            yield f"there are {launch.shared_bytes:,} bytes of dynamic shared memory, not {shared:,}"
        for text, condition in proof.conditions:
            if not value_of(condition, self.sizes):
                yield f"{text} does not hold"
        yield from self._values(arguments)
        yield from self._memory()
        yield from self._elements()

    def _options(self) -> Iterator[str]:
        options, memory = self.launch.options, self.launch.memory
        if options.cooperative or (options.cluster or self.kernel.entry.cluster or (1, 1, 1)) not in (
            1,
            (1,),
            (1, 1, 1),
        ):
            yield "blocks run together"
        if options.strict or options.statistics or options.record_block is not None:
            yield "strict checks, statistics and recordings see every access"
        if options.exact:
            yield "its floats are elements of a ring"
        if options.overlapped is not None or self.kernel.lets_dependents_start:
            yield "another launch may run beside this one"
        if memory.of_host:
            yield "the host may change memory meanwhile"
        if self.proof.repeats and not self.launch.repeats:
            yield "its threads may not repeat the work of others"

    def _argument(self, at: int) -> int | None:
        """Return a parameter as a signed number, None if it is none."""
        one = self.kernel.parameters[at]
        content = self.launch.parameters[one.offset : one.offset + one.size]
        return int.from_bytes(content, "little", signed=True) if one.size <= 8 else None

    def _values(self, arguments: Sequence[int | None]) -> Iterator[str]:
        """Compare the arguments with their formulas, and find the tensors."""
        if len(arguments) != len(self.proof.arguments):
            yield f"it has {len(self.proof.arguments)} parameters"
            return
        for at, (formula, value) in enumerate(zip(self.proof.arguments, arguments, strict=True)):
            name = self.kernel.parameters[at].name
            if formula is None:
                continue
            if isinstance(formula, tuple) and formula[0] == POINTER:
                yield from self._tensor(at, formula[1], value or 0)
            elif value != value_of(formula, self.sizes):
                yield f"argument {at} ({name}) is {value}, not {value_of(formula, self.sizes)}"

    def _tensor(self, at: int, name: str, address: int) -> Iterator[str]:
        tensor = next((one for one in self.proof.tensors if one.name == name), None)
        if tensor is None:  # a pointer of which no tensor was given
            if address:
                yield f"nothing is known of the memory of argument {at} ({name})"
            return
        size = tensor.bytes(self.sizes)
        known = self.places.setdefault(name, (address, size))
        if known[0] != address:
            yield f"two arguments are the tensor {name}, but have two addresses"
        if address % _ALIGNMENT:
            yield f"{name} does not begin at a multiple of {_ALIGNMENT} bytes"
        extent, row = self.launch.memory.extents.get(at), self._row(address)
        if row is None or (extent is not None and extent.filled != (0, 0)):
            yield f"{name} is not contiguous memory"
            return
        end = row[0] + row[1] if extent is None else extent.low + extent.size
        if address + size > end:
            yield f"{name} has {end - address:,} bytes, not {size:,}"

    def _row(self, address: int) -> Row | None:
        return next((row for row in self.rows if row[0] <= address < row[0] + max(row[1], 1)), None)

    def _memory(self) -> Iterator[str]:
        """Compare the places of tensors, and of the program's variables, in the memory of this process."""
        spans = []
        for name, (address, size) in self.places.items():
            row = self._row(address)
            if row is not None and size:
                host = row[2] + address - row[0]
                spans.append((host, host + size, name))
        spans += [
            (storage.ctypes.data, storage.ctypes.data + storage.nbytes, name)
            for name, storage in self.variables.items() if storage.nbytes
        ]  # fmt: skip
        spans.sort()
        for (_, end, one), (begin, _, other) in itertools.pairwise(spans):
            if begin < end:
                yield f"{one} and {other} overlap"

    def _elements(self) -> Iterator[str]:
        """Compare the elements of tensors with the facts about them."""
        for fact in self.proof.elements:
            for name in filter(None, (fact.tensor, fact.apart)):
                if name not in self.places:
                    yield f"the tensor {name} is no argument"
                    return
            several = self._read(fact.tensor, fact.signed)
            if not all(self._hold(fact, values) for values in several) or (fact.apart and not self._apart(fact)):
                yield f"elements of {fact.tensor} are not {fact.text}"

    def _read(self, name: str, signed: bool) -> list[np.ndarray]:
        """Return the elements of a tensor; narrow ones, which code may read in both ways, with and without a sign."""
        address, size = self.places[name]
        row = self._row(address)
        if row is None or not size:
            return []
        content = (ctypes.c_char * size).from_address(row[2] + address - row[0])
        width = next(one.element for one in self.proof.tensors if one.name == name)
        kinds = "iu" if width < 4 else "i" if signed else "u"
        return [np.frombuffer(memoryview(content), f"{kind}{width}") for kind in kinds]

    def _apart(self, fact: ProvedElements) -> bool:
        """Return True if no two elements, each the start of as many places as its length says, share a place."""
        for starts, lengths in itertools.product(
            self._read(fact.tensor, fact.signed), self._read(fact.apart, fact.apart_signed)
        ):
            if any(abs(int(end)) >= _EXACT // 2 for one in (starts, lengths) for end in (one.min(), one.max())):
                return False
            order = np.lexsort((lengths, starts))
            first = starts.astype(np.int64)[order]
            ends = np.maximum.accumulate(first + lengths.astype(np.int64)[order])
            if np.any(ends[:-1] > first[1:]):
                return False
        return True

    def _hold(self, fact: ProvedElements, values: np.ndarray) -> bool:
        if fact.distinct:
            kept = values[~np.isin(values, fact.free)] if fact.free else values
            if len(np.unique(kept)) != len(kept):
                return False
        most = max(abs(int(values.max())), abs(int(values.min())))
        bounds = {name: abs(size) for name, size in self.sizes.items()} | {ELEMENT: most, INDEX: len(values)}
        exact = np.int64 if bound_of(fact.condition, bounds) < _EXACT else object
        names = {**self.sizes, ELEMENT: values.astype(exact), INDEX: np.arange(len(values)).astype(exact)}
        return bool(np.all(value_of(fact.condition, names)))
