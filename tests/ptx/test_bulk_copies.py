"""Bulk copies one by one against NumPy: boxes of every rank, swizzles, edges, reductions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from ptx_support import module

from workbench import ptx
from workbench.errors import ArgumentError, KernelFault
from workbench.tensor_map import TensorMap

BOX_BYTES = 8192
_INIT = """
mbarrier.init.shared::cta.b64 [bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {bytes};
"""
_WAIT = """
AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
@!%p1 bra AGAIN;
"""


def _kernel(body: str, parameters: str) -> ptx.Program:
    shared = f".shared .align 1024 .b8 tile[{BOX_BYTES}]; .shared .align 8 .b64 bar;\n"
    return ptx.Program.from_text(module("copy", parameters, shared + body).replace("sm_80", "sm_90a"))


def load_box(tensor_map: TensorMap, start: tuple[int, ...], count: int) -> tuple[np.ndarray, int]:
    """The first ``count`` bytes of shared memory after a load of one box, by one thread, and how many were read."""
    coordinates = ", ".join(map(str, start))
    copy = (
        f"cp.async.bulk.tensor.{len(start)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        f" [tile], [%d1, {{{coordinates}}}], [bar];"
    )
    body = _INIT.format(bytes=count) + "mov.b64 %d1, map; cvta.param.u64 %d1, %d1;\n" + copy + _WAIT
    body += "ld.param.u64 %d2, [out]; mov.u32 %r1, tile; mov.u32 %r2, 0;\n"
    body += "NEXT: ld.shared.b64 %d3, [%r1]; st.global.b64 [%d2], %d3; add.u32 %r1, %r1, 8; add.u64 %d2, %d2, 8;\n"
    body += f"add.u32 %r2, %r2, 8; setp.lt.u32 %p2, %r2, {count}; @%p2 bra NEXT;\n"
    out = np.zeros(count, np.uint8)
    program = _kernel(body, ".param .align 64 .b8 map[128], .param .u64 out")
    report = program["copy"].launch(1, 1, [tensor_map, out], checks=True, statistics=True)
    assert report.findings == []
    (fact,) = (line for line in report.lines if line.landed_bytes)
    assert fact.landed_bytes == count == fact.bytes + fact.filled_bytes
    return out, fact.bytes


def expected_box(
    array: np.ndarray, start: tuple[int, ...], box: tuple[int, ...], fill: float, swizzle: int
) -> np.ndarray:
    """``array`` has the outermost dimension first, ``start`` and ``box`` the innermost."""
    out = np.full(box[::-1], fill, array.dtype)
    for place in itertools.product(*map(range, box[::-1])):
        where = tuple(i + s for i, s in zip(place, start[::-1], strict=True))
        if all(0 <= i < n for i, n in zip(where, array.shape, strict=True)):
            out[place] = array[where]
    chunks = out.reshape(-1).view(np.uint8).reshape(-1, 16)
    order = np.arange(len(chunks))
    return chunks[order ^ (order >> 3 & swizzle // 16 - 1 if swizzle else 0)].reshape(-1)


@pytest.mark.parametrize(
    ("shape", "box", "start", "dtype", "swizzle", "fill"),
    [
        ((40,), (16,), (30,), "float32", 0, "zero"),
        ((9, 64), (64, 8), (-3, 4), "float16", 128, "zero"),
        ((9, 64), (32, 16), (40, -2), "float16", 64, "nan"),
        ((5, 7, 16), (16, 3, 2), (5, 6, -1), "uint8", 0, "zero"),
        ((3, 4, 5, 8), (8, 2, 3, 2), (-4, 1, 2, 2), "int32", 32, "zero"),
        ((2, 3, 3, 4, 8), (4, 2, 2, 2, 2), (6, 3, -1, 1, 1), "float32", 0, "nan"),
        ((3, 4), (2, 4), (1, 1), "float64", 0, "zero"),
    ],
)
def test_a_box_of_every_rank(
    shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...], dtype: str, swizzle: int, fill: str
) -> None:
    array = np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)
    tensor_map = TensorMap.of(torch.from_numpy(array), box[::-1], swizzle=swizzle, fill=fill)
    count = int(np.prod(box)) * array.itemsize
    got, read = load_box(tensor_map, start, count)
    assert read == np.count_nonzero(expected_box(np.ones_like(array), start, box, 0, 0).view(dtype)) * array.itemsize
    want = expected_box(array, start, box, np.nan if fill == "nan" else 0, swizzle)
    if fill == "nan":
        np.testing.assert_array_equal(got.view(dtype), want.view(dtype))
    else:
        np.testing.assert_array_equal(got, want)


def test_steps_between_the_elements_of_a_box() -> None:
    array = np.arange(20 * 32, dtype=np.int32).reshape(20, 32)
    tensor_map = TensorMap("s32", array.ctypes.data, (32, 20), (128,), (16, 6), (2, 3), owner=array)
    got, _ = load_box(tensor_map, (3, 15), 8 * 2 * 4)
    want = np.zeros((2, 8), np.int32)
    want[:] = array[15:20:3, 3:19:2]
    np.testing.assert_array_equal(got.view(np.int32).reshape(2, 8), want)


_STORE = """
ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 8; cvt.u64.u32 %d3, %r2;
add.u64 %d4, %d1, %d3; ld.global.b64 %d5, [%d4]; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2; st.shared.b64 [%r3], %d5;
fence.proxy.async.shared::cta;
bar.sync 0;
setp.eq.u32 %p1, %r1, 0;
@!%p1 bra END;
{copy}
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
END:
"""


@pytest.mark.parametrize(
    ("operation", "kind", "dtype"),
    [
        ("", "", "int32"), ("add", "u32", "uint32"), ("add", "s32", "int32"), ("add", "f32", "float32"),
        ("add", "f64", "float64"), ("add", "f16", "float16"), ("min", "s32", "int32"), ("max", "u64", "uint64"),
        ("min", "f16", "float16"), ("and", "u32", "uint32"), ("or", "u64", "uint64"), ("xor", "u32", "uint32"),
        ("inc", "u32", "uint32"), ("dec", "u32", "uint32"),
    ],
)  # fmt: skip
def test_stores_and_reductions(operation: str, kind: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    count = 256 // np.dtype(dtype).itemsize
    x, before = (rng.integers(0, 9, count).astype(dtype) for _ in range(2))
    noftz = "noftz." if kind in ("f16", "bf16") and operation == "add" else ""
    reduce, form = ("reduce.", f".{operation}.{noftz}{kind}") if operation else ("", "")
    copy = f"cp.{reduce}async.bulk.global.shared::cta.bulk_group{form} [%d2], [tile], 256;"
    y = before.copy()
    program = _kernel(_STORE.format(copy=copy), ".param .u64 x, .param .u64 y")
    report = program["copy"].launch(1, 32, [x, y], checks=True)
    assert report.findings == []
    want = {
        "": lambda: x, "add": lambda: before + x, "min": lambda: np.minimum(before, x),
        "max": lambda: np.maximum(before, x), "and": lambda: before & x, "or": lambda: before | x,
        "xor": lambda: before ^ x, "inc": lambda: np.where(before >= x, 0, before + 1),
        "dec": lambda: np.where((before == 0) | (before > x), x, before - 1),
    }[operation]()  # fmt: skip
    np.testing.assert_array_equal(y, want)


def test_a_stored_box_leaves_out_what_lies_outside() -> None:
    x, y = np.arange(64, dtype=np.float32), np.zeros((5, 12), np.float32)
    copy = "mov.b64 %d6, map; cvta.param.u64 %d6, %d6;"
    copy += "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d6, {8, 3}], [tile];"
    program = _kernel(_STORE.format(copy=copy), ".param .u64 x, .param .u64 y, .param .align 64 .b8 map[128]")
    report = program["copy"].launch(1, 32, [x, y, TensorMap.of(torch.from_numpy(y), (8, 8))], checks=True)
    assert report.findings == []
    want = np.zeros((5, 12), np.float32)
    want[3:, 8:] = x.reshape(8, 8)[:2, :4]
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize(
    ("copy", "words"),
    [
        ("cp.async.bulk.global.shared::cta.bulk_group [%d2], [tile], 24;", "24 bytes, where a multiple of 16 belongs"),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%d2+8], [tile], 16;",
            "a global address that is no multiple of 16",
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%d2], [tile+8], 16;",
            "offset 8, where a multiple of 16 belongs",
        ),
        ("cp.async.bulk.global.shared::cta.bulk_group [%d2], [tile], 512;", "out-of-bounds: 512 bytes"),
        ("cp.async.bulk.global.shared::cta.bulk_group [%d2], [tile], 16384;", "of shared memory"),
    ],
)
def test_copies_that_break_a_rule(copy: str, words: str) -> None:
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    program = _kernel(_STORE.format(copy=copy), ".param .u64 x, .param .u64 y")
    with pytest.raises(KernelFault, match=words):
        program["copy"].launch(1, 32, [x, y])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"element": "f8"}, "element: got 'f8'"),
        ({"address": 8}, "address: got 0x8; allowed: a multiple of 16"),
        ({"box": (64,)}, "box: got 1 numbers; allowed: 2"),
        ({"box": (64, 300)}, "1 to 256 each"),
        ({"box": (4, 8)}, "rows of 8 bytes; allowed: a multiple of 16"),
        ({"box": (128, 8), "swizzle": 128}, "rows of 256 bytes; allowed: at most 128"),
        ({"strides": (130,)}, "multiples of 16 bytes"),
        ({"swizzle": 16}, "swizzle: got 16"),
        ({"fill": "nan", "element": "u16"}, "'nan' for floating point"),
        ({"sizes": (0, 8)}, "sizes: got"),
        ({"steps": (1, 9)}, "1 to 8 each"),
        ({"sizes": (1,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, "6 dimensions"),
    ],
)
def test_tensor_maps_that_break_a_rule(change: dict[str, object], words: str) -> None:
    good = {"element": "f16", "address": 0, "sizes": (64, 64), "strides": (128,), "box": (64, 8)}
    assert len(bytes(TensorMap(**good))) == 128
    with pytest.raises(ArgumentError, match=words):
        TensorMap(**(good | change))
