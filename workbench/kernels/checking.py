"""``check_kernel``: run a kernel in the PTX machine and say what is wrong with it, with source lines."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Sequence
from typing import Any

from workbench.devices import arguments
from workbench.errors import KernelFault
from workbench.kernels.check_report import CheckReport
from workbench.kernels.loading import compiled_kernel
from workbench.ptx import Finding, Program


def check_kernel(
    kernel: Any,
    *,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[object],
    shared_bytes: int = 0,
    uninitialised: Sequence[int] = (),
    seconds_limit: float | None = 60.0,
) -> CheckReport:
    """Run ``kernel`` with every check and report races, illegal accesses, uninitialised reads, misused barriers.

    It runs twice: first with the last warp of each block going first, which shows mistakes that the usual order hides
    (what warp 0 prepares for the others without a barrier), then, from the same arguments again, in the usual order.

    ``kernel`` is a kernel of ``load_cuda`` or a CompiledKernel of the toolchain; it runs on the CPU, whatever device it
    was loaded for, and writes to its arguments. ``args`` and ``shared_bytes`` (dynamic shared memory in bytes) are a
    launch's. ``uninitialised`` are positions in ``args`` of arrays that nobody has written: reading them before the
    kernel writes them is a finding. The rules follow compute-sanitizer (memcheck, racecheck, initcheck, synccheck).

    Raises ArgumentError for anything else than a kernel, KernelFault where the kernel cannot go on (a deadlock, a stack
    overflow), KernelTimeout after ``seconds_limit``, UnsupportedInstructionError before anything runs.
    """
    compiled, args = compiled_kernel(kernel, args)
    values = arguments.check_arguments(compiled, args)
    grid, block, shared_bytes = arguments.check_launch(compiled, grid, block, shared_bytes, compiled.arch)
    program = Program.from_text(compiled.ptx)
    options = {
        "shared_bytes": shared_bytes,
        "checks": True,
        "seconds_limit": seconds_limit,
        "uninitialised": uninitialised,
    }
    launch = functools.partial(program.kernels[compiled.name].launch, grid, block, values, **options)
    before, fault = _rehearse(program, values, launch)
    report = launch()
    if fault is not None:
        raise fault
    return CheckReport(compiled.label, _together(report.findings, before), report)


def _rehearse(program: Program, values: Sequence[object], launch: Any) -> tuple[list[Finding], KernelFault | None]:
    """The findings of a run in the opposite order of warps, or what ended it; arguments and variables are put back."""
    arrays = [value for value in (*values, *program.variables.values()) if _is_writable(value)]
    kept = [array.clone() if hasattr(array, "clone") else array.copy() for array in arrays]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the kernel's printf is heard once
            return launch(last_warp_first=True).findings, None
    except KernelFault as error:
        return [], error
    finally:
        for array, old in zip(arrays, kept, strict=True):
            array[...] = old


def _is_writable(value: object) -> bool:
    flags = getattr(value, "flags", None)
    return hasattr(value, "shape") and hasattr(value, "__setitem__") and (flags is None or flags.writeable)


def _together(findings: Sequence[Finding], before: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of the usual order, and those that only the other order showed."""

    def sides(finding: Finding) -> tuple:
        return finding.kind, frozenset((finding.ptx_line, finding.other_ptx_line or 0))

    known = {sides(finding) for finding in findings}
    return (*findings, *(finding for finding in before if sides(finding) not in known))
