"""Recorded stand-ins for a device, an op, its variant and its case, with names and figures from a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.analysis.device_models import DeviceModel, device_models
from workbench.base.trials.trial import Trial, canonical
from workbench.launch.devices import Device
from workbench.ops.op import Op
from workbench.ops.variant import Case, Config, Variant
from workbench.tuning.recorded.sweep_record import Sweep


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
