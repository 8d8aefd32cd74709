"""``trace_kernel``: run a kernel once in the PTX machine and say what it did, by source line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.analysis.trace import Trace, trace_of
from workbench.base.argument_kinds import checked_kinds
from workbench.driver.triton_calls import is_jit, run_call
from workbench.launch.loading import block_of, compiled_kernel
from workbench.launch.sim import Simulator
from workbench.ptx import LaunchOptions


@checked_kinds
def trace_kernel(
    kernel: Any,
    *,
    grid: Any,
    block: int | Sequence[int] | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    arch: str | None = None,
    shared_bytes: int = 0,
    cluster: int | Sequence[int] | None = None,
    record_block: int | Sequence[int] | None = None,
    seconds_limit: float | None = 60.0,
    checks: bool = False,
) -> Trace:
    """Run ``kernel`` once in the PTX machine and attribute what it did to its source lines.

    ``kernel`` is a kernel of ``load_cuda`` or of a ``%%cuda`` cell, or a CompiledKernel of ``compile_cuda`` or
    ``compile_triton``; it runs on the CPU, whatever device it was loaded for, and writes to its arguments. ``grid``,
    ``block``, ``args`` (CPU tensors, NumPy arrays, numbers), ``shared_bytes`` (dynamic shared memory per block) and
    ``cluster`` (blocks along x, y, z that run together) are a launch's; a kernel of Triton knows its own ``block``.
    ``record_block`` (x, y, z) keeps that block's requests and waits one by one, in ``trace.recording``; ``checks``
    looks for races and the like too, in ``trace.report.findings``.

    A ``@triton.jit`` function, also an autotuned one, is traced as its call ``kernel[grid](*args, **kwargs)``:
    ``grid`` a tuple or a function of the constants, ``kwargs`` constants and options, ``arch`` what to compile for
    (default: as the active `simulated_triton`, else sm_80), no ``block``.

    Raises ArgumentError for anything else than a kernel and for arguments that it cannot take, KernelFault where it
    makes an illegal access, KernelTimeout after ``seconds_limit``, UnsupportedInstructionError before anything runs.
    """
    options = LaunchOptions(
        cluster=cluster, statistics=True, checks=checks, seconds_limit=seconds_limit, record_block=record_block
    )
    if is_jit(kernel):
        return run_call(kernel, grid, args, kwargs, options, block=block, shared_bytes=shared_bytes, arch=arch).trace
    compiled, args = compiled_kernel(kernel, args, kwargs, arch)
    block = block_of(compiled, block)
    report = Simulator(arch=compiled.arch).launch(compiled, grid, block, args, options, shared_bytes=shared_bytes)
    return trace_of(compiled, report, shared_bytes)
