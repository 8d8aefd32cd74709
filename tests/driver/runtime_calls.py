"""The CUDA runtime by ctypes, in this process and without nvcc: its calls, and kernels in PTX."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.driver.library_files import library_path

VOID, SIZE, INT, UINT, U64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint, ctypes.c_uint64
TO_DEVICE, TO_HOST, BY_ADDRESS = 1, 2, 4
KERNELS = """.version 8.3
.target sm_90
.address_size 64
.visible .entry add(.param .u64 place, .param .u32 number)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<4>;
  ld.param.u64 %rd1, [place];
  ld.param.u32 %r1, [number];
  ld.global.u32 %r2, [%rd1];
  add.s32 %r3, %r1, %r2;
  st.global.u32 [%rd1], %r3;
  ret;
}
.visible .entry store(.param .u64 place, .param .u32 number)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<4>;
  ld.param.u64 %rd1, [place];
  ld.param.u32 %r1, [number];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r1;
  ret;
}
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry count_down(.param .u64 place, .param .u64 handle)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [place];
  ld.param.u64 %rd2, [handle];
  ld.global.u32 %r1, [%rd1];
  sub.s32 %r2, %r1, 1;
  st.global.u32 [%rd1], %r2;
  {
  .param .b64 a;
  st.param.b64 [a], %rd2;
  .param .b32 b;
  st.param.b32 [b], %r2;
  call.uni cudaGraphSetConditional, (a, b);
  }
  ret;
}
.extern .func (.param .b64 result) malloc(.param .b64 bytes);
.extern .func free(.param .b64 pointer);
.visible .entry make(.param .u64 out, .param .u64 size)
{
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [size];
  {
  .param .b64 bytes;
  st.param.b64 [bytes], %rd2;
  .param .b64 result;
  call.uni (result), malloc, (bytes);
  ld.param.b64 %rd3, [result];
  }
  st.global.u64 [%rd1], %rd3;
  ret;
}
.visible .entry end(.param .u64 block)
{
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [block];
  {
  .param .b64 pointer;
  st.param.b64 [pointer], %rd1;
  call.uni free, (pointer);
  }
  ret;
}
.visible .entry read_bytes(.param .u64 place)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [place];
  mov.u32 %r1, %tid.x;
  cvt.u64.u32 %rd2, %r1;
  add.s64 %rd1, %rd1, %rd2;
  ld.global.u8 %r2, [%rd1];
  ret;
}
"""


class Dim3(ctypes.Structure):
    _fields_ = (("x", UINT), ("y", UINT), ("z", UINT))


class Runtime:
    """``runtime.cudaX(...)`` calls it and returns its code; ``new(name, type, ...)`` what it wrote to its first one."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(library_path().with_name("libcudart.so.13")), mode=ctypes.RTLD_GLOBAL)
        self.library.cudaGetErrorString.restype = self.library.cudaGetErrorName.restype = ctypes.c_char_p
        self._kernels: dict[str, VOID] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def new(self, name: str, kind: Any = VOID, *arguments: Any) -> Any:
        made = kind()
        self.did(name, ctypes.byref(made), *arguments)
        return made

    def did(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name}: {self.said(code)}"

    def said(self, code: int) -> str:
        return self.library.cudaGetErrorString(code).decode()

    def load(self, text: str = KERNELS) -> VOID:
        nothing = (None, None, 0) * 2
        return self.new("cudaLibraryLoadData", VOID, text.encode(), *nothing)

    def kernel(self, name: str, library: VOID | None = None) -> VOID:
        return self.new("cudaLibraryGetKernel", VOID, library or self.load(), name.encode())

    def launch(self, kernel: VOID, values: Sequence[Any], threads: int = 1, stream: VOID | int | None = None) -> int:
        pointers = (VOID * len(values))(*[ctypes.addressof(value) for value in values])
        return self.library.cudaLaunchKernel(kernel, Dim3(1, 1, 1), Dim3(threads, 1, 1), pointers, SIZE(0), stream)

    def array(self, values: Sequence[int]) -> VOID:
        raw = np.array(values, np.uint32)
        place = self.new("cudaMalloc", VOID, SIZE(raw.nbytes))
        self.did("cudaMemcpy", place, VOID(raw.ctypes.data), SIZE(raw.nbytes), TO_DEVICE)
        return place

    def values(self, place: VOID, count: int = 1) -> list[int]:
        raw = np.zeros(count, np.uint32)
        self.did("cudaMemcpy", VOID(raw.ctypes.data), place, SIZE(raw.nbytes), TO_HOST)
        return raw.tolist()
