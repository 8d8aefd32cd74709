"""Bulk copies one by one against NumPy: boxes of every rank, swizzles, edges, reductions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from ptx_support import module

from workbench import ptx
from workbench.errors import ArgumentError, KernelFault, UnsupportedInstructionError
from workbench.ptx.tensor_map import TensorMap

BOX_BYTES = 8192
_INIT = """
mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {bytes};
"""
_WAIT = """
AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
@!%p1 bra AGAIN;
"""


def _kernel(body: str, parameters: str) -> ptx.Program:
    shared = f".shared .align 1024 .b8 tile[{BOX_BYTES}]; .shared .align 8 .b64 bar;\n"
    return ptx.Program.from_text(module("copy", parameters, shared + body).replace("sm_80", "sm_90a"))


def load_box(tensor_map: TensorMap, start: tuple[int, ...], count: int, mode: str = "tile") -> tuple[np.ndarray, int]:
    """The first ``count`` bytes of shared memory after a load of one box, by one thread, and how many were read."""
    coordinates, rank = ", ".join(map(str, start)), 2 if mode == "tile::gather4" else len(start)
    copy = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes"
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
    array: np.ndarray, start: tuple[int, ...], box: tuple[int, ...], fill: float, swizzle: int, atom: int = 16
) -> np.ndarray:
    """``array`` has the outermost dimension first, ``start`` and ``box`` the innermost."""
    out = np.full(box[::-1], fill, array.dtype)
    for place in itertools.product(*map(range, box[::-1])):
        where = tuple(i + s for i, s in zip(place, start[::-1], strict=True))
        if all(0 <= i < n for i, n in zip(where, array.shape, strict=True)):
            out[place] = array[where]
    return reordered(out, swizzle, atom)


def reordered(box: np.ndarray, swizzle: int, atom: int = 16) -> np.ndarray:
    """Bytes of a box in shared memory: atoms of each 128 bytes trade places by the number of the line."""
    atoms = box.reshape(-1).view(np.uint8).reshape(-1, atom)
    order = np.arange(len(atoms))
    return atoms[order ^ (order // (128 // atom) & swizzle // atom - 1 if swizzle else 0)].reshape(-1)


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


@pytest.mark.parametrize("atom", [32, 64])
def test_swizzles_in_larger_atoms(atom: int) -> None:
    """PTX ISA, "Swizzling Modes": the tables of 128 bytes with 32-byte and 64-byte atomicity."""
    array = np.arange(16 * 32, dtype=np.int32).reshape(16, 32)
    tensor_map = TensorMap.of(torch.from_numpy(array), (16, 32), swizzle=128, atom=atom)
    got, _ = load_box(tensor_map, (0, 0), array.nbytes)
    np.testing.assert_array_equal(got, reordered(array, 128, atom))
    lines = got.view(np.int32).reshape(16, 8, 4)[:, :, 0] % 32 // 4  # the chunk of 16 bytes in each place
    table = {
        32: ["01234567", "23016745", "45670123", "67452301"],
        64: ["01234567", "45670123"],
    }[atom]
    assert ["".join(map(str, line)) for line in lines[: len(table)]] == table


@pytest.mark.parametrize(
    ("dtype", "width", "swizzle", "atom", "fill", "start"),
    [
        ("float16", 64, 128, 16, "zero", (0, 7, 2, 2, 11)),
        ("float32", 32, 128, 32, "nan", (8, 3, -1, 12, 0)),  # rows before and behind the tensor, and columns
        ("uint8", 32, 32, 16, "zero", (-5, 0, 11, 1, 10)),
        ("int32", 16, 0, 16, "zero", (30, 4, 3, 100, 1)),
    ],
)
def test_four_rows_are_gathered(
    dtype: str, width: int, swizzle: int, atom: int, fill: str, start: tuple[int, ...]
) -> None:
    array = np.arange(1, 12 * 40 + 1).reshape(12, 40).astype(dtype)
    array = np.concatenate([array, array], 1)
    tensor_map = TensorMap.of(torch.from_numpy(array), (1, width), swizzle=swizzle, fill=fill, atom=atom)
    got, _ = load_box(tensor_map, start, 4 * width * array.itemsize, "tile::gather4")
    want = np.full((4, width), np.nan if fill == "nan" else 0, dtype)
    for (row, into), column in itertools.product(zip(start[1:], want, strict=True), range(width)):
        if 0 <= row < 12 and 0 <= start[0] + column < 80:
            into[column] = array[row, start[0] + column]
    np.testing.assert_array_equal(got.view(dtype), reordered(want, swizzle, atom).view(dtype))


# The two blocks of a cluster gather: one copy for both, or one of each that counts at the first one's mbarrier.
_TOGETHER = """
.reg .pred %first, %own; mov.u32 %r1, %tid.x; setp.eq.u32 %first, %r1, 64; mov.u32 %r2, %cluster_ctarank;
mov.b64 %d1, map; cvta.param.u64 %d1, %d1; mov.u32 %r3, bar; setp.eq.and.u32 %own, %r2, 0, %first; mov.b16 %h1, 3;
@%first mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {bytes};
barrier.cluster.arrive; barrier.cluster.wait;
{copy}
{who} AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], 0; @!%p1 bra AGAIN;
READY:
barrier.cluster.arrive; barrier.cluster.wait;
setp.ge.u32 %p2, %r1, 64; @%p2 bra END; mov.u32 %r4, tile; mad.lo.u32 %r4, %r1, 4, %r4; ld.shared.u32 %r5, [%r4];
mad.lo.u32 %r6, %r2, 64, %r1; ld.param.u64 %d2, [out]; mad.wide.u32 %d2, %r6, 4, %d2; st.global.u32 [%d2], %r5;
END:
"""
_ROWS = "[tile], [%d1, {0, 7, 1, 5, 3}]"


@pytest.mark.parametrize(
    ("copy", "bytes_", "who"),
    [
        ("@%own cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"
         f".multicast::cluster {_ROWS}, [bar], %h1;", 256, ""),
        ("and.b32 %r3, %r3, 0xFEFFFFFF; @%first cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global"
         f".tile::gather4.mbarrier::complete_tx::bytes {_ROWS}, [%r3];", 512, "@!%own bra READY;"),
    ],
    ids=["multicast", "pair"],
)  # fmt: skip
def test_blocks_gather_together(copy: str, bytes_: int, who: str) -> None:
    x, out = torch.arange(8 * 16, dtype=torch.int32).reshape(8, 16), torch.zeros(2, 4, 16, dtype=torch.int32)
    text = _TOGETHER.format(copy=copy, bytes=bytes_, who=who)
    kernel = _kernel(text, ".param .align 64 .b8 map[128], .param .u64 out")["copy"]
    report = kernel.launch(2, 96, [TensorMap.of(x, (1, 16)), out], cluster=2, checks=True)
    assert report.findings == []
    assert out.equal(x[[7, 1, 5, 3]].expand(2, 4, 16))


def test_four_rows_are_scattered() -> None:
    """Rows and columns outside the tensor are left out."""
    x, y = np.arange(64, dtype=np.float32), np.zeros((12, 20), np.float32)
    copy = "mov.b64 %d6, map; cvta.param.u64 %d6, %d6;"
    copy += "cp.async.bulk.tensor.2d.tile::scatter4.global.shared::cta.bulk_group [%d6, {8, 3, 11, 12, 0}], [tile];"
    program = _kernel(_STORE.format(copy=copy), ".param .u64 x, .param .u64 y, .param .align 64 .b8 map[128]")
    tensor_map = TensorMap.of(torch.from_numpy(y), (1, 16))
    report = program["copy"].launch(1, 32, [x, y, tensor_map], checks=True)
    assert report.findings == []
    want = np.zeros_like(y)
    for source, row in enumerate((3, 11, 12, 0)):
        if row < 12:
            want[row, 8:] = x.reshape(4, 16)[source, :12]
    np.testing.assert_array_equal(y, want)


# Rows are gathered, changed and scattered, and others gathered where they were.
_TURNS = [
    ".reg .pred %first; mov.u32 %r1, %tid.x; setp.eq.u32 %first, %r1, 0; mov.u32 %r2, tile; mov.b64 %d1, from;",
    "cvta.param.u64 %d1, %d1; mov.b64 %d2, to; cvta.param.u64 %d2, %d2; mad.lo.u32 %r2, %r1, 4, %r2;",
    "@%first mbarrier.init.shared::cta.b64 [bar], 1;",
    "fence.mbarrier_init.release.cluster;",
    "bar.sync 0;",
    "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;",
    "@%first cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
    " [tile], [%d1, {0, 7, 1, 5, 3}], [bar];",
    "FIRST: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra FIRST;",
    "ld.shared.u32 %r3, [%r2]; add.u32 %r3, %r3, 1; st.shared.u32 [%r2], %r3;",
    "fence.proxy.async.shared::cta;",
    "bar.sync 0;",
    "@%first cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%d2, {0, 2, 6, 4, 0}], [tile];",
    "@%first cp.async.bulk.commit_group;",
    "@%first cp.async.bulk.wait_group.read 0;",
    "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;",
    "@%first cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
    " [tile], [%d1, {0, 0, 2, 4, 6}], [bar];",
    "SECOND: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 1; @!%p1 bra SECOND;",
    "ld.shared.u32 %r3, [%r2]; ld.param.u64 %d3, [out]; mad.wide.u32 %d3, %r1, 4, %d3; st.global.u32 [%d3], %r3;",
]


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [(-1, "", ""), *((place, _TURNS[place], "") for place in (2, 3, 4, 7, 9, 10, 12, 13, 16)),
     (5, "256", "240"), (15, "2, 4, 6", "3, 4, 6"), (11, "2, 6", "6, 6")],
)  # fmt: skip
def test_the_order_of_gathers_and_scatters_matters(place: int, old: str, new: str) -> None:
    """Each statement of the kernel left out or changed is told, or shows in the values."""
    lines = [*_TURNS]
    if place >= 0:
        assert old in lines[place]
        lines[place] = lines[place].replace(old, new)
    program = _kernel("\n".join(lines), ".param .align 64 .b8 from[128], .param .align 64 .b8 to[128], .param .u64 out")
    x = torch.arange(8 * 16, dtype=torch.int32).reshape(8, 16)
    y, out = torch.zeros_like(x), torch.zeros(4, 16, dtype=torch.int32)
    try:
        maps = TensorMap.of(x, (1, 16)), TensorMap.of(y, (1, 16))
        report = program["copy"].launch(1, 64, [*maps, out], checks=True)
    except KernelFault:
        assert place >= 0
        return
    want = torch.zeros_like(y)
    want[[2, 6, 4, 0]] = x[[7, 1, 5, 3]] + 1
    right = y.equal(want) and out.equal(x[[0, 2, 4, 6]])
    assert (right and not report.findings) == (place < 0), report.findings


@pytest.mark.parametrize(
    ("form", "coordinates", "message"),
    [
        ("3d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes", "0, 1, 2, 3, 4", "2 dimensions"),
        ("2d.shared::cluster.global.tile::scatter4.mbarrier::complete_tx::bytes", "0, 1, 2, 3, 4", "2 dimensions"),
        ("2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes", "0, 1", "2 coordinates, where 5"),
    ],
)
def test_other_gathers_are_refused(form: str, coordinates: str, message: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=message):
        _kernel(f"cp.async.bulk.tensor.{form} [tile], [%d1, {{{coordinates}}}], [bar];", "")["copy"]


def test_a_gather_by_a_box_of_several_rows_is_told() -> None:
    tensor_map = TensorMap.of(torch.zeros(12, 16), (4, 16))
    with pytest.raises(KernelFault, match="a box of several rows, where"):
        load_box(tensor_map, (0, 1, 2, 3, 4), 256, "tile::gather4")


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


# Operations and the types that the ISA's tables for cp.reduce.async.bulk list; f64 is missing for tensors.
_REDUCTIONS = {
    "": "s32",
    "add": "u32 s32 u64 f32 f16 bf16 f64",
    "min max": "u32 s32 u64 s64 f16 bf16",
    "inc dec": "u32",
    "and or xor": "b32 b64",
}
_FORMS = [
    (operation, kind)
    for operations, kinds in _REDUCTIONS.items()
    for operation in operations.split() or [""]
    for kind in kinds.split()
]
_DTYPES = {"u32": "uint32", "s32": "int32", "u64": "uint64", "s64": "int64", "b32": "uint32", "b64": "uint64"}
_DTYPES |= {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


def _values(kind: str, seed: int) -> torch.Tensor:
    """Every bit pattern of an integer, floating point numbers of both signs: 256 bytes of them."""
    rng = np.random.default_rng(seed)
    count = 256 // (int(kind.lstrip("usbf")) // 8)
    if kind[0] in "usb" and kind != "bf16":
        edges = np.array([0, 1, -1, 5], np.int64)
        integers = rng.integers(-(1 << 63), 1 << 63, count - len(edges), np.int64)
        rolled = np.roll(np.concatenate([edges, integers]), seed)
        return torch.from_numpy(rolled.astype(f"int{kind[1:]}")).view(getattr(torch, _DTYPES[kind]))
    return torch.from_numpy(rng.integers(-64, 64, count) / 8).to(getattr(torch, _DTYPES[kind]))


def _reduced(operation: str, kind: str, old: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Compute the reduction in Python integers or, where it is exact, in float64."""
    if kind[0] in "f" or kind == "bf16":
        a, b = old.double(), value.double()
        return {"add": a.add, "min": a.minimum, "max": a.maximum}[operation](b).to(old.dtype)
    bits = int(kind[1:])
    function = {
        "": lambda a, b: b, "add": lambda a, b: a + b, "min": min, "max": max, "and": int.__and__, "or": int.__or__,
        "xor": int.__xor__, "inc": lambda a, b: 0 if a >= b else a + 1,
        "dec": lambda a, b: b if not 0 < a <= b else a - 1,
    }[operation]  # fmt: skip
    unsigned = [function(a, b) & (1 << bits) - 1 for a, b in zip(old.tolist(), value.tolist(), strict=True)]
    return torch.from_numpy(np.array(unsigned, f"uint{bits}")).view(old.dtype)


