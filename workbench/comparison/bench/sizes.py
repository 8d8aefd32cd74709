"""``op.sweep`` and ``workbench bench OP --over cols=512,1024``: an op's variants over sizes of its inputs.

A size is what a case can be changed by: a named size of a declared op's case (``x=wb.randn(64, "cols"), cols=1024``), a
field of a built-in one (``context=8192``, ``dtype="bfloat16"``). Each variant is checked at each size before it gets a
time. It runs with the configuration that is recorded for that size or one like it, else with its untuned one.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.base.argument_kinds import checked_kinds
from workbench.base.progress import tracked
from workbench.comparison.bench.own_op import contenders
from workbench.comparison.bench.size_sweep import SizePoint, SizeSweep, figure_of
from workbench.comparison.bench.torch_counts import count
from workbench.comparison.configured import Try, attempt, checked_configs
from workbench.errors import ArgumentError
from workbench.launch import devices
from workbench.ops import registry
from workbench.ops.op import Op
from workbench.ops.sampled_case import sampled
from workbench.ops.selection import listed
from workbench.ops.values import Case
from workbench.ops.variant import Config, Variant


@checked_kinds(but=("op", "over"))
def sweep_sizes(
    op: str | Op,
    over: Mapping[str, Any],
    case: str | Case | None = None,
    variants: str | Sequence[str] | None = None,
    device: str = "auto",
    *,
    figure: str = "time",
    together: bool = False,
    configs: Mapping[str, Config] | None = None,
    model: str | DeviceModel | None = None,
    sample: int | None = None,
    judged_on: str | Case | None = None,
) -> SizeSweep:
    """Try the variants of an op at several sizes of one case.

    On a GPU times are measured, also those of torch and ``torch.compile``. On the simulator they are predicted, and
    torch has no line: nothing of it runs in the PTX machine.

    Args:
        op: its name, or the op.
        over: for each size its values, ``{"cols": [512, 1024, 2048]}``. Of several names every combination is tried,
            as in ``op.case``; the first is the horizontal axis. A single value stays the same throughout.
        case: name or value of the case whose sizes are changed; default: the op's quick one.
        variants: names; default every variant that reads the case at one of the sizes.
        device: "auto", "sim" or "cuda".
        figure: what tables and plots show, one of `workbench.comparison.bench.size_sweep.FIGURES`: "time", "bandwidth",
            "throughput", and on the simulator "instructions", "sectors", "bytes", "sectors_per_request", "conflicts".
            The result has them all.
        together: go through several names in step, the first value of each, then the second, instead of every
            combination.
        configs: variant name -> configuration for all sizes; default: the tuned one of each size, else the untuned one.
        model: on the simulator, the GPU to predict for; default an A100.
        sample: on the simulator, count about so many blocks at each size, and scale; as for `tune`.
        judged_on: with ``sample``, the small case that values are judged on; as for `tune`.

    Raises:
        UnknownNameError: an op, case, variant, device, model or figure that does not exist.
        ArgumentError: no size, an unknown one, or lists of different lengths with ``together``; a figure that nothing
            can have here.
        DeviceUnavailableError: the device was asked for by name and cannot run here.
    """
    found, where, model = registry.get(op), devices.get(device), device_model(model)
    base, shown = found.case(case), figure_of(figure)
    if shown.counted and not where.counts:
        remedy = 'Count on the simulator: device="sim".'
        raise ArgumentError("figure", figure, "a figure of time, as a GPU counts nothing", remedy)
    several, places = _places(over, together)
    cases = [base.override(name=" ".join([base.name, *map("=".join, _texts(place))]), **place) for place in places]
    (cases_run, _) = sampled(found, cases, where, sample, judged_on)
    chosen = contenders(found, None if variants is None else listed(variants), cases, where)
    if not chosen:
        known = ", ".join(variant.name for variant in found.variants)
        raise ArgumentError(
            "variants", "none that supports the case at these sizes", known, "Change the sizes or the variants."
        )
    configs = checked_configs(configs, chosen)
    if where.counts and figure != "bytes" and not any(variant.compiles for variant in chosen):
        remedy = "torch has no times on the simulator, and of the counts only bytes."
        names = ", ".join(variant.name for variant in chosen)
        raise ArgumentError("variants", names, "variants in CUDA C++ or Triton among them", remedy)
    operations = [operations_of(found, one) for one in cases]
    if figure == "throughput" and not any(operations):
        remedy = "torch counts operations of matrix products, and the reference has none that it knows."
        raise ArgumentError("figure", figure, "a figure other than throughput", remedy)
    points = []
    sizes = zip(places, cases, cases_run, operations, strict=True)
    tries = [(variant, *size) for size in sizes for variant in chosen]
    for variant, place, whole, one, products in tracked(
        tries, " runs", name=lambda run: f"{run[0].name} on {run[2].name}"
    ):
        config = configs.get(variant.name)
        tried = attempt(found, Try(one, variant, None, model), where, config=config, tuned=True)
        moved = _call_bytes(variant, whole) if where.counts else None
        points.append(SizePoint(place, one.label, tried.trial, tried.minimum_bytes, products, tried.origin, moved))
    return SizeSweep(
        op=found.name,
        case=base.name,
        names=several,
        figure=figure,
        times=f"predicted for {model}" if where.counts else f"measured on {where.description}",
        bandwidth=model.dram_bytes_per_second if where.counts else None,
        points=tuple(points),
        together=together,
    )


def _call_bytes(variant: Variant, case: Case) -> int | None:
    """Return the bytes that the calls of a variant in plain torch move; None for others, and for compiled functions."""
    called = variant.torch_call(case)
    if called is None or hasattr(called[0], "_torchdynamo_orig_callable"):
        return None
    function, arguments = called
    return count(function, **arguments).bytes_moved


def sizes_of(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the sizes of ``NAME=VALUE,VALUE`` from a terminal: whole numbers, other numbers, or words."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        parts = [part.strip() for part in values.split(",")]
        if not equals or not name.strip() or "" in parts or name.strip() in found:
            raise ArgumentError("over", repr(text), "SIZE=VALUE,VALUE,... once for each size", "cols=512,1024,2048")
        found[name.strip()] = [_value(part) for part in parts]
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def operations_of(op: Op, case: Case) -> int | None:
    """Return the operations of the reference's matrix products, as torch counts them; None where it counts none."""
    called = op.torch_call(case, "meta")
    if called is None:
        return None
    function, arguments = called
    return count(function, **arguments).flops or None


