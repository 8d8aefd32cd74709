"""``NumericsReport``: by source line, births of infinities and NaN, conversions, and errors against float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.analysis.places import source_text
from workbench.base.frames import data_frame
from workbench.base.tables import Table, Tabular
from workbench.ptx.numerics import (
    CodePlace,
    InstructionErrors,
    InstructionNumerics,
    LaunchNumerics,
    NumericsEvent,
    by_line,
)

if TYPE_CHECKING:
    import pandas

_SHOWN = 6  # steps of a chain
_F32 = 2.0**-25  # a relative error below the last bit of an f32
_ERRORS = "Relative errors against float64: root mean square of what a line adds and inherits, and the largest"


@dataclass(frozen=True)
class NumericsLine:
    """Infinities, NaN and conversions at one source line, summed over its instructions and over launches, in lanes."""

    place: CodePlace
    rows: tuple[InstructionNumerics, ...]
    errors: tuple[InstructionErrors, ...] = ()
    stored: float = 0.0
    """Sum of squares of the errors in global memory that come from here."""
    share: float = 0.0
    """Fraction of all errors in global memory, by their squares, that come from here."""

    @property
    def results(self) -> int:
        """Floats that were compared with float64."""
        return sum(one.results for one in self.errors)

    def _mean(self, which: int) -> float:
        return math.sqrt(sum(one.squares[which] for one in self.errors) / self.results) if self.results else 0.0

    @property
    def added(self) -> float:
        """Relative error that the line adds, as the root of the mean square."""
        return self._mean(0)

    @property
    def inherited(self) -> float:
        """Relative error of its results that comes from its operands, as the root of the mean square."""
        return self._mean(1)

    @property
    def incoming(self) -> float:
        """Relative error of its operands, the largest of each result, as the root of the mean square."""
        return self._mean(2)

    @property
    def total(self) -> float:
        """Relative error of its results, as the root of the mean square."""
        return self._mean(3)

    @property
    def most(self) -> float:
        """Largest relative error of its results; 1 stands for all that is larger."""
        return max((one.largest[-1] for one in self.errors), default=0.0)

    @property
    def digits_lost(self) -> float:
        """Decimal digits that its worst instruction has less than its operands, which have at most those of f32."""
        losses = [_loss(one) for one in self.errors if one.results]
        return max(losses, default=0.0)

    @property
    def lost_shadows(self) -> int:
        """Results of instructions that are not followed."""
        return sum(one.lost for one in self.errors)

    @property
    def file(self) -> str:
        """Name of the file, without its folder."""
        return Path(self.place.source).name or "?"

    @property
    def line(self) -> int:
        """Number of the line; 0 where the compiler names none."""
        return self.place.line

    @property
    def text(self) -> str:
        """The line."""
        return source_text(self.place.source, self.line, nowhere=self.place.statement).strip()

    @property
    def nans(self) -> int:
        """Lanes in which a NaN was born here."""
        return sum(row.nans for row in self.rows)

    @property
    def infinities(self) -> int:
        """Lanes in which an infinity was born here."""
        return sum(row.infinities for row in self.rows)

    @property
    def passed(self) -> int:
        """Lanes in which a NaN came in and went on."""
        return sum(row.passed for row in self.rows)

    @property
    def first_nan(self) -> tuple[NumericsEvent, ...]:
        """The first NaN born here, and behind it where its operands come from; empty without one."""
        return next((row.first_nan for row in self.rows if row.first_nan), ())

    @property
    def first_infinity(self) -> tuple[NumericsEvent, ...]:
        """The first infinity born here, and behind it where its operands come from; empty without one."""
        return next((row.first_infinity for row in self.rows if row.first_infinity), ())

    @property
    def first_passed(self) -> tuple[NumericsEvent, ...]:
        """The first NaN that came in, and behind it the way back to its birth; empty without one."""
        return next((row.first_passed for row in self.rows if row.first_passed), ())

    @property
    def conversions(self) -> Mapping[str, tuple[int, int, int, int, int, float]]:
        """By format: numbers converted, overflowed, saturated, flushed to 0, NaN made numbers, largest magnitude."""
        found: dict[str, tuple[int, int, int, int, int, float]] = {}
        for row in self.rows:
            if (one := row.narrowed) is None:
                continue
            counts = one.numbers, one.overflowed, one.saturated, one.flushed, one.nans
            *before, largest = found.get(one.to, (0, 0, 0, 0, 0, 0.0))
            sums = [a + b for a, b in zip(before, counts, strict=True)]
            found[one.to] = sums[0], sums[1], sums[2], sums[3], sums[4], max(largest, one.largest)
        return found

    @property
    def lost(self) -> int:
        """Numbers that a conversion here could not keep: they overflow, saturate, become 0, or were NaN."""
        return sum(row.narrowed.lost for row in self.rows if row.narrowed)


@dataclass(frozen=True)
class NumericsReport(Tabular):
    """Infinities, NaN and conversions of launches, by source line.

    It is true if none that was born, nor what was computed of it, was written to global memory, and no conversion
    overflowed or saturated: compilers compute what a select then drops, and functions of CUDA's library do so too.
    """

    title: str
    launches: tuple[LaunchNumerics, ...]

    @cached_property
    def lines(self) -> tuple[NumericsLine, ...]:
        """The lines at which something happened, in order."""
        rows = by_line(row for one in self.launches for row in one.rows)
        errors = by_line(row for one in self.launches for row in one.errors)
        stored: dict[tuple[str, str, int], float] = {}
        for place, squares in (pair for one in self.launches for pair in one.stored):
            stored[place.key] = stored.get(place.key, 0.0) + squares
        every = sum(stored.values())
        found = []
        for key in sorted({*rows, *errors}, key=lambda key: (key[1], abs(key[2]), key[0])):
            place = (rows.get(key) or errors[key])[0].place
            here = stored.get(key, 0.0)
            part = here / every if every else 0.0
            found.append(NumericsLine(place, tuple(rows.get(key, ())), tuple(errors.get(key, ())), here, part))
        return tuple(found)

    @property
    def errors_from(self) -> NumericsLine | None:
        """The line from which most of the error in global memory comes; None where nothing differs from float64."""
        worst = max(self.lines, key=lambda line: line.share, default=None)
        return worst if worst is not None and worst.share else None

    @property
    def digits_lost_at(self) -> NumericsLine | None:
        """The line at which most digits are lost that its operands still had; None where none is."""
        worst = max(self.lines, key=lambda line: line.digits_lost, default=None)
        return worst if worst is not None and worst.digits_lost else None

    @property
    def births(self) -> tuple[NumericsEvent, ...]:
        """The first NaN and the first infinity born at each instruction, by line."""
        rows = [row for line in self.lines for row in line.rows]
        return tuple(chain[0] for row in rows for chain in (row.first_nan, row.first_infinity) if chain)

    def __bool__(self) -> bool:
        """Return True if nothing was lost; see above."""
        return not any(one.reached for one in self.births) and not any(map(_overflowed, self.lines))

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per source line and format of conversions, as a pandas DataFrame."""
        rows = []
        for line in self.lines:
            born = {
                "kernel": line.place.kernel, "file": line.file, "line": line.line, "text": line.text,
                "nans": line.nans, "infinities": line.infinities, "passed": line.passed,
                "first_nan": _told(line.first_nan), "first_infinity": _told(line.first_infinity),
                "results": line.results, "error_added": line.added, "error_inherited": line.inherited,
                "error": line.total, "largest_error": line.most, "digits_lost": line.digits_lost,
                "share": line.share, "lost_shadows": line.lost_shadows,
            }  # fmt: skip
            names = "numbers", "overflowed", "saturated", "flushed", "nans_lost", "largest"
            for to, counts in line.conversions.items() or [("", (0, 0, 0, 0, 0, 0.0))]:
                rows.append(born | {"to": to, **dict(zip(names, counts, strict=True))})
        return data_frame(rows)

    def tables(self) -> list[Table]:
        """Return a table of infinities and NaN by line, one of conversions, and one of errors."""
        several = len({one.kernel for one in self.launches}) > 1

        def place(line: NumericsLine) -> list[str]:
            where = f"{line.file}:{line.line}" if line.line else f"PTX line {line.place.ptx_line}"
            return [f"{line.place.kernel} {where}" if several else where, line.text]

        born = [
            [*place(line), what, _told(chain)]
            for line in self.lines
            for what, chain in (
                (f"NaN born, {_lanes(line.nans)}", line.first_nan),
                (f"infinity born, {_lanes(line.infinities)}", line.first_infinity),
                (f"NaN passed on, {_lanes(line.passed)}", () if line.nans else line.first_passed),
            )
            if chain
        ]
        narrow = [
            [*place(line), to, f"{numbers:,}", *(f"{n:,}" if n else "" for n in counts), f"{largest:.4g}"]
            for line in self.lines
            for to, (numbers, *counts, largest) in line.conversions.items()
        ]
        found = [Table(("line", "source", "what", "the first"), born, "lcll" if born else "", title=self._title(born))]
        if narrow:
            heads = ("line", "source", "to", "numbers", "overflow", "saturate", "become 0", "NaN lost", "largest")
            found.append(Table(heads, narrow, "lclrrrrrr", title="Conversions to narrower formats"))
        errors = [
            [*place(line), f"{line.results:,}", *map(_error, (line.added, line.inherited, line.most)),
             f"{line.digits_lost:.1f}" if line.digits_lost >= 0.05 else "", f"{line.share:.0%}" if line.share else "",
             f"{line.lost_shadows:,}" if line.lost_shadows else ""]
            for line in self.lines if line.results or line.lost_shadows
        ]  # fmt: skip
        if errors:
            heads = (
                "line", "source", "results", "adds", "inherits", "largest", "digits lost", "of the error written",
                "not followed",
            )  # fmt: skip
            found.append(Table(heads, errors, "lcrrrrrrr", title=_ERRORS, note=self._verdict()))
        return found if born else [Table((), (), "", title=self._title(born)), *found[1:]]

    def _verdict(self) -> str:
        told = []
        if (line := self.errors_from) is not None:
            told.append(f"{line.share:.0%} of the error in global memory comes from {_where(line.place)}: {line.text}")
        if (line := self.digits_lost_at) is not None:
            digits = f"{line.digits_lost:.1f} decimal digits"
            told.append(f"most digits are lost at {_where(line.place)}, {digits}: {line.text}")
        return "\n".join(told)

    def _title(self, born: Sequence[object]) -> str:
        return f"{self.title}: infinities and NaN" if born else f"{self.title}: no infinity and no NaN was born"


