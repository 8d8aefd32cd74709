"""``trace``: run one variant of an op once in the PTX machine and say what its kernels did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.analysis.lines import lines_of
from workbench.analysis.trace import Trace
from workbench.analysis.watching import watched
from workbench.base.argument_kinds import checked_kinds
from workbench.errors import ArgumentError
from workbench.launch.checking import is_kernel, refuse_for_a_kernel, refuse_for_an_op, trace_kernel
from workbench.ops import registry
from workbench.ops.op import Op
from workbench.ops.remedies import check_remedy, tune_remedy
from workbench.ops.sampled_case import check_blocks, simulator_of
from workbench.ops.selection import only_variant
from workbench.ops.tuned import recorded, sim_table
from workbench.ops.variant import Case, Config, Variant
from workbench.ptx.joined import with_findings_of
from workbench.ptx.numerics import NumericsLog
from workbench.ptx.report import LaunchReport

MOST_CHECKED = 4_000_000
"""Warp instructions of the largest run that `trace` repeats with checks, in a second or two."""


@checked_kinds
def trace(
    op: str | Op | Any,
    case: str | Case | None = None,
    *,
    variant: str | Variant | None = None,
    config: Config | None = None,
    tuned: bool = False,
    model: str | DeviceModel | None = None,
    arch: str | None = None,
    record_block: int | Sequence[int] | None = None,
    seconds_limit: float | None = 60.0,
    sample: int | None = None,
    numerics: bool = False,
    **launch: Any,
) -> Trace:
    """Run one variant of an op, or a kernel, in the PTX machine and attribute what it did to its source lines.

    A kernel of `load_cuda` or `load_ptx`, a CompiledKernel or a ``@triton.jit`` function is traced as `trace_kernel`
    does, which says what it takes beside ``arch``, ``record_block`` and ``seconds_limit``::

        wb.trace(module.saxpy, grid=4, block=256, args=(y, x, 2.0, 1024))

    A variant that executes at most 4,000,000 warp instructions runs once more with checks, on fresh inputs; of a larger
    run, and of a sample of its blocks, the trace names the command that checks it.

    Args:
        op: its name, or the op; or a kernel.
        case: name or value of a case; default: the op's quick one.
        variant: a variant in CUDA C++ or Triton; default: that of an op which has only one.
        config: one value per tunable; default: the untuned rule.
        tuned: use the configuration that is recorded for the case or one like it.
        model: the GPU that the trace predicts for; default: one of the architecture that the kernel is compiled for.
        arch: the architecture to compile for, e.g. ``"sm_90"``; the machine runs code for sm_80 to sm_120a.
            Default: the first of `MACHINE_ARCHS` that has what the variant needs.
        record_block: (x, y, z) of a block whose requests and waits to keep one by one, in ``trace.recording``.
        seconds_limit: of each of its launches; None for no limit.
        numerics: say for each line where infinities and NaN were born, also through memory and the variant's other
            kernels, and what conversions lost, in ``trace.numerics``.
        launch: of a kernel its grid, block, args and what else `trace_kernel` takes.
        sample: run about so many blocks of a case that is too large to run in full: counts are theirs, unscaled (so
            that blocks which would share what they read may be missing), the predicted time is that of all. Kernels
            whose blocks can depend on each other, and several in a row, run in full.

    Raises:
        UnknownNameError: no such op, variant or case.
        ArgumentError: a torch variant, which has no kernel; none, where there are several; ``sample`` below 1, or
            together with ``record_block``; ``tuned`` without a configuration that was recorded.
        ConfigurationError: an illegal configuration; names the rule.
        UnsupportedInstructionError: code that the machine does not execute; names the instruction and its line.
        KernelTimeout: a launch ran past ``seconds_limit``.
    """
    if is_kernel(op):
        refuse_for_a_kernel(trace, case=case, variant=variant, config=config, tuned=tuned, sample=sample)
        traced = trace_kernel(
            op, arch=arch, record_block=record_block, seconds_limit=seconds_limit, numerics=numerics, **launch
        )
        return traced if model is None else replace(traced, model=device_model(model))
    refuse_for_an_op(trace_kernel, launch)
    found = registry.get(op)
    chosen, case = only_variant(found) if variant is None else found.variant(variant), found.case(case)
    if not chosen.compiles:
        raise ArgumentError("variant", chosen.name, "a variant in CUDA C++ or Triton", "torch has no kernel to trace.")
    if arch is None:
        arch = chosen.machine_arch(case.problem())
    predicted = None if model is None else device_model(model)
    if config is None and tuned:
        config = _tuned_config(found, chosen, case.problem(arch=arch), case.label, predicted)
    if config is None:
        config = chosen.default_config(case.problem(arch=arch))
    problem = case.problem(config, arch=arch)
    if sample is not None:
        check_blocks(sample)
    if sample is not None and record_block is not None:
        raise ArgumentError("sample", sample, "None with record_block", "Record a block of a complete launch.")
    inputs = case.inputs(problem)
    device = simulator_of(chosen, arch, sample or 0)
    kernels = chosen.kernels(config, problem, arch)  # with machine code, which a trace shows
    options: dict[str, Any] = {"statistics": True, "record_block": record_block, "seconds_limit": seconds_limit}
    if numerics:
        options["numerics"] = NumericsLog()
    report = chosen.run(config, problem, inputs, device, **options)
    if report is None:
        remedy = "No kernel of the variant has a block to run for it."
        raise ArgumentError("case", case.label, "a case with elements to compute", remedy)
    report = chosen.with_parts(report, config, problem, inputs, device, seconds_limit=seconds_limit)
    settings = " ".join(f"{name}={value}" for name, value in config.items())
    part = f", {report.sampled.brief} blocks" if report.sampled else ""
    title = f"{chosen} on {case.label}" + (f", {settings}" if settings else "") + part
    ran = found.name, case.label, chosen.name, dict(config)
    why = _reason_not_to_check(report)
    if why is None:
        checked = chosen.run(config, problem, case.inputs(problem), device, checks=True, seconds_limit=seconds_limit)
        report = with_findings_of(report, checked)
    unchecked = f"not run{why}; {check_remedy(found, chosen.name, case)} runs them"
    return Trace(title, lines_of(report), report, kernels, predicted, *ran, unchecked=unchecked)


def _reason_not_to_check(report: LaunchReport) -> str | None:
    """Return why a traced run is not repeated with checks, as the end of "not run"; None if it is."""
    if report.has_checks or watched() is not None:  # a watch would keep the second run as a launch of the program's
        return ""
    if report.sampled and report.sampled.blocks < report.sampled.of:
        return " on a sample of the blocks"
    return f" beyond {MOST_CHECKED:,} warp instructions" if report.instructions > MOST_CHECKED else None


def _tuned_config(op: Op, variant: Variant, problem: Any, label: str, model: DeviceModel | None) -> Config | None:
    """Return the recorded configuration; None for a variant without tunables. Raises ArgumentError if there is none."""
    if not variant.space:
        return None
    answer = recorded(op, variant, problem, sim_table(model))
    if answer is None:
        got = f"nothing recorded for {label}"
        command = tune_remedy(op, variant.name, None if model is None else model.key)
        remedy = f"{command} records one."
        raise ArgumentError("tuned", got, "a configuration that was tuned for the case or one like it", remedy)
    return answer.config
