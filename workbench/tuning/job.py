"""A validated call of `tune`: it searches, times the leaders again and records the winners."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from workbench.analysis.device_models import DeviceModel, placed
from workbench.base.processes.handing_out import check_executor
from workbench.base.trials.store import Store, default_path
from workbench.base.trials.trial import Trial, canonical, geometric_mean
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.sampled_case import SampledCase
from workbench.tuning import table
from workbench.tuning.attempts import Answers, Attempts, Progress
from workbench.tuning.gpu_choice import use_gpu
from workbench.tuning.gpu_state import disturbances
from workbench.tuning.isolation import ISOLATION, NotTimedError
from workbench.tuning.measure import Limits
from workbench.tuning.run import TuningRun, table_entries
from workbench.tuning.search import Budget, Strategy
from workbench.tuning.space import Space

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.op import Op
    from workbench.ops.variant import Case, Config, Variant
    from workbench.tuning.scouting import Scouting

LEADERS, LEADER_FACTOR, LEADER_ROUNDS = 8, 1.05, 30
"""Largest number of leaders that a GPU times again in turns, their largest factor to the best, and the rounds."""


@dataclass(frozen=True)
class Options:
    """Options of `tune`, named like its arguments, with strategy and budget looked up.

    Raises the errors of `check_executor`, and UnknownNameError for an ``isolation`` that is not in
    `workbench.tuning.isolation.ISOLATION`.
    """

    strategy: Strategy
    budget: Budget
    store: str | Path | Store | None
    record: bool
    model: str | DeviceModel | None
    retry_failed: bool
    seed: int
    limits: Limits | None
    executor: Executor | None
    isolation: str
    sample: int | None
    judged_on: str | Case | None

    def __post_init__(self) -> None:
        check_executor(self.executor)
        if self.isolation not in ISOLATION:
            raise UnknownNameError("isolation", repr(self.isolation), ", ".join(ISOLATION), "Choose one of these.")


@dataclass(frozen=True)
class TuningJob:
    """Subject and options of a search.

    ``scoutings`` are the runs that precede it for the strategy "predicted".
    """

    op: Op
    cases: tuple[Case, ...]
    spaces: Mapping[Variant, Space]
    notes: tuple[str, ...]
    device: Device
    model: DeviceModel
    """Device model for which times are predicted, or the one nearest to the GPU."""
    options: Options
    scoutings: tuple[Scouting, ...] = ()
    gpu: int | None = None
    """Number of the GPU, if the device is one."""

    @property
    def store_path(self) -> Path:
        """File of the store that keeps every attempt."""
        store = self.options.store
        return store.path if isinstance(store, Store) else default_path() if store is None else Path(store)

    @property
    def total(self) -> int | None:
        """Largest number of attempts that the search makes; None if its budget is a time."""
        budget = self.options.budget
        if math.isfinite(budget.seconds):
            return None
        return sum(int(min(len(space), budget.configurations)) for space in self.spaces.values()) * len(self.cases)

    def run(self, progress: Callable[[Progress], None] | None, stop: threading.Event | None = None) -> TuningRun:
        """Scout, search, and record the winners. Setting ``stop`` ends the run as Ctrl-C does."""
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
        """Return a run of these trials; ``notes`` are added to the notes of the job."""
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

    def answers(self, progress: Callable[[Progress], None] | None, stop: threading.Event | None) -> Answers:
        """Return the object that answers the strategy's questions."""
        return Attempts(self, progress, stop)

    def _search(self, progress: Callable[[Progress], None] | None, stop: threading.Event | None) -> TuningRun:
        answers = self.answers(progress, stop)
        interrupted = False
        notes: list[str] = []
        try:
            with answers:
                for variant, space in self.spaces.items():
                    problem = self.cases[0].problem(arch=self.device.arch)
                    start = variant.default_config(placed(problem, self.device, self.model))
                    drive(answers, variant, space, start if start in space else None, self.options)
                if isinstance(answers, Attempts) and not self.device.counts:
                    notes = _remeasure(answers, list(self.spaces), self.cases)
        except KeyboardInterrupt:
            interrupted = True
        counts = {"new": answers.new, "reused": answers.reused, "interrupted": interrupted}
        run = self.result(answers.trials.values(), notes, **counts)
        if not interrupted and self.options.record and run.best is not None:
            file, taken = table.record(
                table_entries(run),
                name=table.name_for(self.device, self.model),
                arch=self.device.arch,
                description=self.model.name if self.device.counts else self.device.description,
            )
            run = dataclasses.replace(run, table_path=file, recorded=len(taken))
        return run


