"""Comparison of variants for several architectures: the code that each has, and its time by the model of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, model_of_arch
from workbench.base.frames import data_frame
from workbench.base.tables import Table
from workbench.base.trials.trial import Trial
from workbench.errors import ArgumentError, ConfigurationError, UnknownNameError
from workbench.ops.op import Op
from workbench.ops.variant import MACHINE_ARCHS, Case, Variant
from workbench.toolchain.architectures import plain_arch
from workbench.tuning.comparison import Comparison
from workbench.tuning.configured import Try

if TYPE_CHECKING:
    import pandas

    from workbench.launch.devices import Device

_COLUMNS = (
    "variant", "architecture", "correct", "registers", "shared memory", "occupancy", "warp instructions", "time",
    "on", "bound by",
)  # fmt: skip


@dataclass(frozen=True)
class ArchComparison(Comparison):
    """Comparison of variants for several architectures on the same inputs, one trial for each pair.

    ``str`` and notebooks show a row for each variant and architecture that it has code for.
    """

    def __getitem__(self, key: str | tuple[str, str]) -> Trial:
        """Return the trial of a variant and an architecture: ``comparison["cuda_mma", "sm_100a"]``.

        A variant that was compared for one architecture alone needs no second name.

        Raises:
            UnknownNameError: there is none, or several; lists the pairs there are.
        """
        name, arch = key if isinstance(key, tuple) else (key, None)
        found = [one for one in self.trials if one.variant == name and arch in (None, one.arch, plain_arch(one.arch))]
        if len(found) != 1:
            known = ", ".join(f"({one.variant!r}, {one.arch!r})" for one in self.trials)
            raise UnknownNameError("variant and architecture", repr(key), known, "Name one of these pairs.")
        return found[0]

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, indexed by variant and architecture. Needs pandas (``[lab]``)."""
        return data_frame(self.rows).set_index(["variant", "arch"])

    def __str__(self) -> str:
        return "\n".join(map(str, self.tables()))

    def tables(self) -> list[Table]:
        """Return a table with a row for each variant and architecture."""
        rows = [_row(trial) for trial in self.trials]
        marks = ["" if trial.ok else "failed" for trial in self.trials]
        why = [f"{one.variant}, {one.arch}: {one.outcome}: {one.message}" for one in self.trials if not one.ok]
        return [Table(_COLUMNS, rows, "hllrrlrrll", title=self.title, marks=marks, note="\n".join(why))]


def _row(trial: Trial) -> tuple[str, ...]:
    resources, counts = trial.resources, trial.counts
    held = resources.get("occupancy")
    return (
        trial.variant,
        trial.arch,
        "yes" if trial.ok else f"NO ({trial.outcome})",
        _text(resources.get("registers"), "{:,}"),
        _text(resources.get("shared_bytes"), "{:,}"),
        _text(held, "{:.0%}"),
        _text(counts.get("warp_instructions"), "{:,}"),
        _text(trial.seconds, "{:.2f} µs", 1e6),
        trial.predicted_for or "–",
        trial.prediction.get("bound_by", "–"),
    )


def _text(value: float | None, form: str, factor: float = 1) -> str:
    return "–" if value is None else form.format(factor * value if factor != 1 else value)


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
            raise ArgumentError("arch", repr(one), "each architecture once", "Leave the second one out.")
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
