"""``check_kernel`` and ``trace_kernel``: run a kernel in the PTX machine, and say what is wrong or what it did."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.analysis.check_report import CheckReport, notes_on
from workbench.analysis.trace import Trace, trace_of
from workbench.base.argument_kinds import checked_kinds
from workbench.driver.triton_calls import is_jit, run_call
from workbench.errors import ArgumentError
from workbench.launch.loading import Kernel, kernel_to_launch
from workbench.launch.sim import Simulator, run
from workbench.ptx import LaunchOptions
from workbench.ptx.launch import MachineLaunch
from workbench.toolchain import CompiledKernel


def is_kernel(value: object) -> bool:
    """Return whether that is launched by its grid: a kernel that is compiled, or a ``@triton.jit`` function."""
    return isinstance(value, Kernel | CompiledKernel) or is_jit(value)


def refuse_for_a_kernel(function: Callable[..., object], **given: object) -> None:
    """Raise ArgumentError for the first argument of ``function`` that only ops take and that is not the default one."""
    for name, value in given.items():
        if value is not (default := inspect.signature(function).parameters[name].default) and value != default:
            remedy = "Only ops have it: a kernel is launched with grid=, block= and args=."
            raise ArgumentError(name, repr(value), "nothing with a kernel", remedy)


def refuse_for_an_op(function: Callable[..., object], given: Mapping[str, object]) -> None:
    """Raise ArgumentError for the first argument that only ``function`` takes, for kernels; TypeError for a name that
    it does not know either."""
    for name, value in given.items():
        if name not in inspect.signature(function).parameters:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
        remedy = "The op's variants say how their kernels are launched: choose one with variant= and case=."
        raise ArgumentError(name, repr(value), "nothing with an op", remedy)


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
        options = replace(options, overlapped=_footprint_of(after))
    if is_jit(kernel):
        return run_call(
            kernel, grid, args, kwargs, options, block=block, shared_bytes=shared_bytes, arch=arch, both_orders=True
        ).check
    compiled, launch = _bound(kernel, grid, block, args, shared_bytes, options, kwargs, arch)
    notes = notes_on(launch.names, launch.values, kernel.macros.values() if isinstance(kernel, Kernel) else ())
    report, notes = run(compiled, launch, both_orders=True, unwritten=uninitialised, notes=notes)
    return CheckReport(compiled.label, tuple(report.findings), report, notes)


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
    compiled, launch = _bound(kernel, grid, block, args, shared_bytes, options, kwargs, arch)
    report, _ = run(compiled, launch)
    return trace_of(compiled, report, shared_bytes)


def _bound(
    kernel: Any, grid: Any, block: Any, args: Sequence[object], shared_bytes: int, options: LaunchOptions,
    kwargs: Mapping[str, object] | None = None, arch: str | None = None,
) -> tuple[CompiledKernel, MachineLaunch]:  # fmt: skip
    """The kernel of a launch on the PTX machine, and the launch, ready to run."""
    compiled, signature = kernel_to_launch(kernel, kwargs, arch)
    if block is None:
        block = compiled.threads_per_block
    if block is None:
        raise ArgumentError("block", None, "the threads of a block", "Only Triton's kernels have their own.")
    device = Simulator(arch=compiled.arch)
    return compiled, device.bind(compiled, grid, block, args, options, shared_bytes=shared_bytes, signature=signature)


def _footprint_of(after: Sequence[Any]) -> Any:
    """Run a launch and return what it wrote and read; None of a kernel that lets no dependent launch start."""
    if not 4 <= len(after) <= 5:
        raise ArgumentError(
            "after", f"{len(after)} values", "(kernel, grid, block, args) or those and shared_bytes",
            "Describe the launch before this one.",
        )  # fmt: skip
    kernel, grid, block, args = after[:4]
    _, launch = _bound(kernel, grid, block, args, after[4] if len(after) == 5 else 0, LaunchOptions(checks=True))
    return launch.run().footprint
