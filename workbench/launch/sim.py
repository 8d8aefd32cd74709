"""The device ``"sim"``: kernels run in the PTX machine on the CPU, with exact counts and checks on request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.analysis.check_report import said_by_ptxas
from workbench.analysis.device_models import device_model, model_of_arch
from workbench.analysis.watching import watched
from workbench.driver.observing import observed
from workbench.errors import ArgumentError, WorkbenchError
from workbench.ptx import Program, PtxKernel
from workbench.ptx.options import LaunchOptions, options_of
from workbench.ptx.sample import Sampled, squares_of, standard_error
from workbench.toolchain.occupancy import limits_of, occupancy

if TYPE_CHECKING:
    from workbench.ptx import LaunchReport
    from workbench.ptx.launch import MachineLaunch
    from workbench.ptx.signature import KernelSignature
    from workbench.toolchain import CompiledKernel


class Simulator:
    """Device that runs the PTX of a kernel on torch CPU tensors and NumPy arrays, in place.

    With ``sample`` it runs about that number of blocks of each launch if the blocks cannot depend on each other. Then
    the outputs are not complete, and the counts are those of these blocks (`workbench.ptx.sample`).
    """

    name = "sim"
    counts = True
    runs_machine_code = False

    def __init__(self, reason: str = "", arch: str = "sm_80", sample: int = 0):
        self.arch, self.sample = arch, sample
        self.description = "PTX machine on the CPU" + (f' ("cuda" cannot run here: {reason})' if reason else "")

    def __repr__(self) -> str:
        return f"<device sim: PTX machine on the CPU, {self.arch}>"

    def bind(
        self,
        kernel: CompiledKernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[object],
        options: LaunchOptions | None = None,
        *,
        shared_bytes: int = 0,
        signature: KernelSignature | None = None,
        **named: Any,
    ) -> MachineLaunch:
        """Check and pack a launch of ``kernel``; its ``run()`` runs it, without this device's samples and watches.

        The limits of the kernel's own architecture hold. Raises ArgumentError for a launch that the kernel cannot take,
        and UnsupportedInstructionError for PTX that the machine does not support.
        """
        return machine_kernel(kernel).bind(
            grid, block, args, options_of(options, named), shared_bytes=shared_bytes,
            signature=signature or kernel.signature, limits=limits_of(kernel.arch),
        )  # fmt: skip

    def launch(self, kernel: CompiledKernel, *launch: Any, **named: Any) -> LaunchReport:
        """Run ``kernel`` to its end and return the report. Takes the arguments of `bind`.

        Raises ArgumentError for a launch that the kernel cannot take, KernelFault for an illegal access, KernelTimeout
        past a limit, and, before anything runs, UnsupportedInstructionError for PTX that the machine does not support.
        """
        bound = self.bind(kernel, *launch, **named)
        squares, because = self._sample(bound) if self.sample and bound.options.sample is None else ([], "")
        report, _ = run(kernel, bound)
        if self.sample:
            blocks = math.prod(report.grid)
            error = standard_error(squares, report.sampled_instructions, blocks) if squares else 0.0
            reason = because and f"they can depend on each other ({because})"
            report.sampled = Sampled(report.blocks_run, blocks, error, reason)
        return report

    def _sample(self, bound: MachineLaunch) -> tuple[list[list[tuple[int, int, int]]], str]:
        """Choose the blocks to run and return them as squares, or no squares and the reason why all blocks run."""
        options = bound.options
        together = options.cooperative or options.cluster
        because = "they run at the same time" if together else bound.runner.dependence
        squares = [] if because else squares_of(bound.grid, self.sample)
        bound.options = replace(options, sample=[place for square in squares for place in square] or None)
        return squares, because

    def current(self, values: Iterable[object]) -> AbstractContextManager[object]:
        """Return a context manager that does nothing: there is one simulator."""
        return nullcontext()

    def read_variable(self, kernel: CompiledKernel, symbol: str) -> bytes:
        """Return the content of a device variable of the kernel's program, by its name in the PTX."""
        return self._storage(kernel, symbol).tobytes()

    def write_variable(self, kernel: CompiledKernel, symbol: str, content: bytes) -> None:
        """Write all bytes of a device variable."""
        self._storage(kernel, symbol)[:] = np.frombuffer(content, np.uint8)

    def reset_variables(self, kernel: CompiledKernel) -> Program:
        """Give every variable of the kernel's program its initial value; they live as long as the returned program."""
        program = self._program(kernel)
        program.reset_variables()
        return program

    def _storage(self, kernel: CompiledKernel, symbol: str) -> np.ndarray:
        return self._program(kernel).variables[symbol]

    @staticmethod
    def _program(kernel: CompiledKernel) -> Program:
        return Program.from_text(kernel.ptx)


def machine_kernel(kernel: CompiledKernel) -> PtxKernel:
    """Return the machine's form of a kernel. Raises UnsupportedInstructionError for PTX that it does not support."""
    return Program.from_text(kernel.ptx)[kernel.name]


def run(
    kernel: CompiledKernel,
    launch: MachineLaunch,
    *,
    both_orders: bool = False,
    unwritten: Sequence[int] = (),
    notes: tuple[str, ...] = (),
) -> tuple[LaunchReport, tuple[str, ...]]:
    """Run a launch of ``kernel``; return its report, and ``notes`` with further ones on defects that no access shows.

    ``both_orders`` and ``unwritten`` are those of `observed`. If the process is watched, the launch runs with the
    watch's options, and the watch keeps it. It does not keep a launch that only records blocks of an earlier one.
    """
    asked, watch = launch.options, watched()
    if asked.cooperative:
        _check_together(kernel, launch.grid, math.prod(launch.block), launch.shared_bytes)
    if watch is None and not both_orders:
        return launch.run(), notes
    if watch is not None:
        launch.options = watch.options(asked)
        watch.see(kernel, launch)
    look = both_orders or (watch is not None and watch.checks and watch.is_new(kernel))
    report, further = observed(
        launch,
        masked_loads_of=kernel if look and kernel.language == "triton" else None,
        both_orders=both_orders,
        unwritten=unwritten,
        failed=[] if watch is None else [watch.failed],
    )
    notes += further + (said_by_ptxas(kernel) if look else ())
    if watch is not None and (asked.sample is None or asked.record_block is None):
        watch.keep(kernel, report, notes)
    return report, notes


def _check_together(kernel: CompiledKernel, grid: Sequence[int], threads: int, shared_bytes: int) -> None:
    """Raise ArgumentError for a cooperative launch of more blocks than the simulated GPU holds at a time."""
    usual = device_model()
    model = usual if usual.arch == kernel.arch else model_of_arch(kernel.arch) or usual
    try:
        registers, barriers = kernel.registers, kernel.barriers
    except WorkbenchError:  # no assembler, or code that it refuses: the machine runs the kernel anyway
        registers = barriers = 0
    resident = occupancy(kernel.arch, threads, registers, kernel.static_shared_bytes + shared_bytes, barriers)
    most = int(model.multiprocessors) * resident.blocks_per_sm
    if math.prod(grid) > most:
        share = f"{resident.blocks_per_sm} on each of {model.multiprocessors:.0f} multiprocessors of {model}"
        raise ArgumentError(
            "grid",
            f"{math.prod(grid)} blocks",
            f"at most {most} in a cooperative launch, as all run at the same time: {share}, "
            f"limited by {resident.limited_by}",
            "Let each block do more: loop over the elements with a stride of the grid.",
        )
