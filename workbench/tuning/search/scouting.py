"""Scouting: the runs that give the strategy "predicted" its order, at less cost than the runs that are searched.

For a search on a GPU the simulator counts the same case. For a search on the simulator the prediction is the result
itself, so a smaller case of the op scouts: it takes as long to compile but runs in a fraction of the time. Scouting is
a tuning run of its own and kept in the store, so it is paid for once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import device_model
from workbench.errors import ArgumentError
from workbench.tuning.job import Scouting, TuningJob
from workbench.tuning.recorded.calibration import calibrated_model
from workbench.tuning.search import strategies as search
from workbench.tuning.search.budget import Budget
from workbench.tuning.search.space import Space

if TYPE_CHECKING:
    from workbench.ops.op import Op
    from workbench.ops.variant import Case, Variant

SMALLER = 0.5
"""Largest size of a case that scouts for another, as a share of the other's bytes moved."""


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
    options = dataclasses.replace(
        job.options, strategy=search.exhaustive, budget=Budget(), record=False, prove=False, exact=False
    )
    found = []
    for variant, space in job.spaces.items():
        cases = job.cases if on_gpu else (smaller_case(job.op, variant, job.cases, device.arch),)
        small = Space.of(variant, *cases, arch=device.arch)
        if not len(small):
            what = f"{variant.name} on the simulator ({device.arch}): {small.explain_emptiness()}"
            raise ArgumentError(
                "strategy", "'predicted'", "another strategy, as no smaller case can be tried first", what
            )
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
            "another strategy on the simulator, whose times are predictions anyway",
            f"{op.name} has no case like {cases[0].name} and at most half its size to scout on; use 'bayesian'.",
        )
    return min(fitting)[2]


def _kind(problem: Any) -> tuple:
    return problem.layout, problem.dtype, tuple(problem.features)
