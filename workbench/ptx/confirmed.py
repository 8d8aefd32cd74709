"""Plain loads that an atomic confirms, as the first load of a loop that ends in a compare-and-swap.

Such a load races with the atomics of other threads. Its value may be old, and the swap finds that out; so may a value
that is only compared, before a minimum or maximum of the same place. It is followed through moves and into calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import Statement

_NAME = re.compile(r"[%A-Za-z_$][\w$]*")
_MOVES = re.compile(r"(mov|cvt|selp|ld\.param|st\.param)\b")
_SWAPS = re.compile(r"atom\b.*\.cas\b")
_NARROWS = re.compile(r"(atom|red)\b.*\.(cas|min|max|and|or)\b")
_COMPARES = frozenset(("setp", "set", "min", "max"))


def confirmed(statements: Sequence[Statement], load: Statement, swapping: Mapping[str, bool]) -> bool:
    """Return True if a swap compares what ``load`` reads, or only comparisons read it before an atomic on its place.

    ``swapping`` says of each function of the module whether it, or one that it calls, has a compare-and-swap.
    """
    if not load.opcode.startswith("ld."):
        return False
    operands = split_operands(load.operands)
    held = set(_NAME.findall(operands[0]))
    size = 0
    while size != len(held):
        size = len(held)
        for one in statements:
            if _MOVES.match(one.opcode):
                target, *rest = split_operands(one.operands)
                if held & set(_NAME.findall(",".join(rest))):
                    held.update(_NAME.findall(target))
    if any(_compares(one, held, swapping) for one in statements):
        return True
    readers = [one for one in statements if one.start != load.start and _reads(one, held)]
    place = operands[1].replace(" ", "")
    narrows = any(place in one.operands.replace(" ", "") for one in statements if _NARROWS.match(one.opcode))
    return narrows and bool(readers) and all(_head(one) in _COMPARES or _MOVES.match(one.opcode) for one in readers)


def swapping(bodies: Mapping[str, Sequence[Statement]]) -> dict[str, bool]:
    """Return, by its name, whether each function has a compare-and-swap or calls one that has."""
    found = {name: any(_SWAPS.match(one.opcode) for one in body) for name, body in bodies.items()}
    called = {
        name: {part for one in body if _head(one) == "call" for part in _NAME.findall(one.operands)}
        for name, body in bodies.items()
    }
    for _ in bodies:
        new = {name: found[name] or any(found.get(part, False) for part in called[name]) for name in bodies}
        if new == found:
            break
        found = new
    return found


def _head(statement: Statement) -> str:
    return statement.opcode.partition(".")[0]


def _compares(one: Statement, held: set[str], swapping: Mapping[str, bool]) -> bool:
    operands = split_operands(one.operands)
    if _SWAPS.match(one.opcode):
        return bool(held & set(_NAME.findall(operands[2])))
    names = _NAME.findall(one.operands)
    return _head(one) == "call" and any(swapping.get(name, False) for name in names) and bool(held & set(names))


def _reads(one: Statement, held: set[str]) -> bool:
    operands = split_operands(one.operands)
    return bool(held & {*_NAME.findall(",".join(operands[1:])), *([one.guard] if one.guard else [])})
