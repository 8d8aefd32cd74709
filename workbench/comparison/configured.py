"""One variant on one case with one configuration: the given one, a tuned one, or that of the untuned rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, model_of_arch, placed
from workbench.base.trials.trial import Trial
from workbench.errors import ConfigurationError, UnknownNameError
from workbench.launch import devices
from workbench.ops.op import Op
from workbench.ops.tuned import recorded
from workbench.ops.variant import Case, Config, Variant
from workbench.tuning.measuring.attempt import attempted
from workbench.tuning.measuring.measure import evaluate
from workbench.tuning.result.table import name_for

if TYPE_CHECKING:
    from workbench.launch.devices import Device


@dataclass(frozen=True)
class ConfiguredTrial:
    """An attempt at one variant on one case, with the origin of its configuration."""

    variant: Variant
    trial: Trial
    minimum_bytes: int
    """Bytes that must cross memory once, at the configuration's page size."""
    origin: str
    """"given", "default", "tuned, LEVEL" with the level of `workbench.ops.tuned.TunedLookup`, "" without tunables."""


@dataclass(frozen=True)
class Try:
    """A variant to try on a case, for an architecture (None: that which it needs), with the GPU to predict for."""

    case: Case
    variant: Variant
    arch: str | None
    model: DeviceModel

    def __str__(self) -> str:
        return f"{self.variant.name} on {self.case.name}" + (f" for {self.arch}" if self.arch else "")


def able_variants(variants: Iterable[Variant], cases: Sequence[Case], where: Device) -> list[Variant]:
    """Return the variants whose untuned configuration is legal on one or more of the cases.

    On the simulator a variant is asked for the architecture that it needs.
    """

    def able(variant: Variant, case: Case) -> bool:
        try:
            return variant.able(variant.machine_problem(case) if where.counts else case.problem(arch=where.arch))
        except ConfigurationError:  # not one configuration is legal
            return False

    return [variant for variant in variants if any(able(variant, case) for case in cases)]


def checked_configs(configs: Mapping[str, Config] | None, variants: Iterable[Variant]) -> dict[str, Config]:
    """Return configurations by variant. Raises UnknownNameError for a variant that is not tried."""
    found, known = dict(configs or {}), [variant.name for variant in variants]
    for name in found:
        if name not in known:
            raise UnknownNameError("configs", repr(name), ", ".join(known) or "none", "Only these variants are tried.")
    return found


def attempt(op: Op, one: Try, where: Device, *, config: Config | None = None, tuned: bool = False) -> ConfiguredTrial:
    """Try a variant on a case and return the trial, whatever is wrong with it.

    On the simulator a variant gets the architecture that it needs, unless one is given, and is predicted for a GPU that
    it runs on. With ``tuned`` it runs with the configuration that is recorded for the case or one like it, if there is
    one.
    """
    variant, case, model = one.variant, one.case, one.model
    needed = one.arch or variant.machine_arch(case.problem(arch=where.arch))
    on = devices.simulator(needed) if where.counts else where
    problem, origin = placed(case.problem(arch=on.arch), on, model), "given"
    if config is None:
        try:
            found = recorded(op, variant, problem, name_for(on, model)) if tuned else None
            if found is None:
                config, origin = variant.default_config(problem), "default" if variant.space else ""
            else:
                config, origin = found.config, f"tuned, {found.level}"
        except ConfigurationError as error:  # not one is legal
            nothing = attempted(variant, {}, case, on, "restricted", message=str(error))
            return ConfiguredTrial(variant, nothing, case.minimum_bytes(problem), "")
    problem = case.problem(config, arch=on.arch)
    trial = evaluate(variant, config, case, on, model=_model_of(variant, problem, model))
    return ConfiguredTrial(variant, trial, case.minimum_bytes(problem), origin)


def _model_of(variant: Variant, problem: Any, model: DeviceModel) -> DeviceModel:
    """Return the GPU to predict for: one of the architecture that a variant was compiled for, if it needs that."""
    runs = variant.runs_on(replace(problem, arch=model.arch))
    return model if runs else model_of_arch(problem.arch) or model
