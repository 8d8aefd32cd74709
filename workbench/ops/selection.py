"""Lookup of the ops, cases and variants that a caller names, one or several alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from workbench.base.config_text import ConfigText, literal
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.op import Op
from workbench.ops.variant import Case, Variant

_Case = TypeVar("_Case", bound=Case)


def listed(given: Any) -> list[Any]:
    """Return one thing, or any iterable of several, as a list."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return list(given) if several else [given]


def op_of(op: str | Op) -> Op:
    """Return an op that is given itself or by name."""
    from workbench.ops import registry
    from workbench.ops.installed import offered

    if not isinstance(op, str | Op):
        raise ArgumentError("op", type(op).__name__, f"a name ({', '.join(offered())}) or an Op", "Name one of these.")
    return registry.get(op)


def cases_of(op: Op, cases: Any) -> tuple[Case, ...]:
    """Return cases that are given themselves or by name; for None the op's quick one."""
    given = listed(cases) if cases is not None else [op.quick_case]
    known = f"The cases of {op.name}: {', '.join(op.cases)}."
    if not given:
        raise ArgumentError("cases", "[]", "one or more cases", known)
    found = tuple(op.case(case) if isinstance(case, str) else case for case in given)
    for case in found:
        if not hasattr(case, "problem"):
            raise ArgumentError("cases", type(case).__name__, "names and cases", known)
    if len({case.name for case in found}) < len(found):
        names = [case.name for case in found]
        raise ArgumentError("cases", names, "cases of different names", "Rename one with .override(name=...).")
    return found


def variants_of(op: Op, variants: Any) -> list[Variant]:
    """Return variants that are given themselves or by name. Raises ArgumentError for none."""
    given = listed(variants)
    if not given:
        names = ", ".join(variant.name for variant in op.variants)
        raise ArgumentError("variants", "none", names, "Name one or more.")
    return [_variant_of(op, variant) for variant in given]


def _variant_of(op: Op, variant: object) -> Variant:
    if isinstance(variant, str):
        return op.variant(variant)
    if not isinstance(variant, Variant) or variant.op != op.name:
        got = f"{variant.op}/{variant.name}" if isinstance(variant, Variant) else type(variant).__name__
        remedy = f"It has {', '.join(known.name for known in op.variants)}; one of your own says op={op.name!r}."
        raise ArgumentError("variants", got, f"names and variants of {op.name}", remedy)
    return variant


def only_variant(op: Op) -> Variant:
    """Return the only variant of an op that has kernels. Raises ArgumentError where none has, or several have."""
    compiled = [variant for variant in op.variants if variant.compiles]
    if len(compiled) == 1:
        return compiled[0]
    if not compiled:
        allowed = "a variant in CUDA C++ or Triton, of which it has none"
        raise ArgumentError("variant", "None", allowed, f"Give {op.name} a kernel.")
    known, first = ", ".join(variant.name for variant in compiled), compiled[0].name
    named = f"Name one: variant={first!r}; in a terminal --variant {first}."
    raise ArgumentError("variant", "None", known, f"{op.name} has {len(compiled)} with kernels. {named}")


def fitted(variant: Variant, case: _Case) -> _Case:
    """Return the case, in the first layout or dtype of a variant if the variant does not read the case's own.

    The name of a changed case has the new layout or dtype in it.
    """
    lacking = {rule.name for rule in variant.unsupported(case.problem())}
    firsts = {"layout": variant.layouts, "dtype": variant.dtypes}
    changes = {name: values[0] for name, values in firsts.items() if name in lacking}
    return case.override(name=" ".join([case.name, *changes.values()]), **changes) if changes else case


def configs_of(
    op: Op, texts: Sequence[ConfigText], variants: Iterable[str] | None, case: Case
) -> dict[str, dict[str, Any]]:
    """Return the configurations of parsed texts by variant, among the ``variants`` of these names or all.

    Tunables that are left out have their untuned values for the case. Raises what `settings_of` raises.
    """
    chosen = [op.variant(name) for name in variants] if variants else list(op.variants)
    found = [settings_of(chosen, text) for text in texts]
    return {
        variant.name: {**variant.default_config(variant.machine_problem(case)), **settings}
        for variant, settings in found
    }


def config_of(
    op: Op, texts: Sequence[ConfigText], variant: str | None, case: Case
) -> tuple[str | None, dict[str, Any] | None]:
    """Return the variant and its configuration, as `configs_of` reads them; without a text as given, and None."""
    found = configs_of(op, texts, None if variant is None else [variant], case)
    if len(found) > 1:
        got = ", ".join(text.text for text in texts)
        raise ArgumentError("config", repr(got), "the configuration of one variant", "Name tunables of one variant.")
    return next(iter(found.items()), (variant, None))


def settings_of(
    variants: Sequence[Variant], text: ConfigText, *, only_known: bool = True
) -> tuple[Variant, dict[str, Any]]:
    """Return the variant of a parsed text with the values of its tunables, those that are left out missing.

    Without a name in the text it is the only variant that has these tunables.

    Args:
        variants: those that the text may be for.
        text: names of tunables with their values, as tables print them or as Python literals.
        only_known: refuse values that the search space does not have.

    Raises:
        UnknownNameError: a variant or tunable that does not exist; with ``only_known`` also such a value.
        ArgumentError: no variant named where several have the tunables.
    """
    if text.variant is None:
        variant = _with_tunables(variants, text)
    else:
        by_name = {one.name: one for one in variants}
        if text.variant not in by_name:
            known = ", ".join(by_name) or "none"
            raise UnknownNameError("config", repr(text.variant), known, "Name one of these variants before the colon.")
        variant = by_name[text.variant]
    for name in text.settings:
        if name not in variant.space:
            known = ", ".join(variant.space) or "none: nothing is tunable"
            raise UnknownNameError(f"config of {variant.name}", name, known, "Name a tunable.")
    return variant, {name: _value(variant, name, value, only_known) for name, value in text.settings.items()}


def _value(variant: Variant, name: str, text: str, only_known: bool) -> Any:
    """Return the value that a text stands for: one of the space as it is printed, or else a Python literal."""
    values, value = {str(one): one for one in variant.space[name]}, literal(text)
    if text in values:
        return values[text]
    if only_known and not any(type(one) is type(value) and one == value for one in values.values()):
        raise UnknownNameError(f"config {name}", text, ", ".join(values), f"{variant.name} has these.")
    return value


def _with_tunables(variants: Sequence[Variant], text: ConfigText) -> Variant:
    having = [variant for variant in variants if set(text.settings) <= set(variant.space)]
    if len(having) == 1:
        return having[0]
    if having:
        remedy = f"Name it: {having[0].name}:{text.text}"
        raise ArgumentError(
            "config", f"{text.text!r}, for {len(having)} variants", "the configuration of one variant", remedy
        )
    known = "; ".join(f"{variant.name} has {', '.join(variant.space)}" for variant in variants if variant.space)
    raise UnknownNameError(
        "config", repr(text.text), known or "none: nothing is tunable", "Name tunables of one variant."
    )