@pytest.mark.parametrize(("operation", "kind"), _FORMS)
@pytest.mark.parametrize("tensor", [False, True])
def test_stores_and_reductions(operation: str, kind: str, tensor: bool) -> None:
    x, before = _values(kind, 1), _values(kind, 2)
    noftz = "noftz." if kind in ("f16", "bf16") and operation == "add" else ""
    reduce, form = ("reduce.", f".{operation}") if operation else ("", "")
    if tensor:
        copy = "mov.b64 %d6, map; cvta.param.u64 %d6, %d6; "
        copy += f"cp.{reduce}async.bulk.tensor.1d.global.shared::cta{form}.tile.bulk_group [%d6, {{0}}], [tile];"
    else:
        form += f".{noftz}{kind}" if operation else ""
        copy = f"cp.{reduce}async.bulk.global.shared::cta.bulk_group{form} [%d2], [tile], 256;"
    y = before.clone()
    program = _kernel(_STORE.format(copy=copy), ".param .u64 x, .param .u64 y, .param .align 64 .b8 map[128]")
    arguments = [x, y, TensorMap.of(y, y.shape)]
    if tensor and (operation, kind) == ("add", "f64"):
        with pytest.raises(KernelFault, match="a type that the reduction does not take"):
            program["copy"].launch(1, 32, arguments)
        return
    report = program["copy"].launch(1, 32, arguments, checks=True)
    assert report.findings == []
    assert y.tolist() == _reduced(operation, kind, before, x).tolist()