def drive(answers: Answers, variant: Variant, space: Space, start: Config | None, options: Options) -> None:
    """Let the strategy search one variant's space until it ends or its budget is spent.

    ``start`` is the untuned default configuration, None if it is not in the space. The random numbers depend only on
    the seed and the variant's name, so that a run can be repeated. Raises ArgumentError for a strategy that is no
    generator function, or yields anything but lists.
    """
    deadline = time.monotonic() + options.budget.seconds
    left = options.budget.configurations
    batches = options.strategy(space, start, random.Random(f"{options.seed} {variant.name}"))
    if not isinstance(batches, Generator):
        _refuse(f"a function that returns {type(batches).__name__}")
    try:
        batch = next(batches)
        while left > 0:
            if not isinstance(batch, Sequence):
                _refuse(f"a generator that yields {type(batch).__name__}")
            taken = batch[: int(min(left, len(batch)))]
            left -= len(taken)
            if not answers.run(variant, taken, deadline) or len(taken) < len(batch):
                return
            batch = batches.send([_score(answers, variant, config) for config in taken])
    except StopIteration:
        return
    finally:
        batches.close()


def _refuse(got: str) -> NoReturn:
    allowed = "a generator function that yields lists of configurations"
    raise ArgumentError("strategy", got, allowed, "See workbench.tuning.search for examples.")


def _score(answers: Answers, variant: Variant, config: Config) -> float:
    """Return the geometric mean of a configuration's times over the cases; infinity unless correct in all of them."""
    key = canonical(dict(config))
    times = [answers.trials[variant.name, case.name, key].seconds for case in answers.cases]
    return geometric_mean(math.inf if seconds is None else seconds for seconds in times)


def _remeasure(attempts: Attempts, variants: Sequence[Variant], cases: Sequence[Case]) -> list[str]:
    """Time the leaders of each case again, in turns, so that noise and drifting clocks do not choose the winner.

    Where that fails they keep their first times, and the returned notes report it.
    """
    notes = []
    by_name = {variant.name: variant for variant in variants}
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
        try:
            attempts.time_again([(by_name[trial.variant], trial) for trial in leaders], case, LEADER_ROUNDS)
        except NotTimedError as error:
            notes.append(
                f"{case.name}: the {len(leaders)} fastest could not be timed again in turns ({error}). Their first "
                "times stand, and may be in the wrong order; the same call tries it again."
            )
    return notes


def _samples(trials: Sequence[Trial], cases: Sequence[Case]) -> list[str]:
    """Return notes on each sampled case: the quality of its sample, the case that judged its values, and doubts."""
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
            notes[-1] += f" All blocks ran in {count} configurations: {because}."
        few = min((case.touched(trial) for trial in tried if trial.counts), default=1.0)
        if few < _TOO_FEW:
            notes.append(
                f"{case.name}: a configuration reads and writes {few:.2f} times the least that there is to read and "
                "write. Does it compute all of this case? Values were judged on another."
            )
    return notes


_TOO_FEW = 0.9
"""Share of a case's minimum bytes below which a note doubts that a configuration does all of the work."""


def _ordered(trials: Iterable[Trial], spaces: Mapping[Variant, Space], cases: Sequence[Case]) -> tuple[Trial, ...]:
    """Return the trials ordered by variant, place in the space (restricted ones last) and case."""
    variants = {variant.name: (at, space) for at, (variant, space) in enumerate(spaces.items())}
    names = [case.name for case in cases]

    def place(trial: Trial) -> tuple:
        at, space = variants[trial.variant]
        inside = trial.config in space
        return at, not inside, space.index(trial.config) if inside else trial.config_text, names.index(trial.case)

    return tuple(sorted(trials, key=place))
