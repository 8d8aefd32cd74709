"""A validated call of `tune`; `workbench.tuning.searching` runs it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel
from workbench.base.processes.handing_out import check_executor
from workbench.base.trials.store import Store, default_path
from workbench.base.trials.trial import Trial
from workbench.errors import UnknownNameError
from workbench.ops.sampled_case import SampledCase
from workbench.tuning.measuring.attempt import ISOLATION, Limits, Setting
from workbench.tuning.measuring.gpu_state import disturbances
from workbench.tuning.result.run import TuningRun
from workbench.tuning.search.budget import Budget
from workbench.tuning.search.space import Space, Strategy

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.op import Op
    from workbench.ops.variant import Case, Variant


@dataclass(frozen=True)
class Options:
    """Options of `tune`, named like its arguments, with strategy and budget looked up.

    Raises the errors of `check_executor`, and UnknownNameError for an ``isolation`` that is not in
    `workbench.tuning.measuring.attempt.ISOLATION`.
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
    prove: bool = False
    exact: bool = False

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
    def setting(self) -> Setting:
        """Setting in which the configurations are measured."""
        return Setting(self.device, self.model, self.options.limits, self.options.isolation, self.gpu)

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


@dataclass(frozen=True)
class Scouting:
    """A tuning run of one variant, ``job``, whose counts give ``space`` its ``estimate`` for ``model``."""

    job: TuningJob
    space: Space
    model: DeviceModel

    @property
    def name(self) -> str:
        """The variant, and the cases that it is scouted on."""
        (variant,) = self.job.spaces
        return f"{variant.name} on {', '.join(case.name for case in self.job.cases)}"

    @property
    def note(self) -> str:
        """The note of the run on where the order of the search comes from."""
        return f"ordered by the times of {self.name}, predicted for {self.model.name}"


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
