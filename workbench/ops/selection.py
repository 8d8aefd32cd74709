"""Lookup of the ops, cases and variants that a caller names, one or several alike."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

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

    if not isinstance(op, str | Op):
        raise ArgumentError(
            "op", type(op).__name__, f"a name ({', '.join(registry.offered())}) or an Op", "Name one of these."
        )
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
    known = ", ".join(variant.name for variant in compiled) or "a variant in CUDA C++ or Triton, of which it has none"
    raise ArgumentError("variant", "None", known, f"{op.name} has {len(compiled)} with kernels: name one.")


def fitted(variant: Variant, case: _Case) -> _Case:
    """Return the case, in the first layout or dtype of a variant if the variant does not read the case's own.

    The name of a changed case has the new layout or dtype in it.
    """
    lacking = {rule.name for rule in variant.unsupported(case.problem())}
    firsts = {"layout": variant.layouts, "dtype": variant.dtypes}
    changes = {name: values[0] for name, values in firsts.items() if name in lacking}
    return case.override(name=" ".join([case.name, *changes.values()]), **changes) if changes else case


def configs_of(
    op: Op, texts: Iterable[str] | None, variants: Iterable[str] | None, case: Case
) -> dict[str, dict[str, Any]]:
    """Return the configurations of ``[VARIANT:]NAME=VALUE ...`` from a terminal, by variant.

    Without a variant's name it is for the only one, among those of these names or all, that has these tunables.
    Tunables that are left out have their untuned values for the case.

    Raises:
        UnknownNameError: a variant, tunable or value that does not exist.
        ArgumentError: no variant named where several have the tunables; something that is no NAME=VALUE.
    """
    chosen = [op.variant(name) for name in variants] if variants else list(op.variants)
    found: dict[str, dict[str, Any]] = {}
    for text in texts or ():
        name, colon, settings = text.rpartition(":")
        words = [word.partition("=") for word in re.split(r"[\s,]+(?=\w+=)", settings.strip())]
        if not all(equals and key and value for key, equals, value in words):
            raise ArgumentError("config", repr(text), "[VARIANT:]NAME=VALUE NAME=VALUE ...", "NUM_THREADS=128 VEC=4")
        given = {key: value for key, _, value in words}
        variant = op.variant(name) if colon else _with_tunables(chosen, given, text)
        for key, value in given.items():
            if key not in variant.space:
                raise UnknownNameError(f"config of {variant.name}", key, ", ".join(variant.space), "Name a tunable.")
            values = {str(one): one for one in variant.space[key]}
            if value not in values:
                raise UnknownNameError(f"config {key}", value, ", ".join(values), f"{variant.name} has these.")
            given[key] = values[value]
        found[variant.name] = {**variant.default_config(variant.machine_problem(case)), **given}
    return found


def config_of(op: Op, texts: Sequence[str] | None, variant: str | None, case: Case) -> dict[str, Any] | None:
    """Return the configuration of one variant from a terminal, as `configs_of` reads it; None without a text."""
    found = configs_of(op, texts, None if variant is None else [variant], case)
    if len(found) > 1 or (variant is not None and any(name != variant for name in found)):
        raise ArgumentError("config", ", ".join(texts or ()), f"one of {variant or 'one variant'}", "One is traced.")
    return next(iter(found.values()), None)


def _with_tunables(variants: Sequence[Variant], given: Collection[str], text: str) -> Variant:
    having = [variant for variant in variants if set(given) <= set(variant.space)]
    if len(having) == 1:
        return having[0]
    if having:
        remedy = f"Name it: {having[0].name}:{text}"
        raise ArgumentError("config", f"{text!r}, for {len(having)} variants", "that of one variant", remedy)
    known = "; ".join(f"{variant.name} has {', '.join(variant.space)}" for variant in variants if variant.space)
    raise UnknownNameError("config", repr(text), known or "none: nothing is tunable", "Name tunables of one variant.")
