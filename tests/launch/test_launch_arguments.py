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
from workbench.toolchain import CompiledKernel, compile_cuda, compile_triton
from workbench.toolchain.launch_buffer import base_of
from workbench.toolchain.occupancy import limits_of

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


def taken(kernel: CompiledKernel, args: list) -> list:
    """The values that a launch packs, 0 in the place of arrays."""
    fields = kernel.signature.take(args)[0]
    kernel.signature.pack(fields)
    return fields


def shaped(kernel: CompiledKernel, grid: object, block: object, shared_bytes: object, arch: str = "sm_80") -> tuple:
    return kernel.signature.blocks.check(grid, block, shared_bytes, limits_of(arch))


def _replaced(index: int, value: object) -> list[object]:
    return [value if position == index else good for position, good in enumerate(GOOD)]


def test_what_fits_is_taken(every: CompiledKernel):
    assert taken(every, GOOD) == [0, 255, -5, -(2**31), 2**40, 1.5, 2.5, 1, bytes(16)]


@pytest.mark.parametrize(
    ("index", "value", "result"),
    [
        (0, None, 0),
        (0, 4096, 4096),
        (3, np.int32(7), 7),
        (3, 2**32 - 1, 2**32 - 1),
        (4, np.int64(-7), 2**64 - 7),
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
    assert taken(every, _replaced(index, value))[index] == result


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
        taken(every, _replaced(index, value))
    assert f"every(): argument {index} '{name}'" in str(error.value)


@pytest.mark.parametrize("count", [0, 8, 10])
def test_a_wrong_count_lists_the_parameters(every: CompiledKernel, count: int):
    with pytest.raises(ArgumentError, match=rf"got {count} values.*array \(pointer\), small \(u8\)"):
        taken(every, [*GOOD, 0][:count])


def test_values_are_packed_where_the_kernel_reads_them(every: CompiledKernel):
    fields, ((rule, array),) = every.signature.take(_replaced(8, struct.pack("=iid", 9, 0, 4.5)))
    assert (rule.position, array is GOOD[0]) == (0, True)
    fields[rule.position] = 0xABCDE
    # The layout of C: each value at a multiple of its own alignment.
    expected = struct.pack("@QBhiqfd?", 0xABCDE, 255, -5, -(2**31), 2**40, 1.5, 2.5, True) + bytes(7)
    expected += struct.pack("=iid", 9, 0, 4.5)
    assert every.signature.pack(fields, base_of("sm_90")) == every.signature.pack(fields) == expected


def test_a_struct_of_one_pointer_takes_an_array():
    kernel, array = compile_cuda(PLAIN, "holder"), np.zeros(4, np.float32)
    _, ((_, held),) = kernel.signature.take([array])
    assert held is array
    assert kernel.signature.pack([0xABCDE]) == struct.pack("<Q", 0xABCDE)
    assert kernel.signature.take([struct.pack("<Q", 0xABCDE)]) == ([0xABCDE], [])
    with pytest.raises(ArgumentError, match="struct of 8 bytes"):
        kernel.signature.take([None])


def test_null_and_negative_values_are_packed(every: CompiledKernel):
    assert every.signature.pack(taken(every, _replaced(0, None)))[:8] == bytes(8)
    short = replace(every, key="short", parameters=every.parameters[2:3])
    assert short.signature.pack([-1]) == b"\xff\xff"


def _packed(kernel: CompiledKernel, args: list, at_once: bool) -> bytes:
    """Return the bytes of a launch's parameters, packed at once or with each value checked by its rule."""
    signature = kernel.signature
    fields, arrays = signature.take(args)
    for rule, value in arrays:
        fields[rule.position] = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
    if not at_once:
        fields = [rule.number(one) for rule, one in zip(signature.rules, fields, strict=True)]
    return signature.pack(fields)


@pytest.mark.parametrize(
    "value",
    [
        *(0, 1, -1, 255, 256, -129, 2**31, 2**32, -(2**31), 2**63, 2**64, True, None, "text"),
        *(0.5, -0.0, 1e39, 65504.0, 65520.0, float("inf"), float("nan"), np.int32(7), np.float64(1.0)),
        *(torch.zeros(4), torch.zeros(5)[1:], np.zeros(1)),
    ],
    ids=repr,
)
def test_numbers_are_packed_at_once_as_their_rules_would_and_nothing_else(plain: CompiledKernel, value: object):
    for position in range(len(plain.parameters)):
        given = [value if at == position else 0 for at in range(len(plain.parameters))]
        results = []
        for at_once in (True, False):
            try:
                results.append(_packed(plain, given, at_once))
            except ArgumentError as error:
                results.append(str(error))
        assert results[0] == results[1]


# ---- dimensions and shared memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "full"), [(3, (3, 1, 1)), ((2, 3), (2, 3, 1)), ([1, 2, 3], (1, 2, 3)), (np.int64(4), (4, 1, 1))]
)
def test_grids_in_every_form(bounded: CompiledKernel, grid: object, full: tuple):
    assert shaped(bounded, grid, 32, 0, "sm_80")[0] == full


@pytest.mark.parametrize(
    "grid", [0, -1, (1, 0), (1, 65536), (1, 1, 65536), 2**31, 1.5, (), (1, 1, 1, 1), True, (2, True)]
)
def test_grids_that_no_gpu_takes(bounded: CompiledKernel, grid: object):
    with pytest.raises(ArgumentError) as error:
        shaped(bounded, grid, 32, 0, "sm_80")
    assert error.value.argument == "grid"


@pytest.mark.parametrize("block", [0, 129, (64, 4), (1, 1, 65), 1025])
def test_blocks_beyond_the_kernels_bound(bounded: CompiledKernel, block: object):
    with pytest.raises(ArgumentError) as error:
        shaped(bounded, 1, block, 0, "sm_80")
    assert error.value.argument == "block"


def test_shared_memory_beside_what_the_kernel_declares(bounded: CompiledKernel):
    room = 163 * 1024 - 4096
    assert shaped(bounded, 1, 32, room, "sm_80")[2] == room
    for amount in (room + 1, -1, 1.5):
        with pytest.raises(ArgumentError) as error:
            shaped(bounded, 1, 32, amount, "sm_80")
        assert error.value.argument == "shared_bytes"
    assert shaped(bounded, 1, 32, room + 1, "sm_90")[2] == room + 1


@pytest.mark.parametrize(("named", "used"), [(0, 2048), (1024, 1024), (4096, 4096)])
def test_a_launch_that_names_no_shared_memory_gets_what_was_named_when_compiling(named: int, used: int):
    kernel = compile_cuda(SOURCE, "bounded", dynamic_shared_bytes=2048)
    assert shaped(kernel, 1, 32, named, "sm_80")[2] == used


@triton.jit
def _sum(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


@pytest.fixture(scope="module")
def summed() -> CompiledKernel:
    return compile_triton(_sum, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 256}, attributes={"n": 16})


def test_a_triton_kernel_gets_null_for_its_scratch_and_its_own_shared_memory(summed: CompiledKernel):
    x, out = torch.zeros(256), torch.zeros(1)
    values = taken(summed, [x, out, 256])
    assert values[3:] == [0] * (len(summed.parameters) - 3)
    assert shaped(summed, 1, 128, 0, "sm_80")[2] == summed.dynamic_shared_bytes
    with pytest.raises(ArgumentError, match="exactly"):
        shaped(summed, 1, 64, 0, "sm_80")


def test_broken_promises_of_alignment_are_refused(summed: CompiledKernel):
    x, out = torch.zeros(257), torch.zeros(1)
    with pytest.raises(ArgumentError, match=r"argument 0 'x'.*multiples of 16"):
        taken(summed, [x[1:], out, 256])
    with pytest.raises(ArgumentError, match=r"argument 2 'n'.*multiples of 16"):
        taken(summed, [x, out, 250])


def test_static_shared_memory_that_no_assembler_takes_is_refused():
    source = 'extern "C" __global__ void f(float *x) { __shared__ float a[12500]; a[threadIdx.x] = *x; *x = a[0]; }'
    kernel = compile_cuda(source, "f")
    with pytest.raises(ArgumentError, match=r"static shared memory of f: got 50000 bytes; allowed: at most 49152"):
        shaped(kernel, 1, 32, 0, "sm_80")
