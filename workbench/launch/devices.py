"""Devices that run kernels, with one launch contract: the PTX machine on the CPU, and an NVIDIA GPU."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

from workbench.base.architectures import DEVICE_NAMES
from workbench.errors import DeviceUnavailableError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from workbench.ptx import LaunchOptions, LaunchReport
    from workbench.ptx.bound import BoundLaunch
    from workbench.ptx.signature import KernelSignature
    from workbench.toolchain import CompiledKernel


class VariableHolder(Protocol):
    """Protocol of an object that holds the variables of loaded programs."""

    def read_variable(self, kernel: CompiledKernel, symbol: str) -> bytes:
        """Return the content of a ``__device__`` or ``__constant__`` variable of the kernel's program.

        ``symbol`` is its name in the PTX.
        """
        ...

    def write_variable(self, kernel: CompiledKernel, symbol: str, content: bytes) -> None:
        """Write all bytes of a program's variable; later launches of any kernel of the program see them."""
        ...

    def reset_variables(self, kernel: CompiledKernel) -> object:
        """Give every variable of the kernel's program its initial value; they live as long as the returned object."""
        ...


class Device(VariableHolder, Protocol):
    """Protocol of a device."""

    name: str
    counts: bool
    """True if launches are simulated and counted, not measured."""

    @property
    def arch(self) -> str:
        """Architecture to compile for, such as ``"sm_80"``."""
        ...

    @property
    def description(self) -> str:
        """Description of the device for a reader."""
        ...

    @property
    def runs_machine_code(self) -> bool:
        """True if a launch needs machine code, not only PTX."""
        ...

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
    ) -> BoundLaunch:
        """Check and pack a launch, and return it; its ``run()`` runs it.

        ``shared_bytes`` is dynamic shared memory per block; 0 means the kernel's own ``dynamic_shared_bytes``, which a
        kernel of Triton always has. ``signature`` replaces the kernel's own where more is known of its parameters.
        ``named`` are fields of `LaunchOptions` that replace those of ``options``; a GPU takes none.

        Raises ArgumentError, naming the parameter, for arguments or dimensions that the kernel cannot take.
        """
        ...

    def launch(self, kernel: CompiledKernel, *launch: Any, **named: Any) -> LaunchReport | None:
        """Run ``kernel`` and return its report, None on a GPU. Takes the arguments of `bind`, and raises as it does."""
        ...

    def current(self, values: Iterable[object]) -> AbstractContextManager[object]:
        """Return a context manager in which kernels are compiled for and launched on the GPU of the given tensors."""
        ...


def get(name: str = "auto") -> Device:
    """Return the device ``"sim"``, ``"cuda"`` or ``"auto"``, which is ``"cuda"`` if it can run, else ``"sim"``.

    Raises DeviceUnavailableError with the reason and the remedy for ``"cuda"`` without a GPU, a driver or PyCUDA;
    UnknownNameError for any other name.
    """
    if name not in DEVICE_NAMES:
        raise UnknownNameError("device", repr(name), ", ".join(DEVICE_NAMES), "Choose one of these.")
    problem = None if name == "sim" else cuda_problem()
    if name == "cuda" and problem is not None:
        raise DeviceUnavailableError(f'device "cuda" cannot run here: {problem}')
    return _create("sim" if name == "sim" or problem is not None else "cuda", problem or "")


def cuda_problem() -> str | None:
    """Return the reason why ``"cuda"`` cannot run here, with the remedy; None if it can."""
    from workbench.launch.gpu import problem

    return problem()


@functools.cache
def simulator(arch: str, sample: int = 0) -> Device:
    """Return the device ``"sim"`` that compiles for ``arch``; `get` returns the one for the default architecture.

    With ``sample`` it runs about that number of blocks of each launch.
    """
    from workbench.launch.sim import Simulator

    default = get("sim")
    return default if arch == default.arch and not sample else Simulator(arch=arch, sample=sample)


@functools.cache
def _create(name: str, reason: str) -> Device:
    if name == "sim":
        from workbench.launch.sim import Simulator

        return Simulator(reason)
    from workbench.launch.gpu import Gpu

    return Gpu()
