"""What goes wrong in a kernel or with memory is the error that a GPU gives, stays, and says more."""

from __future__ import annotations

import numpy as np
import pytest

SOURCE = """
__global__ void beyond(float *x, int n) { x[threadIdx.x + n] = 1; }
__global__ void askew(char *x) { *(int *)(x + 1) = 1; }
__global__ void stop() { if (threadIdx.x == 3) __trap(); }
__global__ void claim(int n) { assert(n > 5); }
__global__ void for_ever(volatile int *x) { for (int n = 0; *x == 0; ++n) x[1] = n; }
__global__ void increment(int *x) { x[threadIdx.x] += 1; }
"""


@pytest.fixture
def kernels(context):
    from pycuda.compiler import SourceModule

    return SourceModule("#include <cassert>\n" + 'extern "C" {' + SOURCE + "}", no_extern_c=True)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("beyond", "an illegal memory access", "0 bytes past the end of x, which has 128 bytes"),
        ("askew", "misaligned address", "misaligned: 4 bytes"),
        ("stop", "unspecified launch failure", "trap"),
        ("claim", "device-side assert triggered", "n > 5"),
    ],
)
def test_a_fault_shows_at_the_next_call_and_stays(pycuda, driver, kernels, name, code, words):
    memory = pycuda.mem_alloc(128)
    arguments = {"beyond": (memory, np.int32(32)), "askew": (memory,), "stop": (), "claim": (np.int32(1),)}[name]
    kernels.get_function(name)(*arguments, block=(8, 1, 1))
    for call in (pycuda.Context.synchronize, lambda: pycuda.mem_alloc(4), pycuda.Context.synchronize):
        with pytest.raises(pycuda.Error, match=code) as caught:
            call()
        assert words in str(caught.value)
        assert "kernel.cu:" in str(caught.value), "the source line"
    assert driver.last_fault.kernel == name
    assert driver.last_fault.line is not None
    # Another context is not touched by it.
    other = pycuda.Device(0).make_context()
    pycuda.mem_alloc(4).free()
    other.pop()
    other.detach()


def test_memory_that_was_freed(pycuda, kernels):
    memory = pycuda.mem_alloc(128)
    address = int(memory)
    memory.free()
    with pytest.raises(pycuda.LogicError, match=r"byte 0 of an allocation of 128 bytes that was freed"):
        pycuda.memcpy_htod(address, np.zeros(4, np.int32))
    with pytest.raises(pycuda.LogicError, match="freed"):
        pycuda.memset_d8(address + 8, 0, 4)
    kernels.get_function("increment")(np.intp(address), block=(1, 1, 1))
    with pytest.raises(pycuda.Error, match=r"illegal memory access.*that was freed"):
        pycuda.Context.synchronize()


def test_a_pointer_of_another_allocation(pycuda, kernels):
    first, second = pycuda.mem_alloc(128), pycuda.mem_alloc(128)
    for bad in (
        lambda: pycuda.memcpy_htod(int(first) + 4, np.zeros(32, np.int32)),
        lambda: pycuda.memcpy_dtoh(np.zeros(33, np.int32), second),
        lambda: pycuda.memcpy_dtod(first, int(second) + 1, 128),
        lambda: pycuda.memset_d32(int(first) - 4, 0, 1),
    ):
        with pytest.raises(pycuda.LogicError, match="invalid argument"):
            bad()
    kernels.get_function("increment")(np.intp(int(first) + 96), block=(9, 1, 1))
    with pytest.raises(pycuda.Error, match="illegal memory access"):
        pycuda.Context.synchronize()


def test_memory_is_capped(pycuda, context):
    held = pycuda.mem_alloc(60 << 20)
    with pytest.raises(pycuda.MemoryError, match=r"5242880 bytes were asked for and 4194304 of 67108864 are free"):
        pycuda.mem_alloc(5 << 20)
    held.free()
    pycuda.mem_alloc(5 << 20).free()


def test_launches_beyond_the_limits(pycuda, kernels):
    increment, memory = kernels.get_function("increment"), pycuda.mem_alloc(8192)
    for shape in (
        {"block": (1025, 1, 1)},
        {"block": (32, 32, 2)},
        {"block": (0, 1, 1)},
        {"block": (1, 1, 65)},
        {"block": (1, 1, 1), "grid": (1, 65536)},
        {"block": (1, 1, 1), "shared": 48 * 1024 + 1},
    ):
        with pytest.raises(pycuda.LogicError, match="invalid argument"):
            increment(memory, **shape)
    with pytest.raises(pycuda.LogicError, match="dynamic shared memory"):
        increment.set_attribute(pycuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 * 1024)
    with pytest.raises(pycuda.LogicError, match=r"8 bytes of parameters, .* the launch brings 4"):
        increment(np.int32(1), block=(1, 1, 1))
    increment(memory, block=(1024, 1, 1))
    pycuda.Context.synchronize()


def test_what_cannot_be_loaded(pycuda, context):
    for image, words in (
        (b"no code at all", "neither PTX"),
        (b".version 9.0\n.target sm_90\n.address_size 64\n", "neither a kernel nor a variable"),
        (b".version 9.0\n.target sm_90\n.visible .entry f() {", "JIT compilation failed"),
        (b"\x50\xed\x55\xba" + bytes(60), "fatbin"),
    ):
        with pytest.raises(pycuda.Error, match=words):
            pycuda.module_from_buffer(image)
    video = b"""
    .version 8.0\n.target sm_90a\n.address_size 64
    .visible .entry f() { .reg .b32 %r<3>; vadd.s32.s32.s32 %r1, %r2, %r2; ret; }
    """
    module = pycuda.module_from_buffer(video)
    with pytest.raises(pycuda.LogicError, match="video instructions"):
        module.get_function("f")
    with pytest.raises(pycuda.LogicError, match="not found"):
        module.get_global("nothing")
    with pytest.raises(pycuda.LogicError, match="not found"):
        module.get_function("nothing")
