"""What a launch of ``load_cuda`` takes and refuses, by the types that the source declares."""

from __future__ import annotations

import ctypes
import struct
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.errors import ArgumentError, KernelFault, UncheckedTypeWarning
from workbench.launch.gpu import Gpu
from workbench.toolchain.c_types import ANYTHING, CType, c_type

SOURCE = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>
struct Pair { int first; float second; };
typedef float Real;
extern "C" __global__ void floats(float *x, const float *__restrict__ y) { x[threadIdx.x] = y[threadIdx.x]; }
extern "C" __global__ void ints(unsigned int *x, const long long *y) { x[threadIdx.x] = y[threadIdx.x]; }
extern "C" __global__ void halves(__half *x, __half factor) { x[threadIdx.x] = x[threadIdx.x] * factor; }
extern "C" __global__ void brains(__nv_bfloat16 *x, __nv_bfloat16 factor) { x[threadIdx.x] = factor; }
extern "C" __global__ void fours(float4 *x) { x[threadIdx.x].w = 4; }
extern "C" __global__ void structs(float *x, Pair pair) { x[threadIdx.x] = pair.first * pair.second; }
extern "C" __global__ void unknown(Real *x, SCALAR *y) { x[threadIdx.x] = y[threadIdx.x]; }
extern "C" __global__ void untyped(void *x) { ((float *)x)[threadIdx.x] = 1; }
template <typename T> __global__ void any(T *x, T value) { x[threadIdx.x] = value; }
"""


class HostGpu(Gpu):
    """The device "cuda" without one: what it does before the driver has the launch."""

    def __init__(self):
        cuda = SimpleNamespace(
            current_device=lambda: 0,
            get_device_capability=lambda index: (9, 0),
            is_current_stream_capturing=lambda: False,
        )
        host = SimpleNamespace(to=lambda device: torch.zeros(1))
        self._attach(None, SimpleNamespace(cuda=cuda, from_numpy=lambda array: host))


@pytest.fixture(scope="module")
def module():
    return wb.load_cuda(SOURCE, macros={"SCALAR": "double"}, device="sim")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float *", CType("float32", pointer=True)),
        ("const float* __restrict__", CType("float32", pointer=True, constant=True)),
        ("float const *", CType("float32", pointer=True, constant=True)),
        ("float * const", CType("float32", pointer=True)),
        ("unsigned long long", CType("uint64")),
        ("unsigned", CType("uint32")),
        ("long int", CType("int64")),
        ("signed char", CType("int8")),
        ("std::uint16_t *", CType("uint16", pointer=True)),
        ("const int4 *", CType("int32", 4, pointer=True, constant=True)),
        ("half2", CType("float16", 2)),
        ("__nv_bfloat16", CType("bfloat16")),
        ("SCALAR *", CType("float64", pointer=True)),
        ("T *", None),
        ("float **", CType("uint64", pointer=True)),
        ("const void *", CType(ANYTHING, pointer=True, constant=True)),
        ("struct Pair *", CType(ANYTHING, pointer=True)),
        ("Pair", None),
        ("const float &", None),
        ("vec<float, 4> *", None),
    ],
)
def test_types_as_a_source_writes_them(text: str, expected: CType | None):
    assert c_type(text, {"SCALAR": "double"}) == expected


@pytest.mark.parametrize(
    ("kernel", "args", "message"),
    [
        ("floats", (np.zeros(32), np.zeros(32, np.float32)), r"floats\(\): argument 0 'x': got an array of float64"),
        ("floats", (torch.zeros(32), torch.zeros(32, dtype=torch.float16)), r"argument 1 'y': got an array of float16"),
        ("floats", (torch.zeros(32), torch.zeros(32, dtype=torch.int32)), "allowed: float32"),
        ("ints", (np.zeros(32, np.int32), np.zeros(32, np.int32)), r"argument 1 'y': got an array of int32"),
        ("ints", (np.zeros(32, np.float32), np.zeros(32, np.int64)), r"argument 0 'x': got an array of float32"),
        ("halves", (torch.zeros(32, dtype=torch.bfloat16), 1.0), "got an array of bfloat16; allowed: float16"),
        ("brains", (torch.zeros(32, dtype=torch.float16), 1.0), "got an array of float16; allowed: bfloat16"),
        ("fours", (np.zeros(128, np.float64),), "allowed: float32"),
        ("unknown", (np.zeros(32, np.float32), np.zeros(32, np.float32)), r"argument 1 'y': got an array of float32"),
        ("unknown", (np.zeros(64, np.int16), np.zeros(32, np.float64)), "argument 0 'x': got an array of int16"),
    ],
)
def test_an_array_of_the_wrong_dtype_is_refused(module, kernel: str, args: tuple, message: str):
    with pytest.raises(ArgumentError, match=message):
        getattr(module, kernel)(1, 32, *args)
    with pytest.raises(ArgumentError, match=message):
        wb.check_kernel(getattr(module, kernel), grid=1, block=32, args=args)
    with pytest.raises(ArgumentError, match=message):
        wb.trace_kernel(getattr(module, kernel), grid=1, block=32, args=args)


@pytest.mark.parametrize(
    ("kernel", "args"),
    [
        ("ints", (np.zeros(32, np.int32), np.zeros(32, np.uint64))),  # the sign is the kernel's business
        ("floats", (np.zeros(128, np.uint8), np.zeros(32, np.float32))),  # raw bytes
        ("fours", (torch.zeros(32, 4),)),
        ("fours", (np.zeros(32, [("x", "f4", 4)]),)),
        ("untyped", (np.zeros(32, np.int32),)),
        ("floats", (torch.zeros(32), None)),
    ],
)
def test_the_same_bits_are_taken(module, kernel: str, args: tuple):
    if args[-1] is None:
        with pytest.raises(KernelFault):
            getattr(module, kernel)(1, 32, *args)
    else:
        assert getattr(module, kernel)(1, 32, *args).instructions > 0


def test_numbers_for_half_parameters(module):
    x = np.ones(32, np.float16)
    for factor, expected in ((0.5, 0.5), (np.float32(3), 1.5), (2, 3.0), (np.float16(2), 6.0)):
        module.halves(1, 32, x, factor)
        assert set(x.tolist()) == {expected}
    with pytest.raises(ArgumentError, match="a value that float16 can hold"):
        module.halves(1, 32, x, 1e6)
    with pytest.raises(ArgumentError, match="argument 1 'factor'"):
        module.halves(1, 32, x, "2")
    module.halves(1, 32, x, float("inf"))
    assert np.isinf(x).all()


@pytest.mark.parametrize(
    "value", [1.0, -3.140625, 1.00390625, 1.01171875, 3.3895e38, float("inf"), float("nan"), 1e-40]
)
def test_numbers_for_bfloat16_parameters_round_to_nearest_even(module, value: float):
    x = torch.zeros(32, dtype=torch.bfloat16)
    module.brains(1, 32, x, value)
    torch.testing.assert_close(x, torch.full((32,), value, dtype=torch.bfloat16), rtol=0, atol=0, equal_nan=True)


def test_bfloat16_overflow_is_refused(module):
    with pytest.raises(ArgumentError, match="a value that bfloat16 can hold"):
        module.brains(1, 32, torch.zeros(32, dtype=torch.bfloat16), 3.4e38)


def test_structs_by_value(module):
    class Pair(ctypes.Structure):
        _fields_ = [("first", ctypes.c_int), ("second", ctypes.c_float)]

    record = np.array([(3, 1.5)], dtype=[("first", "i4"), ("second", "f4")])[0]
    for pair in (struct.pack("<if", 3, 1.5), Pair(3, 1.5), record):
        x = np.zeros(32, np.float32)
        module.structs(1, 32, x, pair)
        assert set(x.tolist()) == {4.5}
    with pytest.raises(ArgumentError, match="a struct of 8 bytes"):
        module.structs(1, 32, np.zeros(32, np.float32), b"1234")


def test_arrays_that_are_not_contiguous(module):
    y = np.arange(64, dtype=np.float32)[::2]
    with pytest.raises(ArgumentError, match=r"strides \(8,\).*ascontiguousarray"):
        module.floats(1, 32, np.zeros(32, np.float32), y)


@pytest.mark.parametrize("way", ["launch", "check", "trace", "ptx"])
def test_views_of_tensors_are_refused_unless_the_kernel_knows_their_strides(way: str):
    """In place such a kernel would write between the elements of the view."""
    source = 'extern "C" __global__ void doubled(float *x) { x[threadIdx.x * STEP] *= 2; }'
    x = torch.arange(64, dtype=torch.float32)
    before = x.clone()

    def call(kernel):
        if way in ("check", "trace"):
            getattr(wb, f"{way}_kernel")(kernel, grid=1, block=32, args=[x[::2]])
        else:
            kernel(1, 32, x[::2])

    module = wb.load_cuda(source, macros={"STEP": 1})
    refusing = wb.load_ptx(module.doubled.compiled.ptx) if way == "ptx" else module
    with pytest.raises(ArgumentError, match=r"': got a tensor of shape \(32,\) with strides \(2,\).*strided=True"):
        call(refusing.doubled)
    assert torch.equal(x, before)
    module = wb.load_cuda(source, macros={"STEP": 2}, strided=True)
    knowing = wb.load_ptx(module.doubled.compiled.ptx, strided=True) if way == "ptx" else module
    call(knowing.doubled)
    assert torch.equal(x[::2], before[::2] * 2)
    assert torch.equal(x[1::2], before[1::2])


@pytest.mark.parametrize("lazy", [torch.conj, torch._neg_view], ids=["conjugate", "negative"])
def test_views_that_are_computed_when_they_are_read_are_refused(lazy):
    module = wb.load_cuda('extern "C" __global__ void real(float *out, const float2 *x) { *out = x->y; }')
    with pytest.raises(ArgumentError, match=r"'x'.*of its memory.*Pass \.resolve_"):
        module.real(1, 1, torch.zeros(1), lazy(torch.ones(1, dtype=torch.complex64)))


def test_read_only_arrays_can_be_read(module):
    y = np.arange(32, dtype=np.float32)
    y.flags.writeable = False
    x = np.zeros(32, np.float32)
    module.floats(1, 32, x, y)
    assert x.tolist() == y.tolist()
    with pytest.raises(KernelFault):
        module.floats(1, 32, y, x)
    assert y.tolist() == list(range(32))


def test_a_read_only_array_is_refused_on_cuda_where_the_kernel_may_write(module):
    """There it would be copied to the GPU, and what the kernel writes be lost."""
    x, y = np.zeros(32, np.float32), np.zeros(32, np.float32)
    y.flags.writeable = False
    device, kernel = HostGpu(), module.floats
    assert len(device.bind(kernel.compiled, 1, 32, [x, y], signature=kernel.signature).memory.copies) == 2
    with pytest.raises(ArgumentError, match="argument 0 'x': got a read-only array"):
        device.bind(kernel.compiled, 1, 32, [y, y], signature=kernel.signature)


@pytest.mark.parametrize("size", [0, -1, (1, 0), (1, 1, 1, 1), 1.5, True, "1", ()])
def test_grids_and_blocks_that_no_gpu_takes(module, size):
    x = np.zeros(32, np.float32)
    with pytest.raises(ArgumentError, match="grid"):
        module.floats(size, 32, x, x)
    with pytest.raises(ArgumentError, match="block"):
        module.floats(1, size, x, x)


def test_more_threads_or_shared_memory_than_a_block_has(module):
    x = np.zeros(2048, np.float32)
    with pytest.raises(ArgumentError, match="2048 threads"):
        module.floats(1, (1024, 2), x, x)
    with pytest.raises(ArgumentError, match="shared_bytes"):
        module.floats(1, 32, x, x, shared_bytes=1 << 20)
    assert module.floats(np.int64(1), (np.int32(32),), x, x).instructions


def test_an_instance_of_a_template_takes_its_own_dtype(module):
    x = np.zeros(32, np.float64)
    module["any<double>"](1, 32, x, 2.5)
    assert set(x.tolist()) == {2.5}
    half = torch.zeros(32, dtype=torch.float16)
    module["any<__half>"](1, 32, half, 2.5)
    assert set(half.tolist()) == {2.5}
    with pytest.raises(ArgumentError, match=r"any<float>\(\): argument 0 'x': got an array of int32; allowed: float32"):
        module["any<float>"](1, 32, np.zeros(32, np.int32), 2.5)
    with pytest.raises(ArgumentError, match=r"any<Real>\(\): argument 0 'x': got an array of int32; allowed: float32"):
        module["any<Real>"](1, 32, np.zeros(32, np.int32), 2.5)


BEHIND = r"""
#include <cuda_fp16.h>
#define REAL float
typedef int T;
using half_t = __half;
enum Kind { A, B };
#if __CUDA_ARCH__ >= 1000
typedef double wide;
#else
typedef float wide;
#endif
extern "C" __global__ void macro(REAL *x) { x[threadIdx.x] = 1; }
extern "C" __global__ void typed(T *x) { x[threadIdx.x] = 1; }
extern "C" __global__ void defined(SCALAR *x) { x[threadIdx.x] = 1; }
extern "C" __global__ void scaled(half_t *x, half_t by) { x[threadIdx.x] *= by; }
extern "C" __global__ void kinds(Kind *x) { x[threadIdx.x] = B; }
extern "C" __global__ void unsure(wide *x) { x[threadIdx.x] = 1; }
__global__ void exact(wide *x) { x[threadIdx.x] = 1; }
"""
WRONG_BEHIND = {"macro": "int32", "typed": "float32", "defined": "int32", "kinds": "float32", "exact": "int32"}


@pytest.fixture(scope="module")
def behind():
    return wb.load_cuda(BEHIND, macros={"SCALAR": "float"}, device="sim")


@pytest.mark.parametrize("name", WRONG_BEHIND)
def test_types_behind_names_are_checked(behind, name: str):
    right = {"float32": torch.int32, "int32": torch.float32}[WRONG_BEHIND[name]]
    x = torch.zeros(32, dtype=right)
    behind[name](1, 32, x)
    assert set(x.tolist()) == {1}
    with pytest.raises(ArgumentError, match=rf"{name}\(\): argument 0 'x': got an array of {WRONG_BEHIND[name]}"):
        behind[name](1, 32, torch.zeros(32, dtype=getattr(torch, WRONG_BEHIND[name])))


def test_a_number_for_a_half_behind_a_name(behind):
    x = torch.full((32,), 3, dtype=torch.float16)
    behind.scaled(1, 32, x, 0.5)
    assert set(x.tolist()) == {1.5}


def test_a_type_that_the_text_does_not_tell_is_a_warning(behind):
    x = torch.zeros(32)
    with pytest.warns(UncheckedTypeWarning, match=r"unsure\(\): argument 0 'x': the dtype of this array, float32, is"):
        behind.unsure(1, 32, x)
    assert set(x.tolist()) == {1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        behind.unsure(1, 32, x.view(torch.uint8))  # raw bytes go anywhere
        behind.exact(1, 32, x)  # its name has the types
