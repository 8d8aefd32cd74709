"""Source lines of two traces, aligned, with what each gained or lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from types import MappingProxyType
from typing import Any

COUNTS: Mapping[str, str] = MappingProxyType(
    {
        "instructions": "instructions",
        "global_requests": "requests",
        "global_sectors": "sectors",
        "shared_wavefronts": "wavefronts",
        "landed_bytes": "bulk bytes",
        "barrier_waits": "waits",
        "slow_paths": "slow paths",
    }
)
"""The counts of a line that are compared, with the heads of their columns."""

_ALIKE = 0.6
"""Similarity from which a line counts as an edited one, as in difflib."""
_MOST_PAIRS = 20_000
"""Pairs of lines in one place of two sources up to which edited lines are looked for."""

Line = Mapping[str, Any]


@dataclass(frozen=True)
class LineChange:
    """A source line before and now, as the documents have it; None where it is missing."""

    before: Line | None
    now: Line | None

    @property
    def file(self) -> str:
        """Name of the file, now if it is there."""
        return Path((self.now or self.before or {})["path"]).name or "?"

    @property
    def place(self) -> str:
        """Line number, or both if the line has moved."""
        numbers = [str(line["line"]) if line else "–" for line in (self.before, self.now)]
        return numbers[0] if numbers[0] == numbers[1] else " → ".join(numbers)

    @property
    def texts(self) -> tuple[str, ...]:
        """Source text, or if it was edited both texts after "-" and "+"; a line that is gone or new has its sign."""
        before, now = (line and line["text"].strip() for line in (self.before, self.now))
        if before == now:
            return (f"  {now}",)
        return tuple(f"{sign} {text}" for sign, text in (("-", before), ("+", now)) if text is not None)

    def counts(self, name: str) -> tuple[float, float]:
        """Return a count before and now; 0 for a missing line."""
        before, now = ((line[name] or 0) if line else 0 for line in (self.before, self.now))
        return before, now

    def delta(self, name: str) -> float:
        """Return what a count gained; negative if it lost."""
        before, now = self.counts(name)
        return now - before

    @property
    def changed(self) -> bool:
        """True if a count differs."""
        return any(self.delta(name) for name in COUNTS)


def line_changes(before: Sequence[Line], now: Sequence[Line]) -> list[LineChange]:
    """Return the lines of two traces in pairs, file by file, in the order of the present source.

    Files with the same name belong together, also in different folders, and so do the two that are left if there is one
    on each side. Within a file lines are aligned by their text.
    """
    old, new = _by_file(before), _by_file(now)
    left, right = ([path for path in one if path not in other] for one, other in ((old, new), (new, old)))
    if len(left) == len(right) == 1:
        old[right[0]] = old.pop(left[0])
    names = dict.fromkeys([*new, *old])
    return [LineChange(one, other) for name in names for one, other in _aligned(old.get(name, []), new.get(name, []))]


def _by_file(lines: Sequence[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(Path(line["path"]).name, []).append(line)
    return found


def _aligned(before: Sequence[Line], now: Sequence[Line]) -> Iterator[tuple[Line | None, Line | None]]:
    old, new = ([_text(line) for line in lines] for lines in (before, now))
    for kind, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from zip(before[start:end], now[first:last], strict=True)
            continue
        for one, other in _edited(old[start:end], new[first:last]):
            yield None if one is None else before[start + one], None if other is None else now[first + other]


def _text(line: Line) -> str:
    """Return the text of a line with single spaces; of a file that was not there, its number."""
    return " ".join(line["text"].split()) or f"line {line['line']}"


def _edited(before: Sequence[str], now: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the indices of lines that replace each other: the most alike in order, the others alone."""
    start = 0
    search = len(before) * len(now) <= _MOST_PAIRS
    for at, text in enumerate(now):
        found = max(((_alike(before[one], text), -one) for one in range(start, len(before))), default=(0.0, 0))
        if not search or found[0] < _ALIKE:
            yield None, at
            continue
        yield from ((one, None) for one in range(start, -found[1]))
        yield -found[1], at
        start = 1 - found[1]
    yield from ((one, None) for one in range(start, len(before)))


def _alike(one: str, other: str) -> float:
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return 0.0 if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE else matcher.ratio()
