"""Measurement of one cell on a GPU: check all ways of all contenders, time them in turn, check them again.

The result of a contender is that of its fastest way that is correct both times.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.attention.bench.paged_attention.cells import BenchmarkCell
from workbench.attention.bench.paged_attention.contender import Contender, GpuLostError, Prepared, Way
from workbench.attention.bench.paged_attention.inputs import BenchmarkInputs
from workbench.attention.bench.paged_attention.ledger import TIME_IS_UP, LedgerRow
from workbench.errors import ConfigurationError
from workbench.ops.tensors import forget_kept_zeros
from workbench.tuning.measuring import MOST_SAMPLES, Clock, interleave, is_steady

_ROUNDS = 10
"""Number of rounds of all contenders between two checks of the noise and the time."""
_CELL_SECONDS = 6.0
"""Time limit in seconds for sampling one cell, noisy or not, so that a slow contender leaves time for other cells."""
_PREPARING_SHARE = 0.2
"""Fraction of the whole time that one contender may compile and plan; after it, cells that need new code are blank."""
_TUNING_SHARE = 0.1
"""Fraction of the whole time after which a contender whose ways differ in sizes only compiles just the best one."""
_RESERVE_BYTES = 4 << 30
"""Bytes kept free for partial results, the float64 reference, drivers and compilers."""


@dataclass
class _Turn:
    """One way of one contender at the current cell."""

    contender: Contender
    way: Way
    row: LedgerRow
    ready: tuple[Prepared, Callable[[], object]] | None = None
    """The prepared way and the replay of its run, after its first run was correct."""

    @property
    def name(self) -> str:
        return f"{self.contender.name} ({self.way.label})" if self.way.label else self.contender.name

    @property
    def key(self) -> tuple[str, Hashable]:
        """Key of the code that it runs."""
        return self.contender.name, self.way.code(self.row.cell)

    def fail(self, error: Exception) -> None:
        first = (str(error).strip() or "no message").splitlines()[0]
        self.row = replace(self.row, outcome="failed", note=f"{type(error).__name__}: {first}")


class _Lost(Exception):
    """A device that was lost in one of these turns."""

    def __init__(self, turns: Sequence[_Turn]):
        self.contenders = [turn.contender for turn in turns]
        super().__init__(" or ".join(turn.name for turn in turns))


@dataclass
class Measurer:
    """Measurement of cells on one device.

    ``now`` is a clock in seconds, ``deadline`` its value when the time is up, ``budget`` the seconds of the whole run.
    ``free_bytes`` returns the free memory, ``lost`` True if the device has become unusable; they are arguments so that
    tests can run without a GPU.
    """

    device: Any
    where: str
    clock: Clock
    now: Callable[[], float]
    deadline: float
    budget: float
    free_bytes: Callable[[], int]
    lost: Callable[[], bool] = lambda: False
    preparing: dict[str, float] = field(default_factory=dict)
    """Seconds that each contender has spent on compiling and planning so far."""
    compiled: set[tuple[str, Hashable]] = field(default_factory=set)
    """Keys of the compiled code of each contender (see `Way.code`)."""
    leaders: dict[str, str] = field(default_factory=dict)
    """Label of each contender's fastest way at the last cell for which it has a time."""

    def __call__(self, cell: BenchmarkCell, contenders: Sequence[Contender]) -> list[LedgerRow]:
        """Measure a cell and return one row per contender, in their order.

        Raises:
            DeviceLostError: if a contender made the device unusable; its ``rows`` are those of the cell.
        """
        turns = [_turn(cell, one, way) for one in contenders for way in one.ways(cell)]
        able = list(self._able(cell, turns))
        try:
            if able:
                self._measure(cell, able)
        except _Lost as lost:
            for turn in able:
                if turn.contender not in lost.contenders and turn.row.outcome == "blank":
                    turn.row = replace(turn.row, note="the GPU was lost before its turn", unfinished=True)
            raise GpuLostError(str(lost), tuple(_rows(turns, contenders))) from lost.__cause__
        rows = _rows(turns, contenders)
        self.leaders |= {row.contender: row.way for row in rows if row.seconds is not None}
        return rows

    def _able(self, cell: BenchmarkCell, turns: Sequence[_Turn]) -> Iterator[_Turn]:
        """Yield the turns that can run; the rows of the others get the reason."""
        forms: set[str] = set()
        room = self.free_bytes() - _RESERVE_BYTES - cell.kv_bytes
        for turn in turns:
            form = turn.way.form
            copied = 0 if form == "nhd" or form in forms else cell.kv_bytes
            reason = turn.contender.missing or turn.way.refuses(cell, self.device.arch)
            if not reason and room < copied:
                what = "the cache does" if room < 0 else f"a second copy of the cache ({form}) does"
                reason = f"{what} not fit: {(copied - room) / 1e9:.1f} GB too few are free"
            spent = self.preparing.get(turn.contender.name, 0.0)
            if not reason and turn.key not in self.compiled:
                if spent > _PREPARING_SHARE * self.budget:
                    turn.row = replace(turn.row, unfinished=True)
                    reason = f"compiling it has taken {spent:.0f} s of this run already"
                elif turn.contender.tunes and spent > _TUNING_SHARE * self.budget and not self._leads(turn):
                    reason = f"compiling others has taken {spent:.0f} s of this run: only the best so far is compiled"
            if reason:
                turn.row = replace(turn.row, note=reason)
                continue
            if copied:
                forms.add(form)
                room -= copied
            yield turn

    def _leads(self, turn: _Turn) -> bool:
        """Return True for the contender's fastest way at its last cell, or its first way without such a cell."""
        first = turn.contender.ways(turn.row.cell)[0].label
        return turn.way.label == self.leaders.get(turn.contender.name, first)

    def _measure(self, cell: BenchmarkCell, able: Sequence[_Turn]) -> None:
        inputs = BenchmarkInputs.draw(cell, self.where)
        for turn in able:
            if self.now() >= self.deadline:
                turn.row = replace(turn.row, note=TIME_IS_UP)
                continue
            started = self.now()
            try:
                self._prepare(turn, inputs)
            except ConfigurationError as error:
                turn.row = replace(turn.row, note=str(error))
            except Exception as error:
                turn.fail(error)
                if self.lost():
                    raise _Lost([turn]) from error
            taken = self.now() - started
            self.preparing[turn.contender.name] = self.preparing.get(turn.contender.name, 0.0) + taken
            self.compiled.add(turn.key)
            turn.row = replace(turn.row, prepare_seconds=taken)
        ready = [(turn, *turn.ready) for turn in able if turn.ready is not None]
        for _, prepared, _ in ready:
            prepared.out.fill_(float("nan"))
        try:
            samples = self._sample([replay for *_, replay in ready])
            for (turn, prepared, _), times in zip(ready, samples, strict=True):
                # Checked again, because a race may show in some runs only; that is a wrong result, not a fast one.
                turn.row = _timed(turn.row, inputs, prepared, times)
        except Exception as error:  # a replayed kernel's fault is reported by a later call, maybe of another kernel
            for turn, *_ in ready:
                turn.fail(error)
            if self.lost():
                raise _Lost([turn for turn, *_ in ready]) from error

    def _prepare(self, turn: _Turn, inputs: BenchmarkInputs) -> None:
        """Compile a way, run it once and check it; a correct one gets its replay."""
        prepared = turn.way.prepare(inputs, self.device)
        prepared.run()
        check = inputs.check(prepared.result)
        turn.row = replace(turn.row, config=dict(prepared.config), max_error=check.max_error, error_bound=check.bound)
        if check.ok:
            turn.ready = prepared, self.clock.prepare(prepared.run)
        else:
            forget_kept_zeros()
            turn.row = replace(turn.row, outcome="wrong", note=str(check))

    def _sample(self, replays: Sequence[Callable[[], object]]) -> list[list[float]]:
        """Sample all replays in turn until all medians are accurate enough or the time is up."""
        samples: list[list[float]] = [[] for _ in replays]
        until = min(self.now() + _CELL_SECONDS, max(self.deadline, self.now()))
        while replays:
            for taken, more in zip(samples, interleave(self.clock, replays, _ROUNDS), strict=True):
                taken.extend(more)
            steady = all(map(is_steady, samples))
            if steady or len(samples[0]) >= MOST_SAMPLES or self.now() >= until:
                break
        return samples


