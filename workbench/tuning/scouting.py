"""What the strategy "predicted" goes by: the model's times, from runs that cost less than those that are searched.

On a GPU those are the simulator's counts of the same case. On the simulator the prediction is what is searched for, so
there a smaller case of the op scouts: what compiles takes no longer to compile there, but it runs in a fraction of the
time. Scouting is a tuning run of its own and kept in the store, so it is paid once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from workbench.errors import ArgumentError
from workbench.tuning.attempts import Progress
from workbench.tuning.calibration import calibrated_model
from workbench.tuning.device_models import DeviceModel
from workbench.tuning.measure import with_prediction
from workbench.tuning.space import Space
from workbench.tuning.trial import canonical, geometric_mean

SMALLER = 0.5
"""A case scouts for another if it moves at most this share of its bytes."""


def scout(
    op,
    cases: Sequence,
    spaces: Mapping[object, Space],
    device,
    model: DeviceModel,
    *,
    store=None,
    progress: Callable[[Progress], None] | None = None,
    limits=None,
    **where,
) -> list[str]:
    """Give each space its ``estimate``, and return a note for each on what that rests.

    ``where`` is the ``isolation`` and the ``executor`` of `tune`.

    Raises ArgumentError where a variant has no smaller case of the same layout, dtype and features to scout on, and
    KeyboardInterrupt if that is how scouting ended.
    """
    from workbench.tuning.tune import tune

    notes = []
    if device.name == "cuda":
        model = calibrated_model(model)
    for variant, space in spaces.items():
        scouted = cases if device.name == "cuda" else [smaller_case(op, variant, cases, device.arch)]
        counted_for = None if device.name == "cuda" else model
        options = {"store": store, "progress": progress, "limits": limits, "record": False, "model": counted_for}
        run = tune(op, scouted, variant, device="sim", **options, **where)
        if run.interrupted:
            raise KeyboardInterrupt  # it has been said how to go on
        seconds: dict[str, list[float]] = {}
        for trial in run.trials:
            found = with_prediction(trial, model).seconds if trial.counts else None
            seconds.setdefault(canonical(dict(trial.config)), []).append(math.inf if found is None else found)
        space.estimate = _estimate({config: geometric_mean(times) for config, times in seconds.items()})
        names = ", ".join(case.name for case in scouted)
        notes.append(f"{variant.name}: ordered by times predicted for {model.name} on {names}")
    return notes


def smaller_case(op, variant, cases: Sequence, arch: str):
    """The smallest case of the op that asks the same of a variant as all of ``cases``, and far less work.

    Raises ArgumentError where there is none.
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


def _kind(problem) -> tuple:
    return problem.layout, problem.dtype, tuple(problem.features)


def _estimate(seconds: Mapping[str, float]) -> Callable[[Mapping], float]:
    return lambda config: seconds.get(canonical(dict(config)), math.inf)
