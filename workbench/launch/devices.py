"""Where kernels run: the PTX machine on the CPU, or an NVIDIA GPU. One launch contract for both."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

from workbench.errors import DeviceUnavailableError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from workbench.ptx import LaunchOptions, LaunchReport
    from workbench.ptx.bound import BoundLaunch
    from workbench.ptx.signature import KernelSignature
    from workbench.toolchain import CompiledKernel

NAMES = ("auto", "sim", "cuda")
"""The names that `get` knows."""


class VariableHolder(Protocol):
    """Where the variables of loaded programs are."""

    def read_variable(self, kernel: CompiledKernel, symbol: str) -> bytes:
        """The content of a ``__device__`` or ``__constant__`` variable of the kernel's program, by its PTX name."""
        ...

    def write_variable(self, kernel: CompiledKernel, symbol: str, content: bytes) -> None:
        """Write all bytes of such a variable; kernels of the same program launched after it see them."""
        ...

    def reset_variables(self, kernel: CompiledKernel) -> object:
        """Give every variable of the kernel's program its initial value again. They live as long as the result does."""
        ...


class Device(VariableHolder, Protocol):
    """What every device offers."""

    name: str
    counts: bool
    """Whether launches are simulated and counted, not measured."""

    @property
    def arch(self) -> str:
        """The architecture to compile for, such as ``"sm_80"``."""
        ...

    @property
    def description(self) -> str:
        """What the device is, in words."""
        ...

    @property
    def runs_machine_code(self) -> bool:
        """Whether a launch needs more than PTX."""
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
        """Check and pack a launch, which its ``run()`` then runs. Takes and raises what `launch` does."""
        ...

    def launch(
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
    ) -> LaunchReport | None:
        """Run ``kernel``. ``shared_bytes`` is dynamic shared memory per block; 0 takes the kernel's own
        ``dynamic_shared_bytes``, which for Triton is always there. ``signature`` is what it takes, where more is known
        than the kernel says itself. ``named`` are fields of `LaunchOptions`, in the place of those of ``options``; a
        GPU takes none.

        Raises ArgumentError, naming the parameter, for arguments or dimensions that the kernel cannot take.
        """
        ...

    def current(self, values: Iterable[object]) -> AbstractContextManager[object]:
        """A block in which what is compiled and launched belongs to the GPU, of several, of the tensors given."""
        ...


def get(name: str = "auto") -> Device:
    """The device ``"sim"``, ``"cuda"`` or ``"auto"``, which is ``"cuda"`` where it can run and ``"sim"`` elsewhere.

    Raises DeviceUnavailableError with the reason and the remedy for ``"cuda"`` without a GPU, a driver or PyCUDA;
    UnknownNameError for any other name.
    """
    if name not in NAMES:
        raise UnknownNameError("device", repr(name), ", ".join(NAMES), "Choose one of these.")
    problem = None if name == "sim" else cuda_problem()
    if name == "cuda" and problem is not None:
        raise DeviceUnavailableError(f'device "cuda" cannot run here: {problem}')
    return _create("sim" if name == "sim" or problem is not None else "cuda", problem or "")


def cuda_problem() -> str | None:
    """Why ``"cuda"`` cannot run here, with the remedy; None where it can."""
    from workbench.launch.gpu import problem

    return problem()


@functools.cache
def simulator(arch: str, sample: int = 0) -> Device:
    """The device ``"sim"`` that compiles for an architecture; `get` gives the one of the default. With ``sample`` it
    runs about so many blocks of a launch."""
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
