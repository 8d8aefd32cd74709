"""The host's memory behind the driver's: calls that it has none left for, and what goes back to it."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = '''
import ctypes, resource
from pathlib import Path

from workbench.driver import simulated_driver

PTX = """
.version 8.0
.target sm_80
.address_size 64
{variables}
.visible .entry deep(.param .u64 out)
{{
    .local .align 8 .b8 depot[100000];
    .reg .b32 %r<4>;
    .reg .b64 %d<4>;
    mov.u32 %r1, %tid.x;
    mov.u64 %d1, depot;
    st.local.u32 [%d1], %r1;
    ld.local.u32 %r2, [%d1];
    ld.param.u64 %d2, [out];
    mad.wide.u32 %d2, %r1, 4, %d2;
    st.global.u32 [%d2], %r2;
    ret;
}}
"""
simulated_driver(force=True, memory_bytes=1 << 30)
cuda = ctypes.CDLL("libcuda.so.1")
pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64


def limited(call):
    highest = resource.getrlimit(resource.RLIMIT_AS)[1]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), highest))
    try:
        return call()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (highest, highest))


def made(create, *arguments):
    out = pointer()
    assert create(ctypes.byref(out), *arguments) == 0
    return out


def said(code):
    text = ctypes.c_char_p()
    assert cuda.cuGetErrorString(code, ctypes.byref(text)) == 0
    return text.value.decode()


assert cuda.cuInit(0) == 0
context = made(cuda.cuCtxCreate_v2, 0, 0)
module = made(cuda.cuModuleLoadData, PTX.format(variables="").encode())
function = made(cuda.cuModuleGetFunction, module, b"deep")
out = number()
assert cuda.cuMemAlloc_v2(ctypes.byref(out), size(4096)) == 0
values = (pointer * 1)(ctypes.addressof(out))
launch = lambda: cuda.cuLaunchKernel(function, 1, 1, 1, 1024, 1, 1, 0, None, values, None)
host = pointer()
large = PTX.format(variables=".global .align 4 .b8 table[100000000];").encode()
for call, words in (
    (lambda: cuda.cuMemAlloc_v2(ctypes.byref(number()), size(64 << 20)), "67108864 bytes"),
    (lambda: cuda.cuMemAllocManaged(ctypes.byref(number()), size(64 << 20), 1), "67108864 bytes"),
    (lambda: cuda.cuMemAllocHost_v2(ctypes.byref(host), size(64 << 20)), "67108864 bytes"),
    (launch, "1024 threads x 100000 bytes of local memory"),
    (lambda: cuda.cuModuleLoadData(ctypes.byref(pointer()), large), "memory"),
):
    assert limited(call) == 2, said(limited(call))
    assert words in said(2), said(2)
    assert call() == 0, said(2)
back = (ctypes.c_uint32 * 1024)()
assert cuda.cuMemcpyDtoH_v2(back, out, size(4096)) == 0
assert list(back) == list(range(1024))
assert cuda.cuCtxDestroy_v2(context) == 0
print("done")
'''


def test_calls_without_memory() -> None:
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


FREEING = """
import ctypes
from pathlib import Path

from workbench.driver import simulated_driver

simulated_driver(force=True, memory_bytes=1 << 30)
cuda = ctypes.CDLL("libcuda.so.1")
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def allocated(size):
    out = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(size)) == 0
    assert cuda.cuMemsetD8_v2(out, 1, ctypes.c_size_t(size)) == 0
    return out


assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0) == 0
assert cuda.cuMemFree_v2(allocated(20 << 20)) == 0  # after which malloc takes blocks of 2 MiB from its heap
before = resident()
blocks = [allocated(2 << 20) for _ in range(50)]
full = resident()
for block in blocks[:-1]:
    assert cuda.cuMemFree_v2(block) == 0
print(full - before > 99 << 20, resident() - before < 20 << 20)
"""


def test_freed_memory_goes_back_to_the_host() -> None:
    """The caching allocator of torch takes blocks of 2 and 20 MiB and frees them out of order."""
    done = subprocess.run([sys.executable, "-c", FREEING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr[-2000:]
