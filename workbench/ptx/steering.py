"""Kernels that the values which they load do not steer: no branch, guard, address or set of lanes depends on these.

A launch of such a kernel on other values goes the same way: each thread executes the same instructions, with the same
accesses and barriers. What the checks find about it does not change either.

A register is followed through all statements of a kernel, in whatever order they may run. What is not known here, such
as a call, counts as steered.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence, Set
from typing import NamedTuple

from workbench.ptx.parse import ParsedModule
from workbench.ptx.unused import PURE

_MAKES = PURE | {"mma", "movmatrix"}  # makes a result of the operands of one lane or all
_OF_LANES = {
    "shfl": 1,
    "match": 1,
    "redux": 1,
    "vote": 1,
}  # by how many operands are values; the others say which lanes
_LOADS = frozenset(("ld", "ldu", "ldmatrix", "atom"))
_STORES = frozenset(("st", "red"))
_STEERS = frozenset(
    ("bar", "barrier", "bra", "cp", "exit", "fence", "membar", "prefetch", "ret", "trap")
)  # by all operands
_CARRY = "the carry flag"  # a register too
_CLOCKS = re.compile(r"%(?:clock|globaltimer|pm)")
_BRACKETS = re.compile(r"\[[^\]]*\]")


class _Shape(NamedTuple):
    """Names that a statement writes and reads, by their positions."""

    written: Sequence[int]
    passed: Sequence[int]
    """Names whose values reach those that are written, or memory."""
    steering: Sequence[int]
    loads: bool
    carries: bool
    takes_carry: bool


def is_steered(module: ParsedModule, name: str) -> bool:
    """Return True unless a kernel goes the same way whatever is in memory; its parameters count as given."""
    statements: list[tuple[_Shape, Sequence[str]]] = []
    guards: set[str] = set()
    for _, guard, _, shape, names in module.body(module.entries[name]).rows():
        if guard is not None:
            guards.add(guard)
        if shape is None or type(names) is not tuple:
            continue  # a directive, a label, or a branch, which has only a guard
        form = _shape_of(shape)
        if form is None:
            return True
        statements.append((form, names))
    values = _from_memory(statements)
    return bool(guards & values) or any(names[at] in values for form, names in statements for at in form.steering)


def _from_memory(statements: Sequence[tuple[_Shape, Sequence[str]]]) -> Set[str]:
    """Return the registers whose values depend on what was loaded."""
    found: set[str] = set()
    waiting: list[tuple[Set[str], list[str]]] = []  # the names that a statement passes on, those that it writes
    for form, names in statements:
        written = [names[at] for at in form.written] + [_CARRY] * form.carries
        if form.loads:
            found.update(written)
        elif written:
            waiting.append(({names[at] for at in form.passed} | ({_CARRY} if form.takes_carry else set()), written))
    left = len(waiting) + 1
    while len(waiting) < left:
        left, kept = len(waiting), []
        for read, written in waiting:
            if found.isdisjoint(read):
                kept.append((read, written))
            else:
                found.update(written)
        waiting = kept
    return found


@functools.lru_cache(maxsize=8192)
def _shape_of(shape: str) -> _Shape | None:
    """Return what statements of a shape do; None if that is not known."""
    opcode, _, operands = shape.partition(" ")
    head = opcode.partition(".")[0]
    places = [match.start() for match in re.finditer("#", operands)]
    every = range(len(places))
    if head in _STEERS and ".red" not in opcode and ".bulk" not in opcode:
        return _Shape((), (), every, False, False, False)
    inside = {at for part in _BRACKETS.finditer(operands) for at in every if part.start() < places[at] < part.end()}
    if head in _STORES and ".async" not in opcode:
        return _Shape((), (), sorted(inside), False, False, False)
    first = _end_of_first(operands)
    written = [at for at in every if places[at] < first and at not in inside]
    others = [at for at in every if at not in inside and at not in written]
    if head in _LOADS:
        return _Shape(written, others, sorted(inside), not opcode.startswith("ld.param"), False, False)
    if head in _OF_LANES and not inside:
        second = first + _end_of_first(operands[first + 1 :]) + 1
        values = [at for at in others if places[at] < second]
        return _Shape(written, values, [at for at in others if at not in values], False, False, False)
    if head in _MAKES and not inside:
        takes_carry = head in ("addc", "subc", "madc")
        return _Shape(written, others, (), bool(_CLOCKS.search(operands)), ".cc" in opcode, takes_carry)
    return None


def _end_of_first(operands: str) -> int:
    """Return where the first operand ends, which may be a list in braces."""
    depth = 0
    for place, letter in enumerate(operands):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            return place
    return len(operands)
