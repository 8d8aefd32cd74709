"""Replay: a recorded sweep answers instead of a device.

Everything above the measurement is the real code (space, strategy, ranking, tables, pictures). Nothing is compiled, run
or stored, and every label names the machine that the times come from.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.analysis.device_models import DeviceModel, device_models
from workbench.base.trials.trial import Trial, canonical
from workbench.errors import ArgumentError
from workbench.launch.devices import Device
from workbench.ops.op import Op
from workbench.ops.selection import listed
from workbench.ops.variant import Case, Config, Restriction, Variant
from workbench.tuning.attempts import Answers, Progress
from workbench.tuning.job import Options, TuningJob
from workbench.tuning.search import estimate_of, predicted
from workbench.tuning.space import Space
from workbench.tuning.sweep import Sweep, load

PREFIX = "replay:"


@dataclass(frozen=True)
class ReplayedCase:
    """A case of a recorded sweep, by name; ``record`` is its recorded description."""

    name: str
    label: str
    record: Mapping[str, Any] = field(hash=False)

    def problem(self, config: Config | None = None, arch: str = "") -> None:
        """Return None: a replay has no problem to solve."""

    def to_dict(self) -> dict:
        """Return the recorded description."""
        return dict(self.record)


@dataclass(frozen=True, eq=False)
class ReplayedVariant:
    """The variant of a sweep as it was recorded; today's variant of that name may differ."""

    op: str
    name: str
    language: str
    space: Mapping[str, tuple]
    source_hash: str
    start: Mapping[str, Any]

    def default_config(self, problem: Any) -> dict:
        """Return the configuration that the untuned rule picked when the sweep was recorded; empty if it is unknown."""
        return dict(self.start)


@dataclass(frozen=True, eq=False)
class ReplayedOp:
    """The op of a sweep, with its one variant and its one case."""

    name: str
    variants: tuple[ReplayedVariant, ...]
    cases: Mapping[str, ReplayedCase]


class ReplayedDevice:
    """A recorded sweep in the role of a device; ``op`` and ``model`` are those of the sweep."""

    name = "replay"

    def __init__(self, sweep: Sweep):
        self.sweep = sweep
        self.arch = sweep.arch
        self.description = f"replay of {sweep.name}"
        self.time_label = f"replayed: {sweep.label}"
        self.counts = bool(sweep.predicted_for)
        start = sweep.default_config or {}
        variant = ReplayedVariant(
            sweep.op, sweep.variant, sweep.language, dict(sweep.parameters), sweep.source_hash, start
        )
        case = ReplayedCase(sweep.case_name, sweep.case_label, sweep.case)
        self.op = ReplayedOp(sweep.op, (variant,), {case.name: case})

    @property
    def model(self) -> DeviceModel | None:
        """The device model that the times were predicted for; None for measured times."""
        return device_models().get(self.sweep.predicted_for or "")

    @property
    def store_path(self) -> Path:
        """The path of the sweep that the trials come from, or its name."""
        return self.sweep.path or Path(self.sweep.name)

    def trial(self, config: Config) -> Trial:
        """Return the recorded trial of a configuration, or a "restricted" one that says it was not recorded."""
        found = self.sweep.by_config.get(canonical(dict(config)))
        if found is not None:
            return found
        return Trial(
            op=self.sweep.op,
            variant=self.sweep.variant,
            language=self.sweep.language,
            case=self.sweep.case_name,
            config=dict(config),
            device=self.sweep.device,
            arch=self.sweep.arch,
            outcome="restricted",
            message=f"not in the recorded sweep {self.store_path}",
        )


AnyOp = Op | ReplayedOp
AnyVariant = Variant | ReplayedVariant
AnyCase = Case | ReplayedCase
AnyDevice = Device | ReplayedDevice
"""An op, variant, case or device of a run: the workbench's own, or one from a recording."""


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
}
"""Options of `tune` without meaning in a replay: the values that are allowed, and the reason to refuse others."""


def job_of(device: str, op: Any, cases: Any, variants: Any, options: Options) -> ReplayJob:
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
    return ReplayJob(
        op=replayed.op,
        cases=tuple(replayed.op.cases.values()),
        spaces={replayed.op.variants[0]: space},
        notes=(),
        device=replayed,
        model=replayed.model,
        options=replace(options, store=replayed.store_path, record=False),
    )


class ReplayJob(TuningJob):
    """A call of `tune` on a recorded sweep, its arguments validated."""

    def answers(self, progress: Callable[[Progress], None] | None, stop: threading.Event | None) -> Answers:
        """Return the sweep's answers."""
        return RecordedAnswers(self, progress, stop)


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
