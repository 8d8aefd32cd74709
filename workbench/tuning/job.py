"""A call of `tune` whose arguments have been understood: the search itself, its leaders again, what is recorded."""

from __future__ import annotations

import dataclasses
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.device_models import DeviceModel, placed
from workbench.ops.sampled_case import SampledCase
from workbench.trials.store import Store, default_path
from workbench.trials.trial import Trial
from workbench.tuning import search, table
from workbench.tuning.attempts import Attempts, Progress, trial_key
from workbench.tuning.cluster import ClusterAttempts
from workbench.tuning.drive import drive
from workbench.tuning.gpu_choice import use_gpu
from workbench.tuning.gpu_state import disturbances
from workbench.tuning.isolation import NotTimedError
from workbench.tuning.measure import Limits
from workbench.tuning.run import TuningRun, table_entries
from workbench.tuning.space import Space

if TYPE_CHECKING:
    from workbench.devices import Device
    from workbench.ops.op import Op
    from workbench.ops.variant import Case, Variant
    from workbench.tuning.scouting import Scouting

LEADERS, LEADER_FACTOR, LEADER_ROUNDS = 8, 1.05, 30
"""On a GPU up to this many, within this factor of the best, are timed again in turns, this often."""


@dataclass(frozen=True)
class TuningJob:
    """What to tune, for what and how; ``scoutings`` are the runs that come first, for the strategy "predicted"."""

    op: Op
    cases: tuple[Case, ...]
    spaces: Mapping[Variant, Space]
    notes: tuple[str, ...]
    device: Device
    model: DeviceModel
    strategy: search.Strategy
    budget: search.Budget
    store: str | Path | Store | None
    record: bool
    retry_failed: bool
    seed: int
    limits: Limits | None
    executor: Executor | None
    isolation: str
    scoutings: tuple[Scouting, ...] = ()
    gpu: int | None = None
    """The number of the GPU, if the device is one."""

    @property
    def store_path(self) -> Path:
        """The file that keeps every attempt."""
        if isinstance(self.store, Store):
            return self.store.path
        return default_path() if self.store is None else Path(self.store)

    @property
    def total(self) -> int | None:
        """Attempts that will be made at most; None where time decides."""
        if math.isfinite(self.budget.seconds):
            return None
        sizes = (int(min(len(space), self.budget.configurations)) for space in self.spaces.values())
        return sum(sizes) * len(self.cases)

    def run(self, progress: Callable[[Progress], None] | None, stop: threading.Event | None = None) -> TuningRun:
        """Scout, search, and record the winners. Ends as by Ctrl-C when ``stop`` is set."""
        begun = time.monotonic()
        use_gpu(self.gpu)
        scouted = 0
        for scouting in self.scoutings:
            run = scouting.run(progress, stop)
            scouted += len(run.trials)
            if run.interrupted:
                seconds = time.monotonic() - begun
                return self.result((), new=0, reused=0, interrupted=True, scouted=scouted, seconds=seconds)
        run = self._search(progress, stop)
        return dataclasses.replace(run, scouted=scouted, seconds=time.monotonic() - begun)

    def result(self, trials: Iterable[Trial], notes: Sequence[str] = (), **counts: Any) -> TuningRun:
        """These trials as a run, whose ``notes`` are added to those of the job."""
        return TuningRun(
            op=self.op,
            cases=self.cases,
            variants=tuple(self.spaces),
            spaces=self.spaces,
            device=self.device,
            model=self.model if self.device.counts else None,
            trials=(ordered := _ordered(trials, self.spaces, self.cases)),
            notes=(*self.notes, *notes, *_samples(ordered, self.cases), *disturbances(ordered)),
            store_path=self.store_path,
            **counts,
        )

    def _search(self, progress: Callable[[Progress], None] | None, stop: threading.Event | None) -> TuningRun:
        opened = self.store if isinstance(self.store, Store) else Store(self.store)
        options: dict[str, Any] = {"limits": self.limits, "retry_failed": self.retry_failed, "progress": progress}
        options |= {"total": self.total, "stop": stop, "isolation": self.isolation}
        attempts: Attempts
        if self.executor is None:
            attempts = Attempts(self.cases, self.device, self.model, opened, **options)
        else:
            attempts = ClusterAttempts(self.cases, self.device, self.model, opened, executor=self.executor, **options)
        interrupted = False
        notes: list[str] = []
        try:
            with attempts:
                for variant, space in self.spaces.items():
                    problem = self.cases[0].problem(arch=self.device.arch)
                    start = variant.default_config(placed(problem, self.device, self.model))
                    drive(
                        attempts,
                        variant,
                        space,
                        start if start in space else None,
                        self.strategy,
                        self.budget,
                        self.seed,
                    )
                if not self.device.counts:
                    notes = _remeasure(attempts, self.spaces, self.cases, opened)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            if opened is self.store:
                opened.release_all()
            else:
                opened.close()
        run = self.result(
            attempts.trials.values(),
            notes,
            new=attempts.new,
            reused=attempts.reused,
            interrupted=interrupted,
        )
        if not interrupted and self.record and run.best is not None:
            file, taken = table.record(
                table_entries(run),
                name=table.name_for(self.device, self.model),
                arch=self.device.arch,
                description=self.model.name if self.device.counts else self.device.description,
            )
            run = dataclasses.replace(run, table_path=file, recorded=len(taken))
        return run


