"""The code of a kernel that the driver loads: machine code if the GPU runs it, else PTX."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from workbench.driver import images, simulated
from workbench.errors import ArgumentError
from workbench.toolchain.sass import resources_of

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel


def is_simulated() -> bool:
    """Return True if the driver of this process is the simulated one, which runs PTX."""
    running = simulated.current()
    return running is not None and running.simulated


def digest(kernel: CompiledKernel) -> str:
    """Return the digest of a kernel's program, whose kernels share one module and its variables."""
    code = None if is_simulated() else kernel.cubin
    return hashlib.sha256(code or kernel.ptx.encode()).hexdigest()


def image_of(kernel: CompiledKernel, capability: tuple[int, int], arch: str) -> bytes:
    """Return the machine code if a GPU of ``arch`` runs it, else the PTX, which the driver then compiles.

    Raises ArgumentError for code that this architecture cannot run.
    """
    simulated_driver = is_simulated()
    if not simulated_driver and runs_on(kernel.arch, capability, machine_code=True) and kernel.cubin is not None:
        return kernel.cubin
    if not runs_on(kernel.arch, capability, machine_code=False):
        got, remedy = f"{kernel.label} for {kernel.arch}", "Compile it for that."
        raise ArgumentError("kernel", got, f"code for {arch}", remedy)
    if simulated_driver and _may_take_too_many_registers(kernel) and kernel.cubin is not None:
        # The simulated driver refuses a launch that lacks the registers which the machine code takes.
        return images.image(kernel.ptx, resources_of(kernel.cubin, kernel.arch)) + b"\0"
    return kernel.ptx.encode() + b"\0"


def runs_on(arch: str, capability: tuple[int, int], *, machine_code: bool) -> bool:
    """Return True if code for ``arch`` runs on a GPU of compute capability (major, minor), as machine code or as PTX.

    Machine code runs on its own major version and the same or a later minor version; PTX runs on its own and every
    later version. Code for one architecture (``"sm_90a"``) runs there alone, code for a family (``"sm_100f"``) on
    the family's members from its own version on. Source: CUDA C++ Programming Guide, "Application Compatibility" and
    "Feature Set Compiler Targets".
    """
    digits = arch.removeprefix("sm_").rstrip("af")
    own = int(digits[:-1]), int(digits[-1])
    if arch.endswith("a"):
        return own == capability
    if machine_code or arch.endswith("f"):
        return own[0] == capability[0] and own[1] <= capability[1]
    return own <= capability


def _may_take_too_many_registers(kernel: CompiledKernel) -> bool:
    """Return True if a block might have too many registers: with 255 per thread, only up to 256 threads always fit."""
    return kernel.thread_bound is None or kernel.thread_bound[0] > 256
