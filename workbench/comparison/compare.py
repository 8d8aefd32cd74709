"""The function `compare`, which tries an op's variants side by side, on one case or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.base.argument_kinds import checked_kinds
from workbench.base.progress import tracked
from workbench.comparison.arch_tries import checked_archs, tries_of_archs
from workbench.comparison.compared_cases import ComparedCases
from workbench.comparison.comparison import ArchComparison, Comparison
from workbench.comparison.configured import ConfiguredTrial, Try, able_variants, attempt, checked_configs
from workbench.launch import devices
from workbench.ops import registry
from workbench.ops.op import Op
from workbench.ops.sampled_case import sampled
from workbench.ops.selection import cases_of, variants_of
from workbench.ops.variant import Case, Config, Variant

if TYPE_CHECKING:
    from workbench.analysis.exact import Beside

__all__ = ["ComparedCases", "Comparison", "compare"]


class _Compare(Protocol):
    """The type of `compare`, whose result depends on ``case``."""

    @overload
    def __call__(self, op: str | Op, case: str | Case | None = None, *arguments: Any, **options: Any) -> Comparison: ...
    @overload
    def __call__(self, op: str | Op, case: Sequence[str | Case], *arguments: Any, **options: Any) -> ComparedCases: ...


def _two_results(function: Callable[..., Comparison | ComparedCases]) -> _Compare:
    return cast("_Compare", function)


@_two_results
@checked_kinds
def compare(
    op: str | Op,
    case: str | Case | Sequence[str | Case] | None = None,
    variants: str | Variant | Sequence[str | Variant] | None = None,
    device: str = "auto",
    *,
    configs: Mapping[str, Config] | None = None,
    tuned: bool = False,
    model: str | DeviceModel | None = None,
    sample: int | None = None,
    judged_on: str | Case | None = None,
    arch: str | Sequence[str] | None = None,
    exact: bool = False,
) -> Comparison | ComparedCases:
    """Run several variants of an op on the same inputs and compare them side by side.

    Of several cases each is compared on its own, with the variants that can run it::

        wb.compare(op, ["small", "large"]).save("base.json")

    Of several architectures each variant is compared on all for which it has code, predicted for a GPU of each::

        wb.compare(op, arch=("sm_80", "sm_90a", "sm_100a", "sm_120a"))

    Args:
        op: its name, e.g. ``"paged_attention"``, or the op.
        case: name or value of a case, or several in a list; default: the op's quick one.
        variants: name or value, or several; default: every variant that can run the case.
        device: "auto", "sim" or "cuda". The simulator runs code for sm_80; a variant that needs a newer architecture
            gets that, and the table shows it.
        configs: variant name -> configuration; default: the variant's untuned one.
        tuned: use the configuration that is recorded for the case or one like it, for each variant that has one.
        model: the GPU for which the simulator's counts are turned into a predicted time; default an A100. A variant
            that does not run on that GPU is predicted for one that it runs on.
        sample: on the simulator, count about so many blocks of a case that is too large to run in full; as for `tune`.
        judged_on: with ``sample``, the small case that values are judged on; as for `tune`.
        arch: an architecture, or several in a list, on the simulator: sm_80, sm_89, sm_90, sm_100, sm_120, or their
            names with the letter (``"sm_100a"``).
        exact: also say of each right variant whether it is the same computation as the first one, by running both on
            elements of a ring, without a tolerance (docs/EXACT.md). A difference fails no variant.

    Returns:
        `Comparison`, with ``arch`` an `ArchComparison`, of several cases `ComparedCases`. A variant that is wrong or
        cannot run has its outcome and message in the table; nothing is raised.

    Raises:
        UnknownNameError: an op, case, variant, device or model that does not exist; a configuration for a variant that
            is not compared.
        ArgumentError: ``arch`` that the simulator does not stand for, on a GPU, with ``model``, or for which a named
            variant has no code.
        DeviceUnavailableError: the device was asked for by name and cannot run here.
    """
    found = registry.get(op)
    several = case is not None and not isinstance(case, str) and isinstance(case, Sequence)
    cases = cases_of(found, case)
    where = devices.get(device) if arch is None else devices.get("sim" if device == "auto" else device)
    (cases, _) = sampled(found, cases, where, sample, judged_on)
    named = None if variants is None else variants_of(found, variants)
    if arch is None:
        predicted_for = device_model(model)
        able = {one.name: able_variants(found.variants, [one], where) if named is None else named for one in cases}
        tries = [Try(one, variant, None, predicted_for) for one in cases for variant in able[one.name]]
    else:
        tries = tries_of_archs(found, cases, named, checked_archs(arch, where, model))
    configs = checked_configs(configs, (one.variant for one in tries))
    attempts: dict[str, list[ConfiguredTrial]] = {one.name: [] for one in cases}
    for one in tracked(tries, " runs", name=str):
        config = configs.get(one.variant.name)
        done = attempt(found, one, where, config=config, tuned=tuned)
        attempts[one.case.name].append(done)
    machine = "" if where.counts else where.description
    made = Comparison if arch is None else ArchComparison
    results = {
        one.name: made(
            found.name,
            one.label,
            where.name,
            tuple(done.trial for done in attempts[one.name]),
            tuple(done.minimum_bytes for done in attempts[one.name]),
            machine,
            tuple(done.origin for done in attempts[one.name]),
            _exact_answers(one, attempts[one.name]) if exact else (),
        )
        for one in cases
    }
    return ComparedCases(results) if several else results[cases[0].name]


def _exact_answers(case: Case, attempts: Sequence[ConfiguredTrial]) -> tuple[Beside | None, ...]:
    from workbench.ops.exact_runs import exact_column

    return tuple(exact_column(case, [(done.variant, done.trial) for done in attempts]))
