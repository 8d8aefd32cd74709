"""One PTX module out of several, by the driver's linker."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest
from test_library import SIZE, VOID, allocated, made, said

from workbench.driver.linking import linked
from workbench.errors import ArgumentError
from workbench.ptx import Program
from workbench.toolchain import nvrtc
from workbench.toolchain.source import Source

CALLER = """
extern "C" __device__ int twice(int x);
extern __device__ int offset;
static __device__ __noinline__ int own(int x) { return x + offset; }
extern "C" __global__ void go(int *x) { x[threadIdx.x] = own(twice(threadIdx.x)); printf("%d\\n", x[0]); }
"""
CALLED = """
__device__ int offset = 100;
static __device__ __noinline__ int own(int x) { return 2 * x; }
extern "C" __device__ int twice(int x) { return own(x); }
"""


@functools.cache
def compiled(text: str) -> str:
    source = Source(text, "part.cu", "part.cu", None)
    return nvrtc.compile(source, [], "sm_80", ["--relocatable-device-code=true"], [], machine_code=False).ptx


@pytest.mark.parametrize("turned", [False, True])
def test_modules_that_use_each_others_names(turned: bool, capsys: pytest.CaptureFixture):
    parts = [compiled(CALLER), compiled(CALLED)]
    out = np.zeros(4, np.int32)
    Program.from_text(linked(parts[::-1] if turned else parts, "sm_80"))["go"].launch(1, 4, [out])
    assert out.tolist() == [100, 102, 104, 106]
    assert capsys.readouterr().out == "100\n" * 4
    one = "// kept as it is\n" + parts[0]
    assert linked([one], "sm_80") == one


def test_what_cannot_be_linked():
    with pytest.raises(ArgumentError, match=r"(twice|offset).*one definition"):
        linked([compiled(CALLED), compiled(CALLED.replace("static", ""))], "sm_80")
    with pytest.raises(ArgumentError, match="version"):
        linked(["no PTX", "either"], "sm_80")
    launches = '__global__ void child() {} extern "C" __global__ void go() { child<<<1, 1>>>(); }'
    with pytest.raises(ArgumentError, match="Dynamic parallelism is not supported"):
        linked([compiled(launches)], "sm_80")


def test_the_drivers_linker(cuda, tmp_path):
    link, image, size = VOID(), VOID(), SIZE()
    assert cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(link)) == 0
    for text in (CALLER, CALLED):
        data = compiled(text).encode()
        assert cuda.cuLinkAddData_v2(link, 1, data, SIZE(len(data)), b"part", 0, None, None) == 0
    runtime, other = tmp_path / "libcudadevrt.a", tmp_path / "libother.a"
    for file, expected in ((runtime, 0), (other, 801)):
        file.write_bytes(b"!<arch>\n" + bytes(64))
        assert cuda.cuLinkAddFile_v2(link, 4, str(file).encode(), 0, None, None) == expected
    assert "-ptx -rdc=true" in said(cuda, 801)
    assert cuda.cuLinkComplete(link, ctypes.byref(image), ctypes.byref(size)) == 0
    assert size.value == len(ctypes.string_at(image.value)) + 1
    function = made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, image), b"go")
    assert cuda.cuLinkDestroy(link) == 0
    memory, out = allocated(cuda, 16), np.zeros(4, np.int32)
    parameters = (VOID * 1)(ctypes.addressof(memory))
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, None, parameters, None) == 0
    assert cuda.cuMemcpyDtoH_v2(VOID(out.ctypes.data), memory, SIZE(16)) == 0
    assert out.tolist() == [100, 102, 104, 106]


def test_cooperative_groups_of_the_device_runtime(cuda):
    """Numba calls these by name; its kernels find them in libcudadevrt.a."""
    declared = """
    .version 8.0
    .target sm_80
    .address_size 64
    .extern .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
    .visible .entry go(.param .u64 out)  // block 0 waits for what block 1 writes
    {
        .param .b64 a; .param .b32 b; .param .b32 c; .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<2>;
        ld.param.u64 %rd1, [out];
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r1, 0;
        @!%p1 st.volatile.global.u32 [%rd1], 5;
        st.param.b64 [a], 0; st.param.b32 [b], 0; call.uni (c), cudaCGSynchronize, (a, b);
        ld.volatile.global.u32 %r2, [%rd1];
        @%p1 st.volatile.global.u32 [%rd1+4], %r2;
        ret;
    }
    """
    text = linked([declared], "sm_80", device_runtime=True)
    function = made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, text.encode()), b"go")
    memory, out = allocated(cuda, 8), np.zeros(2, np.int32)
    parameters = (VOID * 1)(ctypes.addressof(memory))
    assert cuda.cuLaunchCooperativeKernel(function, 2, 1, 1, 1, 1, 1, 0, None, parameters) == 0
    assert cuda.cuMemcpyDtoH_v2(VOID(out.ctypes.data), memory, SIZE(8)) == 0
    assert out.tolist() == [5, 5]
