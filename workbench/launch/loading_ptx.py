"""``load_ptx``: load PTX of any compiler and call its kernels from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.base.argument_kinds import checked_kinds
from workbench.base.demangle import normalised
from workbench.base.time_limit import Limit
from workbench.errors import ArgumentError, UnknownNameError
from workbench.launch import devices
from workbench.launch.loading import Kernel, Module, device_for, limits_on
from workbench.launch.variables import Variables
from workbench.toolchain import CompiledKernel
from workbench.toolchain.c_types import CType
from workbench.toolchain.ptx_text import kernels_of_ptx


class PtxModule(Module):
    """The kernels of a PTX text: ``module.name``, and ``module["name"]`` for names that are not identifiers."""

    def __init__(
        self, text: str, device: devices.Device, checks: bool, trace: bool, limits: Mapping[str, float], strided: bool
    ):
        self._strided = strided
        self._device, self._checks, self._trace, self._limits = device, checks, trace, limits
        self._macros: dict[str, Any] = {}
        self._declared: dict[str, Any] = {}
        compiled = kernels_of_ptx(text)
        self._settings = {"arch": next(iter(compiled.values())).arch}
        self.globals = Variables(device, "", {})
        self._kernels: dict[str, Kernel] = {}
        for name, kernel in compiled.items():
            self._add(name, kernel)

    def _types_of(self, compiled: CompiledKernel) -> tuple[CType | None, ...]:
        """Return no types: PTX has no types of elements."""
        return ()

    def __getitem__(self, name: str) -> Kernel:
        """Return the kernel of a name, readable or as in the PTX. Raises UnknownNameError for one not in the text."""
        for kernel in self._kernels.values():
            if name == kernel.compiled.name or normalised(name) == normalised(kernel.compiled.label):
                return kernel
        raise UnknownNameError("kernel", repr(name), ", ".join(self._kernels), "The PTX has these.")

    def __repr__(self) -> str:
        return super().__repr__().replace("<CUDA module", "<PTX module", 1)


@checked_kinds
def load_ptx(
    text_or_path: str | Path | Any,
    *,
    device: str = "auto",
    checks: bool = False,
    trace: bool = False,
    seconds_limit: Limit = "auto",
    strided: bool = False,
) -> PtxModule:
    """Load PTX of any compiler and return its kernels as functions like those of `load_cuda`.

    ``text_or_path`` is PTX text, a file, or an object with PTX text in ``__ptx__``, as functions of CuTe DSL's
    ``cute.compile(..., options="--keep-ptx")`` have it. ``module.name(grid, block, *args, shared_bytes=0)`` launches a
    kernel; ``check_kernel`` and ``trace_kernel`` take it. The parameters in the PTX decide the arguments: torch tensors
    and NumPy arrays for 64-bit ones, numbers, and for structs by value (``.b8 name[24]``) bytes, a NumPy record or a
    ctypes structure of that size. Pointers in a struct are addresses,
    ``np.array([(x.ctypes.data, x.size)], [("data", "u8"), ("size", "i8")])``. ``device``, ``checks``, ``trace``,
    ``seconds_limit`` and ``strided`` are those of `load_cuda`. ptxas makes registers and machine code on first use. PTX
    of clang, Numba, Warp and CuTe DSL is among the tests.

    Raises ArgumentError for text that is no PTX, UnsupportedInstructionError if none of its kernels can run.
    """
    if not isinstance(text_or_path, str | Path) and not hasattr(text_or_path, "__ptx__"):
        got = f"a value of type {type(text_or_path).__name__}"
        raise ArgumentError("text_or_path", got, "PTX text, a path, or an object with __ptx__", "Pass one of these.")
    text = str(getattr(text_or_path, "__ptx__", text_or_path))
    if isinstance(text_or_path, Path) or "\n" not in text:
        try:
            text = Path(text_or_path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            got = f"{text!r} ({type(error).__name__})"
            raise ArgumentError("text_or_path", got, "PTX text or a readable file", "Check the path.") from error
    text = text.rstrip("\0")  # some compilers end it as C ends a string
    target = device_for(device, checks, trace)
    return PtxModule(text, target, checks, trace, limits_on(target, seconds_limit), strided)
