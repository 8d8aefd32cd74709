"""Parse and validate the arguments of `tune`: the device, its model, and the spaces."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.analysis.device_models import DeviceModel, device_model, model_of_arch, model_of_gpu
from workbench.errors import ArgumentError
from workbench.ops.op import Op
from workbench.ops.variant import MACHINE_ARCHS, Case, Variant
from workbench.tuning.search.space import Space

if TYPE_CHECKING:
    from workbench.launch.devices import Device


def model_for(variants: Sequence[Variant] | None, cases: Sequence[Case]) -> DeviceModel | None:
    """Return the first model of the architecture that all named variants need, or None if the default model will do."""
    if variants is None:
        return None
    (arch, *others) = {variant.machine_arch(case.problem()) for variant in variants for case in cases}
    return None if others or arch == MACHINE_ARCHS[0] else model_of_arch(arch)


def device_of(
    device: str | Device, model: str | DeviceModel | None, usual: DeviceModel | None = None
) -> tuple[Device, DeviceModel]:
    """Return the device to run on, which may be given by name, and the model to predict for, by default ``usual``."""
    from workbench.launch import devices

    found = devices.get(device) if isinstance(device, str) else device
    if not found.counts:
        if model is not None:
            raise ArgumentError("model", model, "None on a GPU", "Times are measured there, not predicted.")
        gpu = "" if found.counts else sys.modules["torch"].cuda.get_device_name()
        return found, model_of_gpu(gpu) or device_model()
    model = device_model(usual if model is None else model)
    if found.arch != model.arch:
        from workbench.launch.sim import Simulator

        found = Simulator(arch=model.arch)
    return found, model


def spaces_of(
    op: Op, variants: Sequence[Variant] | None, cases: Sequence[Case], arch: str
) -> tuple[dict[Variant, Space], list[str]]:
    """Return the space of each variant that can be tuned, and a note on each that was left out.

    Raises ArgumentError for a variant that was asked for and has no legal configuration, naming the rules.
    """
    named = variants is not None
    chosen = op.variants if variants is None else variants
    spaces, notes = {}, []
    for variant in chosen:
        if not named and not variant.space:
            continue
        space = Space.of(variant, *cases, arch=arch)
        if len(space):
            spaces[variant] = space
            continue
        note = f"{variant.name}: {_emptiness(space, variant, cases, arch)}"
        if named:
            raise ArgumentError("variants", variant.name, "variants with a legal configuration", note)
        notes.append(note)
    if not spaces:
        what = "; ".join(notes) or f"{op.name} has {', '.join(variant.name for variant in op.variants)}"
        raise ArgumentError("variants", "no variant", "variants with something to tune and a legal configuration", what)
    return spaces, notes


def _emptiness(space: Space, variant: Variant, cases: Sequence[Case], arch: str) -> str:
    """Return, for an error message, the reason why a space is empty; of several cases each has its own."""
    if len(cases) == 1:
        return space.explain_emptiness()
    alone = []
    for case in cases:
        own = Space.of(variant, case, arch=arch)
        text = f"{case.name} alone has {len(own) or 'none'} of {own.raw_size}"
        most = max(own.restrictions, key=lambda rule: own.rejected[rule.name])
        taken = own.rejected[most.name]
        alone.append(text + (f" ({most.name} ({most.rule}) forbids most: {taken})" if taken else ""))
    return f"no configuration is legal for all of these cases: {'; '.join(alone)}"


def legal_for_some(spaces: Mapping[Variant, Space], cases: Sequence[Case], arch: str) -> list[str]:
    """Return a note for each variant with configurations that are legal on some of several cases and not on all."""
    notes = []
    for variant, space in spaces.items() if len(cases) > 1 else ():
        more = {case.name: len(Space.of(variant, case, arch=arch)) - len(space) for case in cases}
        if any(more.values()):
            each = ", ".join(f"{count} more on {name}" for name, count in more.items() if count)
            notes.append(
                f"{variant.name}: candidates are the configurations that are legal on every case, {len(space)}; "
                f"a case that is tuned alone has {each}."
            )
    return notes


def left_out_of(spaces: Mapping[Variant, Space], cases: Sequence[Case], small: Sequence[Case], arch: str) -> list[str]:
    """Return a note for each variant with configurations that are legal on the cases but not on the small case.

    The small case is the one that values are judged on.
    """
    notes = []
    for variant, space in spaces.items() if small else ():
        more = len(Space.of(variant, *cases, arch=arch)) - len(space)
        if more:
            names = ", ".join(case.name for case in small)
            notes.append(f"{variant.name}: {more} more configurations are not legal on {names}, which judges values.")
    return notes
