"""Loads whose values only go to selects, as those of ``tl.where(mask, tl.load(p), 0)`` do.

Such code reads a tile in full and drops the values that the mask excludes, often the half of a matrix that was never
written. The values are followed through instructions that compute a lane's result of its operands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import Statement

_NAME = re.compile(r"%[\w$]+")
_COMPUTES = frozenset(
    re.findall(
        r"\w+",
        """
        abs add and bfe bfi copysign cvt div ex2 fma lg2 lop3 mad max min mov mul neg not or prmt rcp rsqrt shf shl shr
        sqrt sub tanh xor""",
    )
)
_WITHOUT_RESULT = frozenset(("st", "red", "bra", "call", "bar", "barrier", "cp", "mbarrier"))
_UNPACKS = re.compile(r"mov\.b(32|64)$|cvt\.u(8|16)\.u(32|64)$|shr\.|prmt\.|bfe\.")


def only_chosen(statements: Sequence[Statement], load: Statement) -> bool:
    """Return True if each use of a value of ``load`` is as one of the two that a select chooses from.

    Of a load of several values one such value is enough: it is not known which of them is unwritten, and a mask that
    excludes half of a matrix excludes some elements of a vector and not others.
    """
    if not load.opcode.startswith("ld."):
        return False
    readers: dict[str, list[_Reader]] = {}
    for one in map(_Reader.of, statements):
        for name in one.read:
            readers.setdefault(name, []).append(one)
    loaded = _NAME.findall(split_operands(load.operands)[0])
    chosen = dict.fromkeys(_made_of(loaded, readers), True)
    changed = True
    while changed:  # the largest solution, so that a sum in a loop does not refute itself
        changed = False
        for name in [name for name, known in chosen.items() if known]:
            if not _all_choose(name, readers.get(name, ()), chosen):
                chosen[name], changed = False, True
    return any(chosen[name] for name in loaded)


class _Reader(NamedTuple):
    """A statement that reads registers: their names, those of its results, and those that decide what it does."""

    head: str
    read: frozenset[str]
    written: Sequence[str]
    decides: frozenset[str]
    unpacks: bool

    @classmethod
    def of(cls, statement: Statement) -> _Reader:
        """Return a statement as a reader."""
        head, operands = statement.opcode.partition(".")[0], split_operands(statement.operands)
        read = operands if head in _WITHOUT_RESULT else operands[1:]
        guard = [statement.guard] if statement.guard else []
        decides = frozenset([*guard, *(_NAME.findall(operands[-1]) if head == "selp" else ())])
        unpacks = bool(_UNPACKS.match(statement.opcode)) and (head != "mov" or "{" in operands[0])
        written = _NAME.findall(operands[0]) if operands else []
        return cls(head, frozenset([*guard, *_NAME.findall(",".join(read))]), written, decides, unpacks)


def _made_of(names: Iterable[str], readers: Mapping[str, Sequence[_Reader]]) -> list[str]:
    """Return the registers that are computed of others, these included."""
    found, work = dict.fromkeys(names), list(names)
    while work:
        for one in readers.get(work.pop(), ()):
            new = [name for name in one.written if one.head in _COMPUTES and name not in found]
            found.update(dict.fromkeys(new))
            work += new
    return list(found)


def _all_choose(name: str, readers: Sequence[_Reader], chosen: Mapping[str, bool]) -> bool:
    def fits(one: _Reader) -> bool:
        if name in one.decides or one.head not in _COMPUTES:
            return one.head == "selp" and name not in one.decides
        parts = [chosen[part] for part in one.written]
        return any(parts) if one.unpacks else all(parts)

    some = any if readers and all(one.unpacks for one in readers) else all
    return bool(readers) and some(map(fits, readers))
