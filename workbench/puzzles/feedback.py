"""``Feedback``, the result of a puzzle's check: its mistakes, each with its line and its remedy."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from workbench.analysis.exact import ExactAnswer
from workbench.base.tables import WIDTH, Table, Tabular

if TYPE_CHECKING:
    from workbench.analysis.trace import Trace
    from workbench.ui.picture import Picture


@dataclass(frozen=True)
class Remark:
    """One mistake of a kernel: its name, the sizes that show it, the evidence with its lines, and the remedy."""

    mistake: str
    sizes: str
    seen: str
    line: str
    remedy: str

    def __str__(self) -> str:
        lines = [f"{self.sizes}: {self.mistake.upper()}"]
        for text in (self.seen, *(f"> {line}" for line in self.line.splitlines()), self.remedy):
            lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)


@dataclass(frozen=True)
class Measured:
    """A figure of a kernel's trace beside the goal of the puzzle."""

    figure: str
    value: int
    at_most: int

    @property
    def ok(self) -> bool:
        """True if the goal is reached."""
        return self.value <= self.at_most


@dataclass(frozen=True, repr=False)
class Feedback(Tabular):
    """The result of `Puzzle.check`.

    Attributes:
        puzzle: the puzzle's name.
        language: "CUDA" or "Triton".
        remarks: the mistakes, the clearest first; none if the puzzle is solved.
        right: the sizes with right results.
        goals: figures of the last sizes beside their goals; measured once all results are right.
        trace: the trace of the launch with the goals, for a closer look.
        picture: the memory request that misses a goal by most, or None.
        cells: an SVG of the elements of the output, if some are wrong.
        exact: whether a kernel with right results is the same computation as the specification, where that was asked.
    """

    puzzle: str
    language: str
    remarks: tuple[Remark, ...]
    right: tuple[str, ...]
    goals: tuple[Measured, ...] = ()
    trace: Trace | None = None
    picture: Picture | None = None
    cells: str = ""
    exact: ExactAnswer | None = None

    @property
    def ok(self) -> bool:
        """True if the puzzle is solved: results right, nothing found, all goals reached."""
        return not self.remarks

    def __bool__(self) -> bool:
        """Return True if the puzzle is solved."""
        return self.ok

    @property
    def mistakes(self) -> tuple[str, ...]:
        """The names of the mistakes."""
        return tuple(remark.mistake for remark in self.remarks)

    @property
    def headline(self) -> str:
        """The puzzle and its state in one line."""
        count = len(self.remarks)
        state = "solved" if self.ok else f"{count} mistake{'s' * (count > 1)}"
        return f"{self.puzzle} in {self.language}: {state}"

    def __str__(self) -> str:
        lines = [self.headline, *map(str, self.remarks)]
        goals = [f"{goal.figure}: {goal.value:,}, goal at most {goal.at_most:,}" for goal in self.goals]
        return "\n".join([*lines, *goals, *self._notes()])

    __repr__ = __str__

    def _notes(self) -> Iterator[str]:
        if self.right:
            yield f"right: {'; '.join(self.right)}"
        if self.exact is not None:
            yield from self.exact.lines
        if self.picture is not None:
            yield ".picture of this result draws the memory request to look at."

    def tables(self) -> Sequence[Table]:
        """Return a table of the mistakes, or the sizes that are right, and one of the goals."""
        heads, align = ["mistake", "sizes", "seen", "where", "to do"], "hllcl"
        rows = [
            [one.mistake, one.sizes.replace(" = ", "\u00a0=\u00a0"), one.seen, one.line, one.remedy]
            for one in self.remarks
        ]
        if not any(one.line for one in self.remarks):
            heads, align = [*heads[:3], heads[4]], "hlll"
            rows = [[*row[:3], row[4]] for row in rows]
        note = "\n".join(self._notes())
        made = [Table(heads if rows else (), rows, align if rows else "", title=self.headline, note=note)]
        if self.goals:
            measured = [
                (one.figure, f"{one.value:,}", f"{one.at_most:,}", "yes" if one.ok else "no") for one in self.goals
            ]
            made.append(Table(("figure", "yours", "goal, at most", "reached"), measured, "lrrl"))
        return made

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.cells


CELL, GAP = 9, 2
_MOST_COLUMNS, _MOST_ROWS = 64, 16
_STYLES = {
    "right": 'fill="#56B4E9" fill-opacity="0.55"',
    "wrong": 'fill="#D55E00"',
    "not written": 'fill="none" stroke="#888888" stroke-dasharray="2 2"',
}
_HEIGHTS = {"right": CELL // 3, "wrong": CELL, "not written": CELL}


def cells_of(name: str, states: Sequence[Sequence[str]]) -> str:
    """Draw the elements of an output as SVG, row by row: right ones low, wrong ones high, unwritten ones hollow.

    A long row is folded, and what does not fit is left out. Words say what the colours do.
    """
    folded = [list(row[at : at + _MOST_COLUMNS]) for row in states for at in range(0, len(row), _MOST_COLUMNS)]
    shown, step = folded[:_MOST_ROWS], CELL + GAP
    boxes = []
    for top, row in enumerate(shown):
        start = 0
        for end in range(1, len(row) + 1):
            if end < len(row) and row[end] == row[start]:
                continue
            height = _HEIGHTS[row[start]]
            y = top * step + CELL - height
            boxes.append(
                f'<rect x="{start * step}" y="{y}" width="{(end - start) * step - GAP}" height="{height}" '
                f"{_STYLES[row[start]]}/>"
            )
            start = end
    width, height = max(map(len, shown)) * step, len(shown) * step
    left_out = f" (the first {_MOST_ROWS} lines)" if len(folded) > len(shown) else ""
    words = f"{name}, element by element{left_out}: low is right, high is wrong, hollow is not written"
    return (
        f'<figure style="margin:0.5em 0"><svg role="img" viewBox="0 0 {width} {height}" width="{width}" '
        f'style="max-width:100%">{"".join(boxes)}</svg><figcaption>{escape(words)}</figcaption></figure>'
    )