def _places(over: Mapping[str, Any], together: bool) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """Return the names of several values, and each combination of all."""
    values = {name: [one] if isinstance(one, str) else listed(one) for name, one in over.items()}
    for name, given in values.items():
        if name == "name":
            raise ArgumentError(
                "over", repr(name), "sizes of the case", "The name of each case is made from its sizes."
            )
        if not given or len(set(map(str, given))) < len(given):
            raise ArgumentError(f"over[{name!r}]", given, "one or more different values", "cols=[512, 1024, 2048]")
    several = tuple(name for name, given in values.items() if len(given) > 1) or tuple(values)[:1]
    if not several:
        raise ArgumentError("over", "no sizes", "one or more sizes with their values", "cols=[512, 1024, 2048]")
    if not together:
        return several, [dict(zip(values, place, strict=True)) for place in itertools.product(*values.values())]
    lengths = {name: len(values[name]) for name in several}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{length} values of {name}" for name, length in lengths.items())
        raise ArgumentError(
            "over",
            got,
            "the same number of values for each size, with together",
            "Leave together out to run every combination.",
        )
    length = lengths[several[0]]
    columns = [given if len(given) > 1 else given * length for given in values.values()]
    return several, [dict(zip(values, place, strict=True)) for place in zip(*columns, strict=True)]


def _texts(place: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in place.items()]
