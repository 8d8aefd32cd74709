"""A client that asks NVRTC for machine code and loads it by the driver: through ctypes, by its path, and cuda.bindings.

fixed: prints 1.0 to 4.0. bug: an index one too far is found at its line. bindings: as fixed, through cuda.bindings.
"""

import ctypes
import sys

import torch

LESS = "<=" if sys.argv[1] == "bug" else "<"
SOURCE = f"""
extern "C" __global__ void count(float *y, int n)
{{
    int i = threadIdx.x;
    if (i {LESS} n) y[i] = i + 1;
}}
""".encode()


def by_ctypes() -> bytes:
    from nvidia import cu13

    nvrtc = ctypes.CDLL(f"{next(iter(cu13.__path__))}/lib/libnvrtc.so.13")
    program, size, options = ctypes.c_void_p(), ctypes.c_size_t(), [b"--gpu-architecture=sm_90"]
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"count.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(*options)) == 0
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    code = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, code) == 0
    assert nvrtc.nvrtcDestroyProgram(ctypes.byref(program)) == 0
    return code.raw


def by_bindings() -> bytes:
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(SOURCE, b"count.cu", 0, [], [])
    assert nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_90"])[0] == 0
    code = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
    assert nvrtc.nvrtcGetCUBIN(program, code)[0] == 0
    return code


y = torch.zeros(4, device="cuda")
cuda, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuModuleLoadData(ctypes.byref(module), by_bindings() if "bindings" in sys.argv else by_ctypes()) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"count") == 0
given = ctypes.c_void_p(y.data_ptr()), ctypes.c_int(4)
pointers = (ctypes.c_void_p * 2)(*[ctypes.addressof(one) for one in given])
assert cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, pointers, None) == 0
print(y.tolist())
