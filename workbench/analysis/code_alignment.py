"""Alignment of two listings of instructions, with difflib, on keys that are free of the names of registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from workbench.analysis.code_listing import CodeLine


class AlignedLines(NamedTuple):
    """A line of each listing that stand side by side; None where one listing has no counterpart."""

    left: CodeLine | None
    right: CodeLine | None

    @property
    def alike(self) -> bool:
        """True if both are there and differ in the names of registers and labels at most."""
        return self.left is not None and self.right is not None and self.left.key == self.right.key

    @property
    def mark(self) -> str:
        """The sign of a difference: ``<`` only on the left, ``>`` only on the right, ``~`` changed; empty if alike."""
        if self.left is None:
            return ">"
        if self.right is None:
            return "<"
        return "" if self.alike else "~"


def align(left: Sequence[CodeLine], right: Sequence[CodeLine]) -> list[AlignedLines]:
    """Align two listings: equal keys first, then, in what is between them, equal kinds without widths."""
    found: list[AlignedLines] = []
    for same, a, b in _runs([one.key for one in left], [one.key for one in right]):
        lefts, rights = left[a], right[b]
        if same:
            found += map(AlignedLines, lefts, rights)
            continue
        for paired, c, d in _runs(_bases(lefts), _bases(rights)):
            if paired:
                found += map(AlignedLines, lefts[c], rights[d])
            else:
                found += [AlignedLines(one, None) for one in lefts[c]]
                found += [AlignedLines(None, one) for one in rights[d]]
    return found


def _bases(lines: Sequence[CodeLine]) -> list[str]:
    return [one.kind.split(".")[0] for one in lines]


def _runs(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[bool, slice, slice]]:
    """Yield (True if the items are equal, slice of the left, slice of the right), in order."""
    for tag, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        yield tag == "equal", slice(a, b), slice(c, d)
