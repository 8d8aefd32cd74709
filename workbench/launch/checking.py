"""``check_kernel`` and ``trace_kernel``: run a kernel in the PTX machine and report its defects or its work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from workbench.analysis.check_report import CheckReport, notes_on
from workbench.analysis.trace import Trace, trace_of
from workbench.base.argument_kinds import checked_kinds
from workbench.driver.triton.calls import KernelCall, is_jit, run_call
from workbench.errors import ArgumentError
from workbench.launch.loading import Kernel, kernel_to_launch
from workbench.launch.sim import Simulator, run
from workbench.ptx import LaunchOptions
from workbench.ptx.launch import MachineLaunch
from workbench.ptx.proved import ProvedAccesses
from workbench.toolchain import CompiledKernel


class ProvedLaunches(Protocol):
    """Protocol of a proof, or of the proofs of an op."""

    @property
    def covered(self) -> tuple[ProvedAccesses, ...]:
        """Accesses that are proved, with the launches for which they are; empty if nothing is proved."""


def covered_by(proof: ProvedLaunches | None) -> tuple[ProvedAccesses, ...]:
    """Return the accesses that a proof covers. Raises ArgumentError for one that covers none."""
    found = () if proof is None else proof.covered
    if proof is not None and not found:
        allowed = "a proof that covers the accesses of some array"
        remedy = "Leave it away to check in full; kernels with bulk copies or whose threads have roles always are."
        raise ArgumentError("proof", str(proof).splitlines()[0], allowed, remedy)
    return found


def is_kernel(value: object) -> bool:
    """Return True for an object that is launched with a grid: a compiled kernel or a ``@triton.jit`` function."""
    return isinstance(value, Kernel | CompiledKernel) or is_jit(value)


def refuse_for_a_kernel(function: Callable[..., object], **given: object) -> None:
    """Raise ArgumentError for the first of the ``given`` arguments, which only ops take, that is not the default.

    The defaults are those of ``function``.
    """
    for name, value in given.items():
        if value is not (default := inspect.signature(function).parameters[name].default) and value != default:
            remedy = "Only ops have it: a kernel is launched with grid=, block= and args=."
            raise ArgumentError(name, repr(value), "no value with a kernel", remedy)


def refuse_for_an_op(function: Callable[..., object], given: Mapping[str, object]) -> None:
    """Raise ArgumentError for the first of the ``given`` arguments, which only kernels take.

    ``function`` is the one for kernels. Raises TypeError for a name that is not one of its parameters.
    """
    for name, value in given.items():
        if name not in inspect.signature(function).parameters:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
        remedy = "The op's variants say how their kernels are launched: choose one with variant= and case=."
        raise ArgumentError(name, repr(value), "no value with an op", remedy)


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
    fmad: bool = True,
    schedules: int = 0,
    seed: int = 0,
    proof: ProvedLaunches | None = None,
    sample: int | None = None,
) -> CheckReport:
    """Run ``kernel`` with every check and report races, illegal accesses, uninitialised reads, misused barriers.

    The kernel runs twice from the same arguments. In the first run the last warp of each block goes first, which
    reveals mistakes that the usual order hides (data that warp 0 prepares for the others without a barrier). The second
    run has the usual order. Bulk copies land at once in the first run and as late as allowed in the second. If nothing
    else is found in a kernel without atomics, results that differ between the runs are a finding.

    ``kernel`` is a kernel of ``load_cuda`` or a CompiledKernel of the toolchain. It runs on the CPU, whatever device it
    was loaded for, and writes to its arguments. ``args``, ``shared_bytes`` (dynamic shared memory in bytes) and
    ``cluster`` (blocks along x, y, z that run together) describe the launch. ``uninitialised`` are positions in
    ``args`` of arrays without content: reading their elements before the kernel writes them is a finding, and elements
    that it leaves unwritten are a note.

    A ``@triton.jit`` function, also an autotuned one, is checked as its call ``kernel[grid](*args, **kwargs)``. Then
    ``grid`` is a tuple or a function of the constants, ``kwargs`` holds constants and options, ``arch`` is the
    architecture to compile for (default: that of the active `simulated_triton`, else sm_80), and there is no ``block``.

    ``after=(kernel, grid, block, args)`` is the launch on which this one depends programmatically; a fifth value is its
    dynamic shared memory. It runs first. If its kernel has ``griddepcontrol.launch_dependents``, memory that it wrote
    may not be accessed before ``griddepcontrol.wait``, and memory that it read may not be written.

    ``strict`` turns notes into findings, and adds rules of the PTX ISA that GPUs do not enforce: see "Notes, and
    strict" in CHECKS.md. Without ``fmad`` products and sums are rounded apart, as with ``nvcc --fmad=false``.

    With ``schedules`` the kernel first runs in so many other orders of its blocks and warps, which a warp leaves to all
    others at random instructions, and in which asynchronous copies land early or late. ``seed`` is the first of them.
    Values that differ from those of the usual order are a finding, and so is a deadlock; each names its seed and the
    two lines (`workbench.ptx.schedules`).

    ``proof`` is the verdict of ``wb.prove`` on the kernel. In a launch that keeps its preconditions (sizes, grid,
    shapes, elements) the accesses that it covers are not checked for bounds and races again, which takes a fraction of
    the time; uninitialised reads, masks of shuffles and indices that wrap are looked for as always. The report tells
    what the proof covers, or why it does not cover this launch, which is then checked in full. If all accesses and
    barriers are covered, no order of threads changes what a kernel without shuffles does, and the second run is left
    out; with ``sample`` about so many blocks run, among them the grid's corners, and the others write no results.

    Defects that no single access shows are notes in the report: a tensor that is not contiguous and whose strides the
    kernel does not get; masked loads of Triton without ``other`` whose masked lanes reach a result; elements of
    ``uninitialised`` arrays that stay unwritten; trials of an autotuner that change their inputs; an autotuner's key
    that lacks a number on which its choice depends.

    The rules follow compute-sanitizer (memcheck, racecheck, initcheck, synccheck).

    Raises ArgumentError for an object that is not a kernel, KernelFault if the kernel cannot go on (a deadlock, a stack
    overflow), KernelTimeout after ``seconds_limit``, and, before anything runs, UnsupportedInstructionError.
    """
    options = LaunchOptions(
        cluster=cluster, checks=True, strict=strict, seconds_limit=seconds_limit, uninitialised=uninitialised,
        fmad=fmad, schedules=schedules, first_schedule=seed, proved=covered_by(proof), sample_proved=sample or 0,
    )  # fmt: skip
    if sample is not None and (proof is None or sample < 1):
        raise ArgumentError("sample", sample, "a number of blocks, with a proof=", "Leave it out to run all blocks.")
    if after is not None:
        options = replace(options, overlapped=_footprint_of(after))
    call = KernelCall(kernel, grid, block, args, kwargs, shared_bytes, arch)
    if is_jit(kernel):
        return run_call(call, options, both_orders=True).check
    compiled, launch = bound_call(call, options)
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
    fmad: bool = True,
    numerics: bool = False,
) -> Trace:
    """Run ``kernel`` once in the PTX machine and attribute its instructions and memory accesses to source lines.

    ``kernel`` is a kernel of ``load_cuda`` or of a ``%%cuda`` cell, or a CompiledKernel of ``compile_cuda`` or
    ``compile_triton``. It runs on the CPU, whatever device it was loaded for, and writes to its arguments. ``grid``,
    ``block``, ``args`` (CPU tensors, NumPy arrays, numbers), ``shared_bytes`` (dynamic shared memory per block) and
    ``cluster`` (blocks along x, y, z that run together) describe the launch; a kernel of Triton has its own ``block``.
    ``record_block`` (x, y, z) records the requests and waits of that block one by one, in ``trace.recording``.
    ``checks`` adds the checks of `check_kernel` for a single run, in ``trace.report.findings``, and ``fmad`` is that of
    `check_kernel`. ``numerics`` says for each line where infinities and NaN were born, and what conversions lost, in
    ``trace.numerics``.

    A ``@triton.jit`` function, also an autotuned one, is traced as its call ``kernel[grid](*args, **kwargs)``. Then
    ``grid`` is a tuple or a function of the constants, ``kwargs`` holds constants and options, ``arch`` is the
    architecture to compile for (default: that of the active `simulated_triton`, else sm_80), and there is no ``block``.

    Raises ArgumentError for an object that is no kernel and for arguments that the kernel cannot take, KernelFault for
    an illegal access, KernelTimeout after ``seconds_limit``, and, before anything runs, UnsupportedInstructionError.
    """
    options = LaunchOptions(
        cluster=cluster, statistics=True, checks=checks, seconds_limit=seconds_limit, record_block=record_block,
        fmad=fmad, numerics=numerics,
    )  # fmt: skip
    call = KernelCall(kernel, grid, block, args, kwargs, shared_bytes, arch)
    if is_jit(kernel):
        return run_call(call, options).trace
    compiled, launch = bound_call(call, options)
    report, _ = run(compiled, launch)
    return trace_of(compiled, report, shared_bytes)


def run_on_elements(
    kernel: Any, *, grid: Any, block: Any = None, args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None, seconds_limit: float | None = 60.0,
) -> CompiledKernel:  # fmt: skip
    """Run ``kernel`` on elements of a ring, as `trace_kernel` takes it; return the compiled kernel.

    What it writes are elements, which `workbench.analysis.exact` reads. Raises KernelFault where it does what has no
    rule.
    """
    options = LaunchOptions(exact=True, statistics=is_jit(kernel), seconds_limit=seconds_limit)  # else it is not kept
    call = KernelCall(kernel, grid, block, args, kwargs)
    if is_jit(kernel):
        return run_call(call, options).kernel
    compiled, launch = bound_call(call, options)
    run(compiled, launch)
    return compiled


def bound_call(call: KernelCall, options: LaunchOptions) -> tuple[CompiledKernel, MachineLaunch]:
    """Return the compiled kernel and its launch on the PTX machine, ready to run."""
    compiled, signature = kernel_to_launch(call.kernel, call.kwargs, call.arch)
    block = compiled.threads_per_block if call.block is None else call.block
    if block is None:
        raise ArgumentError("block", None, "the threads of a block", "Only Triton's kernels set their own.")
    device = Simulator(arch=compiled.arch)
    bound = device.bind(
        compiled, call.grid, block, call.args, options, shared_bytes=call.shared_bytes, signature=signature
    )
    return compiled, bound


def _footprint_of(after: Sequence[Any]) -> Any:
    """Run a launch and return the memory that it wrote and read; None if it lets no dependent launch start early."""
    if not 4 <= len(after) <= 5:
        raise ArgumentError(
            "after", f"{len(after)} values", "(kernel, grid, block, args), or these and shared_bytes",
            "Describe the launch before this one.",
        )  # fmt: skip
    kernel, grid, block, args = after[:4]
    call = KernelCall(kernel, grid, block, args, shared_bytes=after[4] if len(after) == 5 else 0)
    _, launch = bound_call(call, LaunchOptions(checks=True))
    return launch.run().footprint