def _error(value: float) -> str:
    return f"{value:.1e}" if value else ""


def _loss(errors: InstructionErrors) -> float:
    _, _, incoming, total = (math.sqrt(one / errors.results) for one in errors.squares)
    return max(0.0, math.log10(total / max(incoming, _F32))) if total else 0.0


def _lanes(count: int) -> str:
    return f"{count:,} time{'s' if count != 1 else ''}"


def _overflowed(line: NumericsLine) -> bool:
    return any(row.narrowed and row.narrowed.lost > row.narrowed.flushed for row in line.rows)


def _number(value: float) -> str:
    return f"{value:.6g}"


def _step(event: NumericsEvent) -> str:
    """Return one event in words, without its place."""
    figures = ", ".join(map(_number, event.operands))
    made = f"{event.place.statement.split()[0]}({figures}) = {_number(event.result)}"
    if event.event == "store":
        return f"written to {event.where}"
    if event.event == "load":
        return f"read from {event.where}"
    return made


def _told(chain: Sequence[NumericsEvent]) -> str:
    """Return a chain in words: the first event with its thread, then one line for each before it."""
    if not chain:
        return ""
    first = chain[0]
    lines = [f"{_step(first)} in block {first.block}, thread {first.thread}"]
    for event in chain[1:_SHOWN]:
        born = {"nan": ", where the NaN was born", "infinity": ", where the infinity was born"}.get(event.event, "")
        lines.append(f"from {_where(event.place)}: {_step(event)}{born}")
    if len(chain) > _SHOWN:
        last = chain[-1]
        lines.append(f"... {len(chain) - _SHOWN} steps more, the first at {_where(last.place)}: {_step(last)}")
    if first.born and first.reached:
        lines.append("it, or what was computed of it, was written to global memory")
    return "\n".join(lines)


def _where(place: CodePlace) -> str:
    if not place.line:
        return f"PTX line {place.ptx_line}"
    return f"{Path(place.source).name}:{place.line}"
