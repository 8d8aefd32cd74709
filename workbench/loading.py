"""``load_cuda``: any CUDA C++ source of the user's own, its kernels callable from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import devices
from workbench.errors import UnknownNameError
from workbench.toolchain import CompiledKernel, compile_cuda, compile_cuda_module

if TYPE_CHECKING:
    from workbench.ptx import LaunchReport


class Kernel:
    """One kernel of a loaded source: ``kernel(grid, block, *args, shared_bytes=0)`` launches it.

    ``compiled`` is the CompiledKernel with its PTX, SASS and resources.
    """

    def __init__(self, compiled: CompiledKernel, device: devices.Device):
        self.compiled = compiled
        self.device = device
        self.__name__ = compiled.label

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: object,
        shared_bytes: int = 0,
        **options: Any,
    ) -> LaunchReport | None:
        """Launch with ``args``: torch tensors or NumPy arrays for pointers, numbers, None, bytes for structs by value.

        ``shared_bytes`` is dynamic shared memory per block; ``options`` are those of the device's ``launch``
        (``checks``, ``statistics`` on ``"sim"``). Returns the LaunchReport on ``"sim"``, None on ``"cuda"``. Raises
        ArgumentError naming the parameter, and KernelFault where the kernel makes an illegal access.
        """
        return self.device.launch(self.compiled, grid, block, args, shared_bytes=shared_bytes, **options)

    def __repr__(self) -> str:
        parameters = ", ".join(f"{parameter.name}: {parameter.type}" for parameter in self.compiled.parameters)
        return f"<kernel {self.compiled.label}({parameters}) for {self.compiled.arch} on {self.device.name}>"


class Module:
    """The kernels of one source: ``module.name``, and ``module["scale<float, 4>"]`` for an instance of a template."""

    def __init__(
        self, kernels: Mapping[str, CompiledKernel], device: devices.Device, source: str | Path, options: dict[str, Any]
    ):
        self._device = device
        self._source = source
        self._options = options
        self._kernels = {name: Kernel(kernel, device) for name, kernel in kernels.items()}

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._kernels:
            return self._kernels[name]
        raise _UnknownKernelError("kernel", repr(name), ", ".join(self._kernels) or "none", "The source defines these.")

    def __getitem__(self, expression: str) -> Kernel:
        """The kernel of a name or of a C++ name expression; a template's instance is compiled when first asked for.

        Raises UnknownNameError for a kernel that the source does not define, CompileError for arguments that do not
        fit.
        """
        if expression not in self._kernels:
            compiled = compile_cuda(self._source, expression, **self._options)
            self._kernels[expression] = Kernel(compiled, self._device)
        return self._kernels[expression]

    def __dir__(self) -> list[str]:
        return sorted(name for name in self._kernels if name.isidentifier())

    def __repr__(self) -> str:
        names = ", ".join(self._kernels) or "no kernel"
        return f"<CUDA module of {names} for {self._options['arch']} on {self._device.name}>"


class _UnknownKernelError(UnknownNameError, AttributeError):
    """A kernel that a module does not have; an AttributeError too, so that ``hasattr`` answers."""


def load_cuda(
    source_or_path: str | Path,
    *,
    arch: str | None = None,
    macros: Mapping[str, str | int | float] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    compiler: str = "nvrtc",
    device: str = "auto",
) -> Module:
    """Compile a CUDA C++ source, text or a .cu file, and return its kernels as functions.

    ``arch`` defaults to the device's own; ``macros`` become ``-D``; ``device`` is ``"auto"``, ``"sim"`` or ``"cuda"``.

        module = load_cuda('extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }')
        module.twice(1, 32, tensor)

    Raises CompileError with the compiler's lines, ArgumentError, MissingToolError, DeviceUnavailableError.
    """
    target = devices.get(device)
    settings = {
        "arch": arch or target.arch,
        "macros": dict(macros or {}),
        "options": tuple(options),
        "include_dirs": tuple(include_dirs),
        "compiler": compiler,
    }
    return Module(compile_cuda_module(source_or_path, **settings), target, source_or_path, settings)
