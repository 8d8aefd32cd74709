"""Scouting: the runs that give the strategy "predicted" its order, at less cost than the runs that are searched.

For a search on a GPU the simulator counts the same case. For a search on the simulator the prediction is the result
itself, so a smaller case of the op scouts: it takes as long to compile but runs in a fraction of the time. Scouting is
a tuning run of its own and kept in the store, so it is paid for once.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.base.trials.trial import canonical, geometric_mean
from workbench.errors import ArgumentError
from workbench.tuning import search
from workbench.tuning.attempts import Progress
from workbench.tuning.calibration import calibrated_model
from workbench.tuning.measure import with_prediction
from workbench.tuning.run import TuningRun
from workbench.tuning.space import Space

if TYPE_CHECKING:
    from workbench.ops.op import Op
    from workbench.ops.variant import Case, Config, Variant
    from workbench.tuning.job import TuningJob

SMALLER = 0.5
"""Largest size of a case that scouts for another, as a share of the other's bytes moved."""


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

    def run(self, progress: Callable[[Progress], None] | None = None, stop: threading.Event | None = None) -> TuningRun:
        """Scout and set the space's estimate.

        An interrupted scouting sets none; the same call again goes on from where it ended.
        """

        def tell(attempt: Progress) -> None:
            if progress is not None:
                progress(dataclasses.replace(attempt, scouting=self.name))

        run = self.job.run(tell, stop)
        if run.interrupted:
            return run
        seconds: dict[str, list[float]] = {}
        for trial in run.trials:
            found = with_prediction(trial, self.model).seconds if trial.counts else None
            seconds.setdefault(canonical(dict(trial.config)), []).append(math.inf if found is None else found)
        self.space.estimate = _estimate({config: geometric_mean(times) for config, times in seconds.items()})
        return run


def scoutings(job: TuningJob) -> tuple[Scouting, ...]:
    """Return the runs that must precede a job with the strategy "predicted": one for each of its variants.

    Raises ArgumentError if a variant has no smaller case of the same layout, dtype and features to scout on, or no
    configuration that is legal on the simulator.
    """
    from workbench.launch.sim import Simulator

    on_gpu = not job.device.counts
    counted_for = device_model() if on_gpu else job.model
    device = Simulator(arch=counted_for.arch) if on_gpu else job.device
    model = calibrated_model(job.model) if on_gpu else job.model
    options = dataclasses.replace(job.options, strategy=search.exhaustive, budget=search.Budget(), record=False)
    found = []
    for variant, space in job.spaces.items():
        cases = job.cases if on_gpu else (smaller_case(job.op, variant, job.cases, device.arch),)
        small = Space.of(variant, *cases, arch=device.arch)
        if not len(small):
            what = f"{variant.name} on the simulator ({device.arch}): {small.explain_emptiness()}"
            raise ArgumentError("strategy", "'predicted'", "another, as nothing can be scouted", what)
        own = dataclasses.replace(
            job,
            cases=cases,
            spaces={variant: small},
            device=device,
            model=counted_for,
            options=options,
            notes=(),
        )
        found.append(Scouting(own, space, model))
    return tuple(found)


def smaller_case(op: Op, variant: Variant, cases: Sequence[Case], arch: str) -> Case:
    """Return the smallest case of the op that is like all of ``cases`` but at most half their size.

    Alike are cases with the same layout, dtype and features. Raises ArgumentError if there is none.
    """
    wanted = [case.problem(arch=arch) for case in cases]
    least = min(case.minimum_bytes(problem) for case, problem in zip(cases, wanted, strict=True))
    fitting = []
    for case in op.cases.values():
        problem = case.problem(arch=arch)
        alike = all(_kind(problem) == _kind(other) for other in wanted)
        size = case.minimum_bytes(problem)
        if alike and size <= SMALLER * least and len(Space.of(variant, case, arch=arch)):
            fitting.append((size, case.name, case))
    if not fitting:
        raise ArgumentError(
            "strategy",
            "'predicted'",
            "another on the simulator, where the prediction is what is searched for",
            f"{op.name} has no case like {cases[0].name} and at most half its size to scout on; take 'bayesian'.",
        )
    return min(fitting)[2]


def _kind(problem: Any) -> tuple:
    return problem.layout, problem.dtype, tuple(problem.features)


def _estimate(seconds: Mapping[str, float]) -> Callable[[Config], float]:
    return lambda config: seconds.get(canonical(dict(config)), math.inf)