def test_sums_of_f32_flush_subnormal_numbers() -> None:
    """ISA, cp.reduce.async.bulk: add.f32 flushes subnormal inputs and results to sign-preserving zero."""
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    x[:3], y[:3] = (1e-40, -1e-40, 1.5e-38), (1e-40, -0.0, -1.4e-38)
    copy = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d2], [tile], 256;"
    _kernel(_STORE.format(copy=copy), ".param .u64 x, .param .u64 y")["copy"].launch(1, 32, [x, y])
    assert y[:3].view(np.uint32).tolist() == [0, 0x80000000, 0]


def test_some_bytes_of_each_sixteen_are_stored() -> None:
    x, y = np.arange(1, 257, dtype=np.uint8), np.full(256, 99, np.uint8)
    copy = "mov.b16 %h1, 0x8421; cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d2+16], [tile], 224, %h1;"
    program = _kernel(_STORE.format(copy=copy), ".param .u64 x, .param .u64 y")
    assert program["copy"].launch(1, 32, [x, y], checks=True).findings == []
    want = np.full(256, 99, np.uint8)
    for i in range(224):
        if 0x8421 >> i % 16 & 1:
            want[16 + i] = x[i]
    np.testing.assert_array_equal(y, want)


# Each of two blocks sends its tile to the other one.
_SEND = [
    ".reg .pred %first; mov.u32 %r1, %tid.x; setp.eq.u32 %first, %r1, 0; mov.u32 %r2, %cluster_ctarank;",
    "mov.u32 %r3, tile; mad.lo.u32 %r4, %r1, 4, %r3; mad.lo.u32 %r5, %r2, 1000, %r1; xor.b32 %r6, %r2, 1;",
    "@%first mbarrier.init.shared::cta.b64 [bar], 1; @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;",
    "fence.mbarrier_init.release.cluster; st.shared.u32 [%r4], %r5;",
    "fence.proxy.async.shared::cta;",
    "barrier.cluster.arrive; barrier.cluster.wait;",
    "add.u32 %r7, %r3, 1024; mapa.shared::cluster.u32 %r7, %r7, %r6; mov.u32 %r8, bar;",
    "mapa.shared::cluster.u32 %r8, %r8, %r6;",
    "@%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r7], [%r3], 256, [%r8];",
    "AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], 0; @!%p1 bra AGAIN;",
    "ld.shared.u32 %r9, [%r4+1024]; ld.param.u64 %d1, [out]; mad.lo.u32 %r10, %r2, 64, %r1;",
    "mad.wide.u32 %d1, %r10, 4, %d1; st.global.u32 [%d1], %r9;",
    "barrier.cluster.arrive; barrier.cluster.wait;",
]


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [(-1, "", ""), *((place, _SEND[place], "") for place in (4, 9, 12)), (8, "[%r8]", "[bar]"),
     (8, "256, [", "264, ["), (10, "ld.shared", "st.shared.u32 [%r4], %r5; ld.shared"),
     (8, "@%first cp", "@%first add.u32 %r3, %r3, 8192; @%first cp")],
)  # fmt: skip
def test_blocks_of_a_cluster_send_each_other_bytes(place: int, old: str, new: str) -> None:
    """Each statement left out or changed is told, or shows in the values; a source may be written when it has left."""
    lines = [*_SEND]
    if place >= 0:
        assert old in lines[place]
        lines[place] = lines[place].replace(old, new)
    out = np.zeros((2, 64), np.uint32)
    kernel = _kernel("\n".join(lines), ".param .u64 out")["copy"]
    try:
        report = kernel.launch(2, 64, [out], cluster=2, checks=True)
    except KernelFault:
        assert place >= 0
        return
    right = (out == np.arange(64) + 1000 * np.array([[1], [0]])).all()
    assert (right and not report.findings) == (place < 0), report.findings


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
    described = TensorMap.of(torch.zeros(5, 12, device="meta"), (8, 8))
    assert (described.sizes, described.address) == ((12, 5), 0)
    with pytest.raises(ArgumentError, match=r"'map'.*a tensor on meta"):
        program["copy"].launch(1, 32, [x, y, described])


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


_TWO_STAGES = """
.shared .align 16 .b8 stages[32]; .shared .align 8 .b64 bars[2];
mbarrier.init.shared::cta.b64 [bars], 1;
mbarrier.init.shared::cta.b64 [bars+8], 1;
{fence}
ld.param.u64 %d1, [x];
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [stages], [%d1], 16, [bars];
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars+8], 16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [stages+16], [%d1+16], 16, [bars+8];
FIRST: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bars], 0;
@!%p1 bra FIRST;
SECOND: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bars+8], 0;
@!%p1 bra SECOND;
"""


@pytest.mark.parametrize("fence", ["", "fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta;"])
def test_a_fence_that_all_mbarriers_miss_is_one_finding(fence: str) -> None:
    text = module("copies", ".param .u64 x", _TWO_STAGES.format(fence=fence)).replace("sm_80", "sm_90a")
    report = ptx.Program.from_text(text)["copies"].launch(3, 1, [torch.zeros(8)], checks=True)
    found = [(finding.kind, finding.count) for finding in report.findings]
    assert found == ([] if fence else [("missing fence.mbarrier_init", 3)])
