"""The device ``"sim"``: kernels run in the PTX machine on the CPU, with exact counts and checks on request."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.analysis.device_models import device_model, model_of_arch
from workbench.analysis.watching import watched
from workbench.driver import masked_loads
from workbench.errors import ArgumentError, WorkbenchError
from workbench.launch import parameters
from workbench.ptx.options import LaunchOptions, options_of
from workbench.ptx.sample import Sampled, squares_of, standard_error
from workbench.toolchain.occupancy import occupancy

if TYPE_CHECKING:
    from workbench.ptx import LaunchReport, Program
    from workbench.toolchain import CompiledKernel


class Simulator:
    """Runs the PTX of a kernel on torch CPU tensors and NumPy arrays, in place.

    With ``sample`` about so many blocks of each launch, of a kernel whose blocks cannot depend on each other: its
    outputs are not complete then, and its counts are those of these blocks (`workbench.ptx.sample`).
    """

    name = "sim"
    counts = True
    runs_machine_code = False

    def __init__(self, reason: str = "", arch: str = "sm_80", sample: int = 0):
        self.arch, self.sample = arch, sample
        self.description = "PTX machine on the CPU" + (f' ("cuda" cannot run here: {reason})' if reason else "")

    def __repr__(self) -> str:
        return f"<device sim: PTX machine on the CPU, {self.arch}>"

    def launch(
        self,
        kernel: CompiledKernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[object],
        options: LaunchOptions | None = None,
        *,
        shared_bytes: int = 0,
        **named: Any,
    ) -> LaunchReport:
        """Run ``kernel`` to its end and return what it did.

        ``named`` are fields of `LaunchOptions`, in the place of those of ``options``.

        Raises ArgumentError for a launch that the kernel cannot take, KernelFault where it makes an illegal access,
        KernelTimeout past a limit, and UnsupportedInstructionError, before anything runs, for PTX beyond the machine.
        """
        from workbench import ptx

        grid, block, shared_bytes, values = parameters.for_the_machine(kernel, grid, block, args, shared_bytes)
        for parameter, value in zip(kernel.parameters, values, strict=True):
            _check_on_cpu(kernel, parameter.name, value)
        machine, squares, because = ptx.Program.from_text(kernel.ptx).kernels[kernel.name], [], ""
        options = options_of(options, named)
        sample = options.sample
        if self.sample and sample is None:
            together = options.cooperative or options.cluster
            because = "they run at the same time" if together else machine.dependence
            squares = [] if because else squares_of(grid, self.sample)
            sample = [place for square in squares for place in square] or None
        names = [parameter.name for parameter in kernel.parameters]
        options = replace(options, sample=sample, names=names, repeats=kernel.language == "triton")
        if options.cooperative:
            _check_together(kernel, grid, math.prod(block), shared_bytes)
        launch = functools.partial(machine.launch, grid, block, values, shared_bytes=shared_bytes)
        watch = watched()
        if watch is None:
            report = launch(options)
        else:
            notes: tuple[str, ...] = ()
            if watch.checks and kernel.language == "triton" and watch.is_new(kernel):
                notes = masked_loads.notes_on(kernel, machine, grid, block, values, options, shared_bytes)
            report = watch.run(kernel, options, launch, notes)
        if self.sample:
            blocks = math.prod(report.grid)
            error = standard_error(squares, report.sampled_instructions, blocks) if squares else 0.0
            reason = because and f"they can depend on each other ({because})"
            report.sampled = Sampled(report.blocks_run, blocks, error, reason)
        return report

    def current(self, values: Iterable[object]) -> AbstractContextManager[object]:
        """A block like any other: there is one simulator."""
        return nullcontext()

    def read_variable(self, kernel: CompiledKernel, symbol: str) -> bytes:
        """The content of a device variable of the kernel's program, by its name in the PTX."""
        return self._storage(kernel, symbol).tobytes()

    def write_variable(self, kernel: CompiledKernel, symbol: str, content: bytes) -> None:
        """Write all bytes of a device variable."""
        self._storage(kernel, symbol)[:] = np.frombuffer(content, np.uint8)

    def reset_variables(self, kernel: CompiledKernel) -> Program:
        """Give every variable of the kernel's program its initial value. They live as long as the result is held."""
        program = self._program(kernel)
        program.reset_variables()
        return program

    def _storage(self, kernel: CompiledKernel, symbol: str) -> np.ndarray:
        return self._program(kernel).variables[symbol]

    @staticmethod
    def _program(kernel: CompiledKernel) -> Program:
        from workbench import ptx

        return ptx.Program.from_text(kernel.ptx)


def _check_together(kernel: CompiledKernel, grid: Sequence[int], threads: int, shared_bytes: int) -> None:
    """Raise ArgumentError for a cooperative launch of more blocks than the GPU that is simulated holds at a time."""
    usual = device_model()
    model = usual if usual.arch == kernel.arch else model_of_arch(kernel.arch) or usual
    try:
        registers = kernel.registers
    except WorkbenchError:  # no assembler, or code that it refuses: the machine runs it all the same
        registers = 0
    resident = occupancy(kernel.arch, threads, registers, kernel.static_shared_bytes + shared_bytes)
    most = int(model.multiprocessors) * resident.blocks_per_sm
    if math.prod(grid) > most:
        share = f"{resident.blocks_per_sm} on each of {model.multiprocessors:.0f} multiprocessors of {model}"
        raise ArgumentError(
            "grid",
            f"{math.prod(grid)} blocks",
            f"at most {most} in a cooperative launch, as all run at the same time: {share}, "
            f"limited by {resident.limited_by}",
            "Let each block do more: loop over what there is with a stride of the grid.",
        )


def _check_on_cpu(kernel: CompiledKernel, name: str, value: object) -> None:
    device = getattr(value, "device", None)
    kind = getattr(device, "type", device)
    if parameters.is_array(value) and kind not in (None, "cpu"):
        raise ArgumentError(
            f"{kernel.label}(): {name!r}",
            f"a tensor on {device}",
            "tensors on the cpu",
            'Use .cpu(), or device="cuda".',
        )
