"""``check_kernel``: run a kernel in the PTX machine and say what is wrong with it, with source lines."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.analysis.check_report import CheckReport, notes_on
from workbench.analysis.watching import watched
from workbench.base.argument_kinds import checked_kinds
from workbench.driver import masked_loads
from workbench.driver.triton_calls import is_jit, run_call
from workbench.driver.unwritten import Outputs
from workbench.errors import ArgumentError, KernelFault
from workbench.launch import parameters
from workbench.launch.loading import Kernel, block_of, compiled_kernel
from workbench.ptx import LaunchOptions, Program
from workbench.ptx.warp_orders import rehearse


@checked_kinds
def check_kernel(
    kernel: Any,
    *,
    grid: Any,
    block: int | Sequence[int] | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    arch: str | None = None,
    shared_bytes: int = 0,
    cluster: int | Sequence[int] | None = None,
    uninitialised: Sequence[int] = (),
    after: Sequence[Any] | None = None,
    strict: bool = False,
    seconds_limit: float | None = 60.0,
) -> CheckReport:
    """Run ``kernel`` with every check and report races, illegal accesses, uninitialised reads, misused barriers.

    It runs twice: first with the last warp of each block going first, which shows mistakes that the usual order hides
    (what warp 0 prepares for the others without a barrier), then, from the same arguments again, in the usual order.
    Bulk copies land at once in the first run and as late as they may in the second; where nothing else is found,
    results that differ are, of a kernel without atomics.

    ``kernel`` is a kernel of ``load_cuda`` or a CompiledKernel of the toolchain; it runs on the CPU, whatever device it
    was loaded for, and writes to its arguments. ``args``, ``shared_bytes`` (dynamic shared memory in bytes) and
    ``cluster`` (blocks along x, y, z that run together) are a launch's. ``uninitialised`` are positions in ``args`` of
    arrays that nobody has written: reading them before the kernel writes them is a finding, and elements that it
    leaves unwritten are a note.

    A ``@triton.jit`` function, also an autotuned one, is checked as its call ``kernel[grid](*args, **kwargs)``:
    ``grid`` a tuple or a function of the constants, ``kwargs`` constants and options, ``arch`` what to compile for
    (default: as the active `simulated_triton`, else sm_80), no ``block``.

    ``after=(kernel, grid, block, args)`` is the launch that this one depends on programmatically, with dynamic shared
    memory as a fifth where it has some. It runs first, and what its kernel has written, or read, may not be touched, or
    written, before ``griddepcontrol.wait``, if it has ``griddepcontrol.launch_dependents``.

    ``strict`` makes findings of what is a note otherwise, and adds what the PTX ISA asks for and GPUs run without:
    see "Notes, and strict" in CHECKS.md.

    What no access shows is a note in the report: a tensor that is not contiguous and whose strides the kernel does not
    get; masked loads of Triton without ``other`` whose masked lanes reach a result; elements of ``uninitialised``
    arrays that stay unwritten; trials of an autotuner that change what they read, and a key without a number on which
    its choice depends.

    The rules follow compute-sanitizer (memcheck, racecheck, initcheck, synccheck).

    Raises ArgumentError for anything else than a kernel, KernelFault where the kernel cannot go on (a deadlock, a stack
    overflow), KernelTimeout after ``seconds_limit``, UnsupportedInstructionError before anything runs.
    """
    options = LaunchOptions(
        cluster=cluster, checks=True, strict=strict, seconds_limit=seconds_limit, uninitialised=uninitialised
    )
    if after is not None:
        if not 4 <= len(after) <= 5:
            raise ArgumentError(
                "after", f"{len(after)} values", "(kernel, grid, block, args) or those and shared_bytes",
                "Describe the launch before this one.",
            )  # fmt: skip
        options = replace(options, overlapped=_footprint_of(*after))
    if is_jit(kernel):
        return run_call(
            kernel, grid, args, kwargs, options, block=block, shared_bytes=shared_bytes, arch=arch, both_orders=True
        ).check
    compiled_in = kernel.macros.values() if isinstance(kernel, Kernel) else ()
    compiled, args = compiled_kernel(kernel, args, kwargs, arch)
    block = block_of(compiled, block)
    grid, block, shared_bytes, values = parameters.for_the_machine(compiled, grid, block, args, shared_bytes)
    program = Program.from_text(compiled.ptx)
    names = [parameter.name for parameter in compiled.parameters]
    options = replace(options, names=names, repeats=compiled.language == "triton")
    kernel = program.kernels[compiled.name]
    watch, notes = watched(), notes_on(names, args, compiled_in)
    if watch is not None:
        options = watch.options(options)
    launch = functools.partial(kernel.launch, grid, block, values, options, shared_bytes=shared_bytes)
    if compiled.language == "triton":
        notes += masked_loads.notes_on(compiled, kernel, grid, block, values, options, shared_bytes)
    outputs = Outputs(values, names, uninitialised)
    try:
        rehearsal = rehearse(kernel, values, launch, names)
        report = launch()
        if rehearsal.fault is not None:
            raise rehearsal.fault
    except KernelFault as fault:
        if watch is not None:
            watch.failed(fault)
        raise
    report, notes = rehearsal.joined(report), notes + outputs.notes()
    if watch is not None:
        watch.keep(compiled, report, notes)
    return CheckReport(compiled.label, tuple(report.findings), report, notes)


def _footprint_of(kernel: Any, grid: Any, block: Any, args: Sequence[object], shared_bytes: int = 0) -> Any:
    """Run a launch and return what it wrote and read; None of a kernel that lets no dependent launch start."""
    compiled, args = compiled_kernel(kernel, args, None, None)
    grid, block, shared_bytes, values = parameters.for_the_machine(
        compiled, grid, block_of(compiled, block), args, shared_bytes
    )
    ready = Program.from_text(compiled.ptx).kernels[compiled.name]
    return ready.launch(grid, block, values, checks=True, shared_bytes=shared_bytes).footprint
