"""Compilers: CUDA C++ and Triton to PTX and machine code, with no GPU and no driver, cached on disk."""

from workbench.toolchain.cuda import compile_cuda, compile_cuda_module
from workbench.toolchain.kernel import CompiledKernel, CompiledModule
from workbench.toolchain.occupancy import Occupancy, limits_of
from workbench.toolchain.triton_aot import compile_triton

__all__ = [
    "CompiledKernel",
    "CompiledModule",
    "Occupancy",
    "compile_cuda",
    "compile_cuda_module",
    "compile_triton",
    "limits_of",
]
