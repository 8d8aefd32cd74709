"""Replay: a recorded sweep answers instead of a device.

Everything above the measurement is the real code (space, strategy, ranking, tables, pictures). Nothing is compiled, run
or stored, and every label names the machine that the times come from.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.errors import ArgumentError
from workbench.ops.selection import listed
from workbench.ops.variant import Config, Restriction
from workbench.tuning.job import Options, TuningJob
from workbench.tuning.measuring.answers import Answers
from workbench.tuning.measuring.attempt import Progress
from workbench.tuning.recorded.replayed import ReplayedDevice
from workbench.tuning.recorded.sweep import load
from workbench.tuning.recorded.sweep_record import Sweep
from workbench.tuning.search.space import Space
from workbench.tuning.search.strategies import estimate_of, predicted

PREFIX = "replay:"


def space_of(sweep: Sweep) -> Space:
    """Return the recorded configurations as a space: the points of the parameter grid that the sweep holds."""
    held = {tuple(trial.config.values()) for trial in sweep.trials}
    names = tuple(sweep.parameters)
    recorded = Restriction(
        "recorded",
        "the sweep holds this configuration",
        lambda config, problem: tuple(config[name] for name in names) in held,
    )
    return Space.holding(sweep.parameters, recorded, (trial.config for trial in sweep.trials))


MEANINGLESS = {
    "model": ((None,), "Its times were recorded; they are not predicted anew."),
    "store": ((None,), "Nothing is stored; the rows are those of the recording."),
    "retry_failed": ((False,), "Nothing is tried; what failed then stays so."),
    "limits": ((None,), "Nothing is compiled or run that might have to be stopped."),
    "executor": ((None,), "The recording answers; there is nothing to compute."),
    "isolation": (("auto", "none"), "Nothing is measured; the recording answers."),
    "sample": ((None,), "Nothing is run; the recording answers."),
    "judged_on": ((None,), "Nothing is run; the recording answers."),
    "prove": ((False,), "Nothing is compiled; the recording answers."),
    "exact": ((False,), "Nothing is run; the recording answers."),
}
"""Options of `tune` without meaning in a replay: the values that are allowed, and the reason to refuse others."""


def job_of(device: str, op: Any, cases: Any, variants: Any, options: Options) -> TuningJob:
    """Return the tuning job for the device ``"replay:FILE"``.

    FILE is a path, or the name of a sweep that comes with the package. Raises ArgumentError if op, cases or variants
    name something that the sweep does not hold, if an option in `MEANINGLESS` has another value than those allowed, and
    for the strategy "predicted"; UnknownNameError or StoreError if there is no such sweep.
    """
    replayed: Any = ReplayedDevice(load(device.removeprefix(PREFIX)))  # plays a device, and its parts an op's parts
    sweep = replayed.sweep
    asked = {"op": (op, sweep.op), "cases": (cases, sweep.case_name), "variants": (variants, sweep.variant)}
    for what, (given, held) in asked.items():
        names = [getattr(one, "name", one) for one in listed(given) if one is not None]
        if any(name != held for name in names):
            remedy = f"It holds {sweep.op}/{sweep.variant} on {sweep.case_name}; record another sweep for others."
            raise ArgumentError(what, ", ".join(map(str, names)), f"{held!r}, which {sweep.name} holds", remedy)
    for what, (allowed, why) in MEANINGLESS.items():
        given = getattr(options, what)
        if given not in allowed:
            shown = given if isinstance(given, str | bool | int | Path) else type(given).__name__
            raise ArgumentError(what, shown, f"{' or '.join(map(str, allowed))} in a replay", why)
    space = space_of(sweep)
    if options.strategy is predicted:
        estimate_of(space)
    return TuningJob(
        op=replayed.op,
        cases=tuple(replayed.op.cases.values()),
        spaces={replayed.op.variants[0]: space},
        notes=(),
        device=replayed,
        model=replayed.model,
        options=replace(options, store=replayed.store_path, record=False),
    )


class RecordedAnswers(Answers):
    """Answers from a sweep; each configuration is looked up."""

    def __init__(self, job: TuningJob, progress: Callable[[Progress], None] | None, stop: threading.Event | None):
        super().__init__(job, progress, stop)
        self._device: Any = job.device

    def run(self, variant: Any, configs: Iterable[Config], deadline: float = math.inf) -> bool:
        """Look configurations up; return False if ``deadline`` (time.monotonic) came before all were done."""
        for config in configs:
            self._heed_stop()
            if time.monotonic() >= deadline:
                return False
            self.reused += 1
            self._keep(self._device.trial(config))
        return True
