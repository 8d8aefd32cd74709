"""``trace`` and ``trace_kernel``: run once in the PTX machine and say what the kernel did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench import ops
from workbench.devices.sim import Simulator
from workbench.errors import ArgumentError
from workbench.ops.op import Op
from workbench.ops.variant import Case, Config, Variant
from workbench.toolchain import CompiledKernel
from workbench.traced import Trace, TracedLine, lines_of

__all__ = ["Trace", "TracedLine", "lines_of", "trace", "trace_kernel", "trace_of"]


def trace(
    op: str | Op,
    case: str | Case | None = None,
    *,
    variant: str | Variant,
    config: Config | None = None,
    arch: str = "sm_80",
    record_block: int | Sequence[int] | None = None,
) -> Trace:
    """Run one variant of an op in the PTX machine and attribute what it did to its source lines.

    Args:
        op: its name, or the op.
        case: name or value of a case; default: the op's quick one.
        variant: a variant in CUDA C++ or Triton.
        config: one value per tunable; default: the untuned rule.
        arch: the architecture to compile for, e.g. ``"sm_90"``; the machine has all that sm_89 has, of what came later
            neither TMA nor wgmma nor clusters.
        record_block: (x, y, z) of a block whose requests and waits to keep one by one, in ``trace.recording``.

    Raises:
        UnknownNameError: no such op, variant or case.
        ArgumentError: a torch variant, which has no kernel.
        ConfigurationError: an illegal configuration; names the rule.
        UnsupportedInstructionError: code that the machine does not execute; names the instruction and its line.
    """
    found = ops.get(op)
    chosen, case = found.variant(variant), found.case(case)
    if chosen.language == "torch":
        raise ArgumentError("variant", chosen.name, "a variant in CUDA C++ or Triton", "torch has no kernel to trace.")
    if config is None:
        config = chosen.default_config(case.problem(arch=arch))
    problem = case.problem(config, arch=arch)
    inputs, device = case.inputs(problem), Simulator(arch=arch)
    kernels = chosen.kernels(config, problem, arch)  # with machine code, which a trace shows
    report = chosen.run(config, problem, inputs, device, statistics=True, record_block=record_block)
    settings = " ".join(f"{name}={value}" for name, value in config.items())
    return Trace(f"{chosen} on {case.label}, {settings}", lines_of(report), report, kernels)


def trace_kernel(
    kernel: Any,
    *,
    grid: Any,
    block: int | Sequence[int] | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    arch: str | None = None,
    shared_bytes: int = 0,
    record_block: int | Sequence[int] | None = None,
    seconds_limit: float | None = 60.0,
    checks: bool = False,
) -> Trace:
    """Run ``kernel`` once in the PTX machine and attribute what it did to its source lines.

    ``kernel`` is a kernel of ``load_cuda`` or of a ``%%cuda`` cell, or a CompiledKernel of ``compile_cuda`` or
    ``compile_triton``; it runs on the CPU, whatever device it was loaded for, and writes to its arguments. ``grid``,
    ``block``, ``args`` (CPU tensors, NumPy arrays, numbers) and ``shared_bytes`` (dynamic shared memory per block) are
    a launch's; a kernel of Triton knows its own ``block``. ``record_block`` (x, y, z) keeps that block's requests and
    waits one by one, in ``trace.recording``; ``checks`` looks for races and the like too, in ``trace.report.findings``.

    A ``@triton.jit`` function, also an autotuned one, is traced as its call ``kernel[grid](*args, **kwargs)``:
    ``grid`` a tuple or a function of the constants, ``kwargs`` constants and options, ``arch`` what to compile for
    (default: as the active `simulated_triton`, else
    sm_80), no ``block``.

    Raises ArgumentError for anything else than a kernel and for arguments that it cannot take, KernelFault where it
    makes an illegal access, KernelTimeout after ``seconds_limit``, UnsupportedInstructionError before anything runs.
    """
    from workbench.driver.triton_calls import is_jit, run_call
    from workbench.loading import block_of, compiled_kernel

    if is_jit(kernel):
        options = {"trace": True, "checks": checks, "seconds_limit": seconds_limit, "record_block": record_block}
        return run_call(kernel, grid, args, kwargs, block=block, shared_bytes=shared_bytes, arch=arch, **options).trace
    compiled, args = compiled_kernel(kernel, args, kwargs, arch)
    block = block_of(compiled, block)
    report = Simulator(arch=compiled.arch).launch(
        compiled,
        grid,
        block,
        args,
        shared_bytes=shared_bytes,
        statistics=True,
        checks=checks,
        seconds_limit=seconds_limit,
        record_block=record_block,
    )
    return trace_of(compiled, report, shared_bytes)


def trace_of(compiled: CompiledKernel, report: Any, shared_bytes: int) -> Trace:
    """The trace of a launch that has run with statistics."""
    launched = replace(
        compiled,
        threads_per_block=report.block[0] * report.block[1] * report.block[2],
        dynamic_shared_bytes=max(shared_bytes, compiled.dynamic_shared_bytes),
    )
    shape = ", ".join(f"{name} {'x'.join(map(str, size))}" for name, size in _sizes(report))
    return Trace(f"{compiled.label}, {shape}", lines_of(report), report, (launched,))


def _sizes(report: Any) -> list[tuple[str, list[int]]]:
    """Grid and block without the trailing ones."""

    def short(size: Sequence[int]) -> list[int]:
        kept = list(size)
        while len(kept) > 1 and kept[-1] == 1:
            kept.pop()
        return kept

    return [("grid", short(report.grid)), ("block", short(report.block))]
