"""Variants to try for several architectures: those that each has code for, and the GPU to predict for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, model_of_arch
from workbench.base.architectures import plain_arch
from workbench.comparison.configured import Try
from workbench.errors import ArgumentError, ConfigurationError
from workbench.ops.op import Op
from workbench.ops.variant import MACHINE_ARCHS, Case, Variant

if TYPE_CHECKING:
    from workbench.launch.devices import Device


def checked_archs(arch: str | Sequence[str], where: Device, model: Any) -> dict[str, DeviceModel]:
    """Return the architectures to compare, each with the GPU to predict for.

    Raises ArgumentError for a device that measures, a model beside it, none at all, one twice and one that the machine
    does not stand for.
    """
    given = [arch] if isinstance(arch, str) else list(arch)
    if not where.counts:
        raise ArgumentError("arch", given, "None on a GPU", 'It has an architecture; pass device="sim".')
    if model is not None:
        raise ArgumentError("model", model, "None with arch", "Times are predicted for a GPU of each architecture.")
    found: dict[str, DeviceModel] = {}
    for one in given:
        plain = plain_arch(one)
        gpu = model_of_arch(plain)
        if plain not in MACHINE_ARCHS or gpu is None:
            raise ArgumentError("arch", repr(one), ", ".join(MACHINE_ARCHS), "Name some of these.")
        if plain in map(plain_arch, found):
            raise ArgumentError("arch", repr(one), "each architecture once", "Leave out the repetition.")
        found[one] = gpu
    if not found:
        raise ArgumentError("arch", given, "one architecture or more", f"Name some of {', '.join(MACHINE_ARCHS)}.")
    return found


def tries_of_archs(
    op: Op, cases: Sequence[Case], named: Sequence[Variant] | None, archs: dict[str, DeviceModel]
) -> list[Try]:
    """Return what to try: each variant on each case, for the architectures that it has code for.

    Raises ArgumentError for a named variant that has code for none of them, and if no variant has any.
    """
    tries = list(_tries(op.variants if named is None else named, cases, archs))
    without = [one.name for one in named or () if one not in [each.variant for each in tries]]
    if without or not tries:
        names = ", ".join(without or [one.name for one in op.variants])
        allowed = f"variants with code for one of {', '.join(archs)}"
        raise ArgumentError("variants", names, allowed, "Name other variants, or other architectures in arch.")
    return tries


def _tries(variants: Sequence[Variant], cases: Sequence[Case], archs: dict[str, DeviceModel]) -> Iterator[Try]:
    for case in cases:
        for variant in variants:
            for arch, model in archs.items():
                if variant.compiles and _has_code(variant, case, arch):
                    yield Try(case, variant, arch, model)


def _has_code(variant: Variant, case: Case, arch: str) -> bool:
    problem = case.problem(arch=arch)
    try:
        return variant.runs_on(problem) and variant.able(problem)
    except ConfigurationError:  # not one configuration is legal
        return False
