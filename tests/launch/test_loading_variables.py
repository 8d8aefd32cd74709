"""``module.globals`` and ``module.constant``: device variables seen from the host."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.errors import ArgumentError, UnknownNameError
from workbench.toolchain.c_types import declared_variables

SOURCE = """\
#include <cuda_bf16.h>
#define TAPS 4
constexpr int ROWS = 2;
struct Options { float scale; int shift; };
__constant__ float taps[TAPS] = {1, 2, 3, 4};
__constant__ Options options;
__constant__ int offset;
__device__ unsigned int counter = 7;
__device__ float4 table[ROWS][3];
__device__ double sized[TAPS * 2];
__device__ __nv_bfloat16 brain[2];
namespace inner { __device__ int depth; }
__device__ float unused;
__device__ float helper(float x) { return x + 1; }
extern "C" __global__ void apply(float *x) {
  x[threadIdx.x] = taps[threadIdx.x % TAPS] * options.scale + offset + table[1][2].w;
  if (threadIdx.x == 0) { counter += 1; sized[7] += inner::depth + __bfloat162float(brain[1]); }
}
extern "C" __global__ void count(unsigned int *x) { atomicAdd(&counter, 1); x[threadIdx.x] = counter; }
template <int N> __global__ void plus(float *x) { x[threadIdx.x] = taps[0] + N; counter += N; }
"""

devices = pytest.mark.parametrize("device", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])


def test_declarations_as_a_source_writes_them():
    found = declared_variables(SOURCE, {})
    assert found.pop("options").type is None, "a struct"
    assert {name: (one.type.dtype, one.shape) for name, one in found.items()} == {
        "taps": ("float32", (4,)),
        "offset": ("int32", ()),
        "counter": ("uint32", ()),
        "table": ("float32", (2, 3, 4)),
        "sized": ("float64", None),
        "brain": ("bfloat16", (2,)),
        "depth": ("int32", ()),
        "unused": ("float32", ()),
    }
    assert declared_variables("__constant__ T x[N];", {"T": "int", "N": 3})["x"].shape == (3,)


@devices
def test_constants_are_read_and_written(device: str):
    module = wb.load_cuda(SOURCE, device=device)
    taps = module.constant("taps")
    assert (taps.space, taps.dtype, taps.shape, taps.nbytes) == ("constant", np.float32, (4,), 16)
    assert taps.get().tolist() == [1, 2, 3, 4]
    taps.set([5, 6, 7, 8])
    module.globals["options"] = np.array([(2.0, 1)], dtype=[("scale", "f4"), ("shift", "i4")])[0].tobytes()
    module.globals["offset"] = 100
    assert int(module.globals["offset"].get()) == 100
    x = np.zeros(8, np.float32)
    module.apply(1, 8, x)
    assert x.tolist() == [110, 112, 114, 116] * 2


@devices
def test_globals_keep_what_kernels_write(device: str):
    module = wb.load_cuda(SOURCE, device=device)
    counter = module.globals["counter"]
    assert int(counter.get()) == 7, "the initial value"
    x = np.zeros(32, np.uint32)
    module.count(1, 32, x)
    module.apply(1, 32, np.zeros(32, np.float32))
    assert int(counter.get()) == 7 + 32 + 1, "both kernels see one variable"
    counter.set(np.uint32(1))
    module.count(1, 32, x)
    assert int(counter.get()) == 33


@devices
def test_loading_again_starts_from_the_initial_values(device: str):
    module = wb.load_cuda(SOURCE, device=device)
    module.globals["counter"] = 50
    module.globals["taps"] = 0
    again = wb.load_cuda(SOURCE, device=device)
    assert int(again.globals["counter"].get()) == 7
    assert again.globals["taps"].get().tolist() == [1, 2, 3, 4]
    again.count(1, 32, np.zeros(32, np.uint32))
    assert int(again.globals["counter"].get()) == 39


@devices
def test_an_instance_of_a_template_gets_what_the_host_wrote(device: str):
    module = wb.load_cuda(SOURCE, device=device)
    module.globals["taps"] = [10, 0, 0, 0]
    x = np.zeros(4, np.float32)
    module["plus<5>"](1, 1, x)
    assert x[0] == 15
    module.globals["taps"] = 20
    module["plus<5>"](1, 1, x)
    assert x[0] == 25


def test_shapes_and_dtypes():
    module = wb.load_cuda(SOURCE, device="sim")
    table = module.globals["table"]
    table.set(np.arange(24).reshape(2, 3, 4))
    assert table.get()[1, 2, 3] == 23
    sized = module.globals["sized"]
    assert (sized.dtype, sized.shape) == (np.float64, (8,)), "a size that is no number: flat"
    sized.set(torch.arange(8, dtype=torch.float64))
    assert sized.get().tolist() == list(range(8))
    module.globals["inner::depth"] = 3
    module.globals["brain"] = torch.tensor([0, 1.5], dtype=torch.bfloat16)
    x = np.zeros(1, np.float32)
    module.apply(1, 1, x)
    assert x[0] == 23
    assert sized.get()[7] == 7 + 3 + 1.5
    assert module.globals["options"].shape == (8,), "a struct is bytes"


def test_what_does_not_fit_is_refused():
    module = wb.load_cuda(SOURCE, device="sim")
    with pytest.raises(ArgumentError, match=r"shape \(3,\); allowed: float32 of shape \(4,\)"):
        module.globals["taps"] = [1, 2, 3]
    with pytest.raises(ArgumentError, match="values that uint32 can hold"):
        module.globals["counter"] = -1
    with pytest.raises(ArgumentError, match=r"float.*uint32"):
        module.globals["counter"] = 1.5
    with pytest.raises(ArgumentError, match="3 bytes; allowed: 8 bytes"):
        module.globals["options"] = b"123"
    with pytest.raises(UnknownNameError, match=r"taps, .*counter.*device or constant memory"):
        _ = module.globals["unused"]
    assert module.globals.get("unused") is None, "as any mapping answers"
    assert "ROWS" not in module.globals, "constexpr is no variable"
    with pytest.raises(UnknownNameError, match="use globals"):
        module.constant("counter")
    assert int(module.globals["counter"].get()) == 7


def test_how_they_read():
    module = wb.load_cuda(SOURCE, device="sim")
    assert repr(module.globals["taps"]) == "<constant variable taps: float32 4>"
    assert repr(module.globals["counter"]) == "<global variable counter: uint32 scalar>"
    assert "taps" in repr(module.globals)
    assert {"constant", "globals"} <= set(dir(module))
    plain = wb.load_cuda('extern "C" __global__ void k(float *x) { *x = 1; }', device="sim")
    assert len(plain.globals) == 0
    assert [name for name in dir(plain) if not name.startswith("_")] == ["k"]


def test_values_outlive_the_cache_of_programs():
    """As many other programs as the machine keeps at hand do not make it forget a module that is in use."""
    module = wb.load_cuda(SOURCE, device="sim")
    module.globals["counter"] = 1000
    from workbench import ptx

    for number in range(70):
        ptx.Program.from_text(
            f"// {number}\n.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
        )
    gc.collect()
    assert int(module.globals["counter"].get()) == 1000


def test_a_variable_of_a_type_that_is_no_plain_one_takes_an_array_of_its_shape():
    source = """typedef float T; using U = unsigned short; struct Point { float x, y; };
    __constant__ T table[3][31]; __constant__ U codes[2]; __constant__ Point points[3][5];
    extern "C" __global__ void read(float *out) {
        int i = threadIdx.x;
        out[i] = table[i][30 - i] + codes[i % 2] + points[i][4].y;
    }"""
    module = wb.load_cuda(source, device="sim")
    table = np.arange(93, dtype=np.float32).reshape(3, 31)
    points = np.zeros((3, 5), [("x", "f4"), ("y", "f4")])
    points["y"] = np.arange(15).reshape(3, 5) * 1000
    module.globals["table"], module.globals["codes"], module.globals["points"] = table, [100, 200], points
    out = np.zeros(3, np.float32)
    module.read(1, 3, out)
    assert out.tolist() == [30 + 100 + 4000, 60 + 200 + 9000, 90 + 100 + 14000]
    assert module.globals["points"].shape == (3, 5, 8)
    assert np.array_equal(module.globals["points"].get().view(points.dtype)[..., 0], points)
    with pytest.raises(ArgumentError, match="points"):
        module.globals["points"] = np.zeros((3, 5), np.float32)


POINTERS = """
typedef float (*Function)(float);
__device__ float square(float x) { return x * x; }
__device__ float negative(float x) { return -x; }
__device__ Function table[2] = {square, negative};
struct Shape {
    __device__ virtual float area(float x) { return x + 1; }
};
struct Scaled : Shape {
    float by;
    __device__ Scaled(float by) : by(by) {}
    __device__ float area(float x) override { return x * by; }
};
extern "C" __global__ void apply(float *out, Function function, int which) {
    out[threadIdx.x] = which < 0 ? function(threadIdx.x) : table[which](threadIdx.x);
}
extern "C" __global__ void areas(Shape **shapes, char *room, float *out) {
    char *place = room + 16 * threadIdx.x;
    shapes[threadIdx.x] = threadIdx.x % 2 ? new (place) Scaled(threadIdx.x) : new (place) Shape;
    __syncthreads();
    out[threadIdx.x] = shapes[7 - threadIdx.x]->area(10);
}
"""


def test_pointers_to_functions_pass_through_the_host_and_objects_through_memory():
    module = wb.load_cuda(POINTERS, device="sim")
    assert list(module.globals) == ["table"]
    addresses = module.globals["table"].get().reshape(-1).view(np.uint64).tolist()
    out = np.zeros(8, np.float32)
    for address, expected in zip(addresses, ([i * i for i in range(8)], [-i for i in range(8)]), strict=True):
        module.apply(1, 8, out, address, -1)
        assert out.tolist() == expected
    module.apply(1, 8, out, None, 1)
    assert out.tolist() == [-i for i in range(8)]
    shapes, room = np.zeros(8, np.int64), np.zeros(128, np.uint8)
    module.areas(1, 8, shapes, room, out)
    assert out.tolist() == [10 * i if i % 2 else 11 for i in reversed(range(8))]