def _remeasure(attempts: Attempts, spaces: Mapping[Variant, Space], cases: Sequence[Case], store: Store) -> list[str]:
    """Time the leaders of each case again, in turns, so that noise and drifting clocks do not choose the winner.

    Where that fails they keep their first times, and the note that is returned says so.
    """
    notes = []
    by_name = {variant.name: variant for variant in spaces}
    for case in cases:
        timed = [
            (trial.measured_seconds, trial)
            for trial in attempts.trials.values()
            if trial.case == case.name and trial.measured_seconds is not None
        ]
        timed.sort(key=lambda one: one[0])
        leaders = [trial for seconds, trial in timed if seconds <= LEADER_FACTOR * timed[0][0]][:LEADERS]
        if len(leaders) < 2 or all(trial.leader_samples for trial in leaders):
            continue
        configs = [(by_name[trial.variant], trial.config) for trial in leaders]
        try:
            taken = attempts.measurer.time_again(configs, case, LEADER_ROUNDS)
        except NotTimedError as error:
            notes.append(
                f"{case.name}: the {len(leaders)} fastest could not be timed again in turns ({error}). Their first "
                "times stand, and may be in the wrong order; the same call tries it again."
            )
            continue
        for trial, samples in zip(leaders, taken, strict=True):
            better = dataclasses.replace(trial, leader_samples=samples, measured_seconds=statistics.median(samples))
            attempts.trials[trial_key(trial)] = better
            variant = by_name[trial.variant]
            store.amend(attempts.identity(variant, trial.config, case).key, better)
    return notes


def _samples(trials: Sequence[Trial], cases: Sequence[Case]) -> list[str]:
    """Of each case that was sampled how well, what its values were judged on, and what speaks against them."""
    notes = []
    for case in cases:
        if not isinstance(case, SampledCase):
            continue
        tried = [trial for trial in trials if trial.case == case.name]
        found = [case.sampled(trial.counts) for trial in tried if trial.counts]
        notes.append(f"{case.name}: values were judged on {case.judged_on.name}, not at this size.")
        part = [one for one in found if one.blocks < one.of]
        if part:
            worst = max(part, key=lambda one: math.inf if one.error is None else one.error)
            notes[-1] += f" Counted by a sample of blocks: {len(part)} configurations (at worst {worst})."
        for because in sorted({one.because for one in found if one.because}):
            count = sum(one.because == because for one in found)
            notes[-1] += f" All blocks ran of {count}: {because}."
        few = min((case.touched(trial) for trial in tried if trial.counts), default=1.0)
        if few < _TOO_FEW:
            notes.append(
                f"{case.name}: a configuration reads and writes {few:.2f} times the least that there is to read and "
                "write. Does it compute all of this case? Values were judged on another."
            )
    return notes


_TOO_FEW = 0.9
"""Of the bytes that a case has at least; what touches fewer may not do all of it."""


def _ordered(trials: Iterable[Trial], spaces: Mapping[Variant, Space], cases: Sequence[Case]) -> tuple[Trial, ...]:
    """Trials by variant, place in its space (restricted ones last) and case, whoever finished first."""
    variants = {variant.name: (at, space) for at, (variant, space) in enumerate(spaces.items())}
    names = [case.name for case in cases]

    def place(trial: Trial) -> tuple:
        at, space = variants[trial.variant]
        inside = trial.config in space
        return at, not inside, space.index(trial.config) if inside else trial.config_text, names.index(trial.case)

    return tuple(sorted(trials, key=place))