def _turn(cell: BenchmarkCell, one: Contender, way: Way) -> _Turn:
    return _Turn(
        one, way, LedgerRow(cell, one.name, one.is_ours, "blank", minimum_bytes=cell.minimum_bytes, way=way.label)
    )


def _timed(row: LedgerRow, inputs: BenchmarkInputs, prepared: Prepared, samples: Sequence[float]) -> LedgerRow:
    check = inputs.check(prepared.result)
    if not check.ok:
        forget_kept_zeros()
        return replace(row, outcome="wrong", note=f"{check}, after {len(samples)} repeated runs")
    middle = statistics.median(samples)
    return replace(
        row,
        outcome="measured",
        seconds=middle,
        spread_seconds=statistics.median(abs(sample - middle) for sample in samples),
        samples=len(samples),
    )


def _rows(turns: Sequence[_Turn], contenders: Sequence[Contender]) -> list[LedgerRow]:
    return [best([turn.row for turn in turns if turn.contender is one]) for one in contenders]


def best(rows: Sequence[LedgerRow]) -> LedgerRow:
    """Return a contender's row from those of its ways: the fastest, with the outcomes of the others in ``note``.

    If none has a time, it is the worst one: wrong before failed before blank. If the time was up for one of them, it is
    that row, so that the contender runs again when the benchmark is continued.
    """
    late = [row for row in rows if row.note == TIME_IS_UP]
    if late or len(rows) == 1:
        return (late or rows)[0]
    timed = [(row.seconds, row) for row in rows if row.seconds is not None]
    if timed:
        _, chosen = min(timed, key=lambda one: one[0])
    else:
        chosen = replace(min(rows, key=lambda row: ("wrong", "failed", "blank").index(row.outcome)), way="")
    return replace(
        chosen,
        note=_note([row for row in rows if row.seconds is None], alone=not timed),
        ways={row.way: seconds for seconds, row in timed},
        unfinished=any(row.unfinished for row in rows),
        prepare_seconds=sum(row.prepare_seconds or 0.0 for row in rows),
    )


def _note(rows: Sequence[LedgerRow], alone: bool) -> str:
    """Describe the ways without a time, grouped by reason; ``alone`` means that no way has a time."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.note if row.outcome == "blank" else f"{row.outcome}, {row.note}", []).append(row.way)
    if alone and len(reasons) == 1:
        return rows[0].note
    return "; ".join(f"{', '.join(ways)}: {reason}" for reason, ways in reasons.items())
