"""``trace_kernel``: run a kernel once in the PTX machine and say what it did, by source line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.devices.sim import Simulator
from workbench.errors import ArgumentError
from workbench.kernels.loading import compiled_kernel
from workbench.kernels.trace import Trace, trace_of


def trace_kernel(
    kernel: Any,
    *,
    grid: int | Sequence[int],
    block: int | Sequence[int] | None = None,
    args: Sequence[object],
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

    Raises ArgumentError for anything else than a kernel and for arguments that it cannot take, KernelFault where it
    makes an illegal access, KernelTimeout after ``seconds_limit``, UnsupportedInstructionError before anything runs.
    """
    compiled, args = compiled_kernel(kernel, args)
    if block is None:
        block = compiled.threads_per_block
        if block is None:
            raise ArgumentError("block", None, "the threads of a block", "Only Triton's kernels have their own.")
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
