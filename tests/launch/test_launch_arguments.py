"""What a launch accepts, refuses and packs, from the parameters that the PTX declares. Nothing runs here."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from workbench.errors import ArgumentError
from workbench.launch import parameters
from workbench.toolchain import CompiledKernel, compile_cuda, compile_triton

SOURCE = """
struct Pair { int first; double second; };
extern "C" __global__ void every(float *array, unsigned char small, short middle, int n, long long wide, float f,
                                 double d, bool flag, Pair pair)
{ array[n] = small + middle + wide + f + d + flag + pair.first; }
extern "C" __global__ void __launch_bounds__(128) bounded(float *x)
{ __shared__ float tile[1024]; tile[threadIdx.x] = *x; __syncthreads(); *x = tile[5]; }
"""
PLAIN = """
extern "C" __global__ void plain(float *first, float *second, unsigned char u8, int n, long long wide, float f,
                                 double d)
{ second[n] = first[u8] + wide + f + d; }
struct Holder { float *data; };
extern "C" __global__ void holder(Holder held) { held.data[threadIdx.x] = 1; }
"""
GOOD = [np.zeros(4, np.float32), 255, -5, -(2**31), 2**40, 1.5, 2.5, True, bytes(16)]


@pytest.fixture(scope="module")
def every() -> CompiledKernel:
    return compile_cuda(SOURCE, "every")


@pytest.fixture(scope="module")
def plain() -> CompiledKernel:
    """With a promise on its second address, as Triton makes them."""
    kernel = compile_cuda(PLAIN, "plain")
    promised = replace(kernel.parameters[1], divisibility=16)
    return replace(kernel, key="plain", parameters=(kernel.parameters[0], promised, *kernel.parameters[2:]))


@pytest.fixture(scope="module")
def bounded() -> CompiledKernel:
    return compile_cuda(SOURCE, "bounded")


def _replaced(index: int, value: object) -> list[object]:
    return [value if position == index else good for position, good in enumerate(GOOD)]


def test_what_fits_is_taken(every: CompiledKernel):
    assert parameters.check_arguments(every, GOOD)[1:] == [255, -5, -(2**31), 2**40, 1.5, 2.5, 1, bytes(16)]


@pytest.mark.parametrize(
    ("index", "value", "result"),
    [
        (0, None, None),
        (0, 4096, 4096),
        (3, np.int32(7), 7),
        (3, 2**32 - 1, 2**32 - 1),
        (4, np.int64(-7), -7),
        (5, 3, 3.0),
        (5, np.float32(0.5), 0.5),
        (5, float("inf"), float("inf")),
        (7, np.bool_(True), 1),
        (8, np.zeros((), np.dtype([("a", "<i4"), ("pad", "<i4"), ("b", "<f8")]))[()], bytes(16)),
        (8, np.zeros(1, np.dtype([("a", "<i4"), ("pad", "<i4"), ("b", "<f8")])), bytes(16)),
        (8, (ctypes.c_byte * 16)(), bytes(16)),
    ],
)
def test_other_forms_are_taken(every: CompiledKernel, index: int, value: object, result: object):
    assert parameters.check_arguments(every, _replaced(index, value))[index] == result


@pytest.mark.parametrize(
    ("index", "value", "name"),
    [
        (0, 1.0, "array"),
        (0, "text", "array"),
        (0, [1, 2], "array"),
        (0, np.zeros((4, 4), np.float32)[:, 1], "array"),
        (0, np.array([None]), "array"),
        (1, 256, "small"),
        (1, -129, "small"),
        (2, 2**16, "middle"),
        (3, 2**32, "n"),
        (3, -(2**31) - 1, "n"),
        (3, 1.0, "n"),
        (3, None, "n"),
        (3, np.int64(1), "n"),
        (3, np.zeros(1), "n"),
        (3, torch.zeros(1), "n"),
        (4, 2**64, "wide"),
        (5, "1.0", "f"),
        (5, 1e39, "f"),
        (5, np.float64(1.0), "f"),
        (5, torch.zeros(1), "f"),
        (6, torch.zeros(1), "d"),
        (8, bytes(15), "pair"),
        (8, 1, "pair"),
        (8, np.zeros(2), "pair"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(every: CompiledKernel, index: int, value: object, name: str):
    with pytest.raises(ArgumentError) as error:
        parameters.check_arguments(every, _replaced(index, value))
    assert f"every(): argument {index} '{name}'" in str(error.value)


@pytest.mark.parametrize("count", [0, 8, 10])
def test_a_wrong_count_lists_the_parameters(every: CompiledKernel, count: int):
    with pytest.raises(ArgumentError, match=rf"got {count} values.*array \(pointer\), small \(u8\)"):
        parameters.check_arguments(every, [*GOOD, 0][:count])


def test_values_are_packed_where_the_kernel_reads_them(every: CompiledKernel):
    values = parameters.check_arguments(every, _replaced(8, struct.pack("=iid", 9, 0, 4.5)))
    buffer = parameters.pack(every, values, [0xABCDE, *[None] * 8], "sm_90")
    # The layout of C: each value at a multiple of its own alignment.
    assert buffer == struct.pack("@QBhiqfd?", 0xABCDE, 255, -5, -(2**31), 2**40, 1.5, 2.5, True) + bytes(
        7
    ) + struct.pack("=iid", 9, 0, 4.5)


def test_a_struct_of_one_pointer_takes_an_array():
    kernel, array = compile_cuda(PLAIN, "holder"), np.zeros(4, np.float32)
    assert parameters.check_arguments(kernel, [array])[0] is array
    assert parameters.pack(kernel, [array], [0xABCDE], "sm_90") == struct.pack("<Q", 0xABCDE)
    assert parameters.packed_at_once(kernel, [torch.zeros(4)], lambda tensor: 0) is None
    with pytest.raises(ArgumentError, match="struct of 8 bytes"):
        parameters.check_arguments(kernel, [None])


def test_null_and_negative_values_are_packed(every: CompiledKernel):
    values = parameters.check_arguments(every, _replaced(0, None))
    assert parameters.pack(every, values, [None] * 9, "sm_90")[:8] == bytes(8)
    assert (
        parameters.pack(replace(every, key="short", parameters=every.parameters[2:3]), [-1], [None], "sm_90")
        == b"\xff\xff"
    )


@pytest.mark.parametrize(
    "value",
    [
        *(0, 1, -1, 255, 256, -129, 2**31, 2**32, -(2**31), 2**63, 2**64, True, None, "text"),
        *(0.5, -0.0, 1e39, 65504.0, 65520.0, float("inf"), float("nan"), np.int32(7), np.float64(1.0)),
        *(torch.zeros(4), torch.zeros(5)[1:], np.zeros(1)),
    ],
    ids=repr,
)
def test_one_pass_packs_what_a_second_look_would_and_nothing_else(plain: CompiledKernel, value: object):
    for position in range(len(plain.parameters)):
        given = [value if at == position else 0 for at in range(len(plain.parameters))]
        packed = parameters.packed_at_once(plain, given, lambda tensor: 3)
        try:
            values = parameters.check_arguments(plain, given)
        except ArgumentError:
            assert packed is None
            continue
        if packed is not None:
            places = [one.data_ptr() if isinstance(one, torch.Tensor) else None for one in values]
            assert packed == (parameters.pack(plain, values, places, "sm_90"), 3 if any(places) else None)
        else:  # what is left to the second look is not what programs pass at every launch
            assert type(value) not in (int, float, torch.Tensor) or value < 0


def test_one_pass_leaves_tensors_of_two_devices_and_of_none_to_a_second_look(plain: CompiledKernel):
    devices = iter((0, 1))
    numbers = [0] * (len(plain.parameters) - 2)
    pair = [torch.zeros(4), torch.zeros(4), *numbers]
    assert parameters.packed_at_once(plain, pair, lambda tensor: next(devices)) is None
    assert parameters.packed_at_once(plain, pair, lambda tensor: None) is None
    assert parameters.packed_at_once(plain, pair, lambda tensor: 0)[1] == 0
    assert parameters.packed_at_once(plain, pair[:-1], lambda tensor: 0) is None


# ---- dimensions and shared memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "full"), [(3, (3, 1, 1)), ((2, 3), (2, 3, 1)), ([1, 2, 3], (1, 2, 3)), (np.int64(4), (4, 1, 1))]
)
def test_grids_in_every_form(bounded: CompiledKernel, grid: object, full: tuple):
    assert parameters.check_launch(bounded, grid, 32, 0, "sm_80")[0] == full


@pytest.mark.parametrize(
    "grid", [0, -1, (1, 0), (1, 65536), (1, 1, 65536), 2**31, 1.5, (), (1, 1, 1, 1), True, (2, True)]
)
def test_grids_that_no_gpu_takes(bounded: CompiledKernel, grid: object):
    with pytest.raises(ArgumentError) as error:
        parameters.check_launch(bounded, grid, 32, 0, "sm_80")
    assert error.value.argument == "grid"


@pytest.mark.parametrize("block", [0, 129, (64, 4), (1, 1, 65), 1025])
def test_blocks_beyond_the_kernels_bound(bounded: CompiledKernel, block: object):
    with pytest.raises(ArgumentError) as error:
        parameters.check_launch(bounded, 1, block, 0, "sm_80")
    assert error.value.argument == "block"


def test_shared_memory_beside_what_the_kernel_declares(bounded: CompiledKernel):
    room = 163 * 1024 - 4096
    assert parameters.check_launch(bounded, 1, 32, room, "sm_80")[2] == room
    for amount in (room + 1, -1, 1.5):
        with pytest.raises(ArgumentError) as error:
            parameters.check_launch(bounded, 1, 32, amount, "sm_80")
        assert error.value.argument == "shared_bytes"
    assert parameters.check_launch(bounded, 1, 32, room + 1, "sm_90")[2] == room + 1


@pytest.mark.parametrize(("named", "used"), [(0, 2048), (1024, 1024), (4096, 4096)])
def test_a_launch_that_names_no_shared_memory_gets_what_was_named_when_compiling(named: int, used: int):
    kernel = compile_cuda(SOURCE, "bounded", dynamic_shared_bytes=2048)
    assert parameters.check_launch(kernel, 1, 32, named, "sm_80")[2] == used


@triton.jit
def _sum(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


@pytest.fixture(scope="module")
def summed() -> CompiledKernel:
    return compile_triton(_sum, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 256}, attributes={"n": 16})


def test_a_triton_kernel_gets_null_for_its_scratch_and_its_own_shared_memory(summed: CompiledKernel):
    x, out = torch.zeros(256), torch.zeros(1)
    values = parameters.check_arguments(summed, [x, out, 256])
    assert values[3:] == [None] * (len(summed.parameters) - 3)
    assert parameters.check_launch(summed, 1, 128, 0, "sm_80")[2] == summed.dynamic_shared_bytes
    with pytest.raises(ArgumentError, match="exactly"):
        parameters.check_launch(summed, 1, 64, 0, "sm_80")


def test_broken_promises_of_alignment_are_refused(summed: CompiledKernel):
    x, out = torch.zeros(257), torch.zeros(1)
    with pytest.raises(ArgumentError, match=r"argument 0 'x'.*multiples of 16"):
        parameters.check_arguments(summed, [x[1:], out, 256])
    with pytest.raises(ArgumentError, match=r"argument 2 'n'.*multiples of 16"):
        parameters.check_arguments(summed, [x, out, 250])


def test_static_shared_memory_that_no_assembler_takes_is_refused():
    source = 'extern "C" __global__ void f(float *x) { __shared__ float a[12500]; a[threadIdx.x] = *x; *x = a[0]; }'
    kernel = compile_cuda(source, "f")
    with pytest.raises(ArgumentError, match=r"static shared memory of f: got 50000 bytes; allowed: at most 49152"):
        parameters.check_launch(kernel, 1, 32, 0, "sm_80")
