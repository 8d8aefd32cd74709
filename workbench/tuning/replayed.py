"""What stands in a replay where a device, an op, its variant and its case stand: names and figures of a recording."""

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
from workbench.tuning.sweep_record import Sweep


@dataclass(frozen=True)
class ReplayedCase:
    """A case by name: what it held is in ``record``."""

    name: str
    label: str
    record: Mapping[str, Any] = field(hash=False)

    def problem(self, config: Config | None = None, arch: str = "") -> None:
        """Nothing: a replay solves no problem."""

    def to_dict(self) -> dict:
        """The record."""
        return dict(self.record)


@dataclass(frozen=True, eq=False)
class ReplayedVariant:
    """The variant of a sweep, as it was then; the present one of that name may be another."""

    op: str
    name: str
    language: str
    space: Mapping[str, tuple]
    source_hash: str
    start: Mapping[str, Any]

    def default_config(self, problem: Any) -> dict:
        """The untuned rule's choice when the sweep was recorded; empty where it is not known."""
        return dict(self.start)


@dataclass(frozen=True, eq=False)
class ReplayedOp:
    """The op of a sweep: its one variant on its one case."""

    name: str
    variants: tuple[ReplayedVariant, ...]
    cases: Mapping[str, ReplayedCase]


class ReplayedDevice:
    """Stands where a device stands; ``op`` and ``model`` are those of the sweep."""

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
        """The device model that the times were predicted for; None for measured ones."""
        return device_models().get(self.sweep.predicted_for or "")

    @property
    def store_path(self) -> Path:
        """Where the trials are from."""
        return self.sweep.path or Path(self.sweep.name)

    def trial(self, config: Config) -> Trial:
        """The recorded trial, or one that says that there is none."""
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
"""What a run may be about: the workbench's, or a recording's."""
