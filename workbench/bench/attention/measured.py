"""One cell on a GPU: check everyone, time everyone in turns, check everyone again."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.bench.attention.cells import Cell
from workbench.bench.attention.contender import Contender, DeviceLostError, Prepared
from workbench.bench.attention.inputs import Inputs
from workbench.bench.attention.ledger import TIME_IS_UP, Row
from workbench.errors import ConfigurationError
from workbench.ops.kept_zeros import forget
from workbench.tuning.gpu_timing import MOST_SAMPLES, RELATIVE_ERROR, Clock, interleave, median_error

_ROUNDS = 10
"""Turns of all contenders between two looks at the noise and at the time."""
_CELL_SECONDS = 6.0
"""Sampling of one cell stops here, noisy or not: a slow contender must not use up the time of other cells."""
_PREPARING_SHARE = 0.2
"""Of the whole time, what one contender may take to compile and plan; then it sits out what needs new code."""
_RESERVE_BYTES = 4 << 30
"""Kept free for partial results, the float64 answer, and what drivers and compilers take."""


@dataclass
class Measurer:
    """Measures cells on one device.

    ``now`` is a clock in seconds, ``deadline`` its value when the time is up, ``budget`` the seconds of the whole run.
    ``free_bytes`` tells how much memory can be had, ``lost`` whether the device has become unusable; they are arguments
    so that all of this runs without a GPU, too.
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
    """Seconds that each contender has taken to compile and plan so far."""
    compiled: set[tuple[str, Hashable]] = field(default_factory=set)
    """What each of them has compiled (see `Contender.code`)."""

    def __call__(self, cell: Cell, contenders: Sequence[Contender]) -> list[Row]:
        """One row per contender, in their order.

        Raises:
            DeviceLostError: a contender made the device unusable; its ``rows`` are the ones so far.
        """
        least = cell.minimum_bytes
        rows = {one.name: Row(cell, one.name, one.is_ours, "blank", minimum_bytes=least) for one in contenders}
        able = self._able(cell, contenders, rows)
        if able:
            self._measure(cell, able, rows)
        return list(rows.values())

    def _able(self, cell: Cell, contenders: Iterable[Contender], rows: dict[str, Row]) -> list[Contender]:
        """Those that can take part; the rows of the others say why not."""
        able, forms = [], set()
        room = self.free_bytes() - _RESERVE_BYTES - cell.kv_bytes
        for one in contenders:
            copied = 0 if one.form == "nhd" or one.form in forms else cell.kv_bytes
            reason = one.missing or one.refuses(cell, self.device.arch)
            if not reason and room < copied:
                what = "the cache does" if room < 0 else f"a second copy of the cache ({one.form}) does"
                reason = f"{what} not fit: {(copied - room) / 1e9:.1f} GB too few are free"
            spent = self.preparing.get(one.name, 0.0)
            if (
                not reason
                and spent > _PREPARING_SHARE * self.budget
                and (one.name, one.code(cell)) not in self.compiled
            ):
                reason = f"compiling it has taken {spent:.0f} s of this run already"
            if reason:
                rows[one.name] = replace(rows[one.name], note=reason)
                continue
            if copied:
                forms.add(one.form)
                room -= copied
            able.append(one)
        return able

    def _measure(self, cell: Cell, able: Sequence[Contender], rows: dict[str, Row]) -> None:
        inputs = Inputs.draw(cell, self.where)
        ready: dict[str, tuple[Prepared, Callable[[], object]]] = {}
        for one in able:
            if self.now() >= self.deadline:
                rows[one.name] = replace(rows[one.name], note=TIME_IS_UP)
                continue
            started = self.now()
            try:
                rows[one.name], prepared = self._checked(one, inputs, rows[one.name])
                if prepared is not None:
                    ready[one.name] = prepared, self.clock.prepare(prepared.run)
            except ConfigurationError as error:
                rows[one.name] = replace(rows[one.name], note=str(error))
            except Exception as error:
                rows[one.name] = _failed(rows[one.name], error)
                if self.lost():
                    raise DeviceLostError(one.name, tuple(rows.values())) from error
            taken = self.now() - started
            self.preparing[one.name] = self.preparing.get(one.name, 0.0) + taken
            self.compiled.add((one.name, one.code(cell)))
            rows[one.name] = replace(rows[one.name], prepare_seconds=taken)
        for prepared, _ in ready.values():
            prepared.out.fill_(float("nan"))
        try:
            samples = self._sample([replay for _, replay in ready.values()])
            for (name, (prepared, _)), taken in zip(ready.items(), samples, strict=True):
                # Checked again: a race that shows once in a while is a wrong result, not a fast one.
                rows[name] = _timed(rows[name], inputs, prepared, taken)
        except Exception as error:  # a fault of a replayed kernel shows at a later call, whoever made it
            for name in ready:
                rows[name] = _failed(rows[name], error)
            if self.lost():
                raise DeviceLostError(" or ".join(ready), tuple(rows.values())) from error

    def _checked(self, one: Contender, inputs: Inputs, row: Row) -> tuple[Row, Prepared | None]:
        prepared = one.prepare(inputs, self.device)
        prepared.run()
        check = inputs.check(prepared.out)
        row = replace(row, config=dict(prepared.config), max_error=check.max_error, error_bound=check.bound)
        if check.ok:
            return row, prepared
        forget()
        return replace(row, outcome="wrong", note=str(check)), None

    def _sample(self, replays: Sequence[Callable[[], object]]) -> list[list[float]]:
        """Samples of everyone in turns, until all medians are known well enough or the time is up."""
        samples: list[list[float]] = [[] for _ in replays]
        until = min(self.now() + _CELL_SECONDS, max(self.deadline, self.now()))
        while replays:
            for taken, more in zip(samples, interleave(self.clock, replays, _ROUNDS), strict=True):
                taken.extend(more)
            steady = all(median_error(taken) <= RELATIVE_ERROR * statistics.median(taken) for taken in samples)
            if steady or len(samples[0]) >= MOST_SAMPLES or self.now() >= until:
                break
        return samples


def _timed(row: Row, inputs: Inputs, prepared: Prepared, samples: Sequence[float]) -> Row:
    check = inputs.check(prepared.out)
    if not check.ok:
        forget()
        return replace(row, outcome="wrong", note=f"{check}, after {len(samples)} repeated runs")
    middle = statistics.median(samples)
    return replace(
        row,
        outcome="measured",
        seconds=middle,
        spread_seconds=statistics.median(abs(sample - middle) for sample in samples),
        samples=len(samples),
    )


def _failed(row: Row, error: Exception) -> Row:
    first = (str(error).strip() or "no message").splitlines()[0]
    return replace(row, outcome="failed", note=f"{type(error).__name__}: {first}")
