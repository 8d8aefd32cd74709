"""NVIDIA's Python packages in a process with the simulated driver: cuda.core, Numba over it, cuda.bindings.runtime.

cuda.core and Numba would compile, or link with nvJitLink, to machine code, which the PTX machine does not run. Here
``Program.compile`` returns PTX for "cubin", and nvJitLink reports no version, so that its clients use the driver's own
linker, which returns PTX too. cuda.bindings.runtime contains NVIDIA's static runtime, which only runs on NVIDIA's
driver; its functions are replaced by those of our runtime. NVIDIA's libraries of kernels are refused by name.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any

from workbench.driver.imports import when_imported

_DEVICE_LIBRARIES = (
    "cublas", "cublasLt", "cudnn", "cufft", "curand", "cusolver", "cusolverMg", "cusparse", "cusparseLt", "cutensor",
    "cutensorMg", "nccl",
)  # fmt: skip


def give_ptx() -> None:
    """Make cuda.core compile to PTX, once it is imported."""
    when_imported("cuda.bindings._internal.nvjitlink", _without_nvjitlink)
    when_imported("cuda.core", _compile_to_ptx)


def serve_runtime(runtime: Path) -> None:
    """Make cuda.bindings.runtime call the CUDA runtime at this path, once it is imported."""
    for name in ("cuda.bindings._internal.runtime", "cuda.bindings._internal.runtime_ptds"):
        when_imported(name, functools.partial(_exchange_functions, name, runtime))


def refuse_libraries(runtime: Path) -> None:
    """Make cuda.pathfinder refuse NVIDIA's libraries of kernels, except those that lie beside this runtime."""
    when_imported("cuda.pathfinder", functools.partial(_refuse_libraries, runtime))


def _refuse_libraries(runtime: Path) -> None:
    pathfinder: Any = sys.modules["cuda.pathfinder"]
    load = pathfinder.load_nvidia_dynamic_lib

    @functools.wraps(load)
    def load_or_refuse(libname: str) -> Any:
        if libname in _DEVICE_LIBRARIES and not any(runtime.parent.glob(f"lib{libname}.so.*")):
            raise pathfinder.DynamicLibNotFoundError(
                f"lib{libname}: NVIDIA's library only runs on NVIDIA's driver, not on the simulated one. Do this step "
                "on the host: with NumPy or SciPy on cupy.asnumpy(...)"
            )
        return load(libname)

    pathfinder.load_nvidia_dynamic_lib = load_or_refuse


def _exchange_functions(name: str, runtime: Path) -> None:
    """Replace the functions in a Cython module's table, from which its clients take addresses, by the runtime's.

    Each ``_cudaMalloc`` there has the parameters of ``cudaMalloc``. A function that the runtime does not export stays.
    """
    library = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    capsules: dict[str, Any] = sys.modules[name].__pyx_capi__
    for function, capsule in capsules.items():
        ours = getattr(library, function.removeprefix("_"), None) if function.startswith("_cuda") else None
        if ours is not None:
            address = ctypes.cast(ours, ctypes.c_void_p)
            capsules[function] = _new_capsule(address, _name_of_capsule(capsule), None)


_name_of_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def _without_nvjitlink() -> None:
    # Clients look up nvJitLink's version function first, and use the driver's linker if there is none.
    nvjitlink: Any = sys.modules["cuda.bindings._internal.nvjitlink"]
    nvjitlink._inspect_function_pointer = lambda name: 0


def _compile_to_ptx() -> None:
    core: Any = sys.modules["cuda.core"]

    class Program(core.Program):
        def compile(self, target_type: str, *arguments: Any, **options: Any) -> Any:
            return super().compile("ptx" if target_type == "cubin" else target_type, *arguments, **options)

    Program.__module__, Program.__doc__ = core.Program.__module__, core.Program.__doc__
    core.Program = Program
