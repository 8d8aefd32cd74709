"""mma, ldmatrix, stmatrix, and everything in which the lanes of a warp see each other."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_collective_cases import (
    BARRIER_REDUCTIONS,
    BYTE_MATRICES,
    MATRIX_ACCESSES,
    MMAS,
    WARP_OPERATIONS,
    Mma,
    byte_matrix_text,
    matrix_text,
)
from ptx_support import module, run_lanes, signed

from workbench import ptx
from workbench.errors import KernelFault

LANES = np.arange(32)
GROUP, MEMBER = LANES // 4, LANES % 4


def places(kind: str, operand: str, register: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(row, column) of each element that a lane's register holds, lowest bits first (PTX ISA, matrix fragments).

    For B the column is k and the row n.
    """
    per_register = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4, "u8": 4}[kind]
    low, high = (register % 2, register // 2) if operand == "a" else (0, register)
    column = MEMBER * per_register + high * 4 * per_register
    return [(GROUP + 8 * low, column + i) for i in range(per_register)]


def fill(kind: str, operand: str, matrix: np.ndarray, count: int) -> list[np.ndarray]:
    """The registers that hold a matrix of bit patterns."""
    width = 32 // {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4, "u8": 4}[kind]
    registers = []
    for register in range(count):
        value = np.zeros(32, np.uint64)
        for i, (rows, columns) in enumerate(places(kind, operand, register)):
            value |= matrix[rows, columns].astype(np.uint64) << np.uint64(width * i)
        registers.append(value.astype(np.uint32))
    return registers


def accumulator(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(row, column) of the elements of the accumulator's registers: f32 one each, f16 two."""
    if count == 4:
        return [(GROUP + 8 * (i // 2), 2 * MEMBER + i % 2) for i in range(4)]
    return [(GROUP + 8 * (i // 2), 2 * MEMBER + i % 2) for i in range(4)]


def random_bits(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Bit patterns and their values; small integers keep every sum exact in any order."""
    if kind in ("s8", "u8"):
        bits = rng.integers(0, 256, shape)
        return bits, bits.astype(np.int64) if kind == "u8" else bits.astype(np.uint8).view(np.int8).astype(np.int64)
    values = rng.integers(-8, 9, shape).astype(np.float32) / np.float32(4)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16), values.astype(np.float64)
    raw = values.view(np.uint32)
    # The low bits of a TF32 factor are not seen.
    return (raw >> 16 if kind == "bf16" else raw | 0x0FFF), values.astype(np.float64)


@pytest.mark.parametrize("mma", MMAS, ids=lambda m: f"{m.shape}.{m.types}")
def test_mma(mma: Mma) -> None:
    rng = np.random.default_rng(mma.k)
    d_kind, a_kind, b_kind, _ = mma.types.split(".")
    a_bits, a = random_bits(a_kind, (16, mma.k), rng)
    b_bits, b = random_bits(b_kind, (8, mma.k), rng)
    c = rng.integers(-50, 50, (16, 8))
    spots = accumulator(mma.c)
    if mma.c == 4:
        as_stored = c.astype(np.float32).view(np.uint32) if d_kind == "f32" else c.astype(np.int32).view(np.uint32)
        c_registers = [as_stored[rows, columns] for rows, columns in spots]
    else:
        halves = c.astype(np.float16).view(np.uint16).astype(np.uint32)
        c_registers = [halves[spots[2 * i]] | halves[spots[2 * i + 1]] << 16 for i in range(2)]
    registers = fill(a_kind, "a", a_bits, mma.a) + fill(b_kind, "b", b_bits, mma.b) + c_registers
    out = np.zeros((mma.c, 32), np.uint32)
    ptx.Program(mma.text)["tile"].launch(1, 32, [np.stack(registers).astype(np.uint32), out])
    expected, got = a @ b.T + c, np.zeros((16, 8))
    for i, (rows, columns) in enumerate(spots):
        if mma.c == 2:
            got[rows, columns] = (out[i // 2] >> 16 * (i % 2)).astype(np.uint16).view(np.float16)
        else:
            got[rows, columns] = out[i].view(np.float32 if d_kind == "f32" else np.int32)
    if d_kind == "f16":
        expected = expected.astype(np.float16)
    assert (got == expected).all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_mma_handles_subnormals_infinities_and_nan(kind: str) -> None:
    mma = next(m for m in MMAS if m.shape == "m16n8k16" and m.types == f"f32.{kind}.{kind}.f32")
    one, tiny, infinity, nan = {"f16": (0x3C00, 1, 0x7C00, 0x7E00), "bf16": (0x3F80, 1, 0x7F80, 0x7FC0)}[kind]
    a, b = np.zeros((16, 16), np.uint32), np.zeros((8, 16), np.uint32)
    a[:4, 0] = [one, tiny, infinity, nan]
    b[:, 0] = one
    registers = fill(kind, "a", a, 4) + fill(kind, "b", b, 2) + [np.zeros(32, np.uint32)] * 4
    out = np.zeros((4, 32), np.float32)
    ptx.Program(mma.text)["tile"].launch(1, 32, [np.stack(registers).astype(np.uint32), out])
    column = out[0].reshape(8, 4)[:, 0]
    assert column[0] == 1
    assert column[1] == {"f16": 2.0**-24, "bf16": 2.0**-133}[kind]
    assert np.isposinf(column[2])
    assert np.isnan(column[3])


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("name", "count", "transposed"), MATRIX_ACCESSES)
def test_matrix_access(name: str, count: int, transposed: bool, wide: bool) -> None:
    rng = np.random.default_rng(count)
    data = rng.integers(0, 1 << 32, (count, 32), dtype=np.uint64).astype(np.uint32)
    kernel = ptx.Program(matrix_text(name, count, transposed, wide=wide))["tile"]
    # Row addresses run backwards through all 8 * count rows of 16 bytes.
    rows = data.view(np.uint16).reshape(8 * count, 8)
    tiles = rows.reshape(count, 8, 8)
    if name == "ldmatrix":
        expected = rows[::-1].reshape(count, 8, 8)
        expected = expected.transpose(0, 2, 1) if transposed else expected
    else:
        expected = (tiles.transpose(0, 2, 1) if transposed else tiles).reshape(8 * count, 8)[::-1]
    for options in ({}, {"checks": True}, {"statistics": True}):
        out = np.zeros_like(data)
        report = kernel.launch(1, 32, [data, out], **options)
        assert (out.view(np.uint16).reshape(-1) == np.ascontiguousarray(expected).reshape(-1)).all()
        assert not report.has_checks or not report.findings
    line = next(line for line in report.lines if line.text.startswith(name))
    assert (line.requests, line.wavefronts, line.ideal_wavefronts) == (1, count, count)


@pytest.mark.parametrize(("moved", "kind"), [(8, "misaligned"), (1 << 20, "out-of-bounds"), (-4096, "out-of-bounds")])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", ["ldmatrix", "stmatrix"])
def test_a_row_of_a_matrix_that_cannot_be_accessed(name: str, wide: bool, moved: int, kind: str) -> None:
    """The launch ends there; with checks the row is left out, and every other one moved."""
    data, out = np.arange(1, 129, dtype=np.uint32).reshape(4, 32), np.zeros((4, 32), np.uint32)
    kernel = ptx.Program(matrix_text(name, 4, False, wide=wide, moved=moved))["tile"]
    with pytest.raises(KernelFault, match=kind):
        kernel.launch(1, 32, [data, out])
    report = kernel.launch(1, 32, [data, out], checks=True)
    assert [finding.kind for finding in report.findings] == [kind]
    expected = data.reshape(32, 4)[::-1].copy()
    if name == "ldmatrix":
        expected[5] = 0
    else:
        expected[31 - 5] = data.reshape(32, 4)[31 - 5]  # lane 5 stores nothing there
    assert (out.reshape(32, 4) == expected).all()


def as_bytes(row: np.ndarray, form: str) -> np.ndarray:
    """The sixteen elements of a row of memory, one after the other from its lowest bit on, as bytes."""
    bits = 6 if "b6x16" in form else 4 if "b4x16" in form else 8
    whole = int.from_bytes(row.tobytes(), "little")
    return np.array([whole >> bits * i & ((1 << bits) - 1) for i in range(16)], np.uint8)


@pytest.mark.parametrize("form", BYTE_MATRICES)
def test_matrices_of_bytes(form: str) -> None:
    count = BYTE_MATRICES[form]
    data = np.random.default_rng(9).integers(0, 1 << 32, (count, 32), dtype=np.uint64).astype(np.uint32)
    registers = data.view(np.uint8).reshape(count, 8, 16)
    backwards = data.view(np.uint8).reshape(8 * count, 16)[::-1]  # the rows, in the order of the lanes
    if form.startswith("m16n8."):  # a lane has two columns of row g, then of row g + 8; memory gets columns as rows
        lanes = registers.reshape(count, 8, 4, 2, 2)  # [matrix][g][column / 2][row / 8][column % 2]
        columns = lanes.transpose(0, 2, 4, 3, 1).reshape(8 * count, 16)
        expected = columns[::-1]
    elif form.startswith("m8n16."):
        expected = np.stack([as_bytes(row, form) for row in backwards])
    else:  # sixteen rows of memory are columns, of which a register has eight rows
        opened = np.stack([as_bytes(row, form) for row in backwards]).reshape(count // 2, 16, 16)
        expected = opened.transpose(0, 2, 1)
    for options in ({}, {"checks": True}):
        out = np.zeros_like(data)
        report = ptx.Program(byte_matrix_text(form))["tile"].launch(1, 32, [data, out], **options)
        assert (out.view(np.uint8).ravel() == np.ascontiguousarray(expected).ravel()).all()
        assert not report.has_checks or not report.findings


def test_movmatrix() -> None:
    tile = np.random.default_rng(6).integers(0, 1 << 16, (8, 8)).astype(np.uint16)
    (got,) = run_lanes(*WARP_OPERATIONS["movmatrix"], [tile.reshape(32, 2).view(np.uint32).ravel()])
    assert (got.view(np.uint16).reshape(8, 8) == tile.T).all()


def shuffled(name: str, value: np.ndarray, lane: int, b: int, c: int) -> tuple[int, int]:
    """The PTX ISA's pseudo-code of shfl for one lane."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    highest, lowest = (lane & segment) | (clamp & ~segment & 31), lane & segment
    j, valid = {
        "shfl.up": (lane - b, lane - b >= highest),
        "shfl.down": (lane + b, lane + b <= highest),
        "shfl.bfly": (lane ^ b, (lane ^ b) <= highest),
        "shfl.idx": (lowest | (b & ~segment & 31), (lowest | (b & ~segment & 31)) <= highest),
    }[name]
    return int(value[j if valid else lane]), int(valid)


@pytest.mark.parametrize("name", ["shfl.up", "shfl.down", "shfl.bfly", "shfl.idx"])
@pytest.mark.parametrize("control", [31, 0, (24 << 8) | 31, (16 << 8) | 15, (30 << 8) | 1, 7])
def test_shuffle(name: str, control: int) -> None:
    rng = np.random.default_rng(control)
    value = rng.integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32)
    for b in (np.full(32, 1), np.full(32, 16), rng.integers(0, 40, 32)):
        got, inside = run_lanes(*WARP_OPERATIONS[name], [value, b.astype(np.uint32), np.full(32, control, np.uint32)])
        expected = [shuffled(name, value, lane, int(b[lane]), control) for lane in range(32)]
        assert got.tolist() == [e[0] for e in expected]
        assert inside.tolist() == [e[1] for e in expected]


@pytest.mark.parametrize("votes", [0, 0xFFFFFFFF, 0x8000_0001, 0x0F0F_1234])
def test_votes(votes: int) -> None:
    flags = (votes >> LANES & 1).astype(np.uint32)
    run = lambda name: run_lanes(*WARP_OPERATIONS[name], [flags])[0]  # noqa: E731
    assert set(run("vote.ballot").tolist()) == {votes}
    assert set(run("vote.ballot.not").tolist()) == {votes ^ 0xFFFFFFFF}
    assert set(run("vote.all").tolist()) == {int(votes == 0xFFFFFFFF)}
    assert set(run("vote.any").tolist()) == {int(votes != 0)}
    assert set(run("vote.uni").tolist()) == {int(votes in (0, 0xFFFFFFFF))}


@pytest.mark.parametrize("width", [32, 64])
def test_match(width: int) -> None:
    kind = np.uint32 if width == 32 else np.uint64
    values = (LANES % 5).astype(kind) + kind((1 << width) - 7)
    (got,) = run_lanes(*WARP_OPERATIONS[f"match.any.b{width}"], [values])
    assert got.tolist() == [sum(1 << k for k in range(32) if values[k] == v) for v in values]
    for same in (values, np.full(32, 3, kind)):
        mask, flag = run_lanes(*WARP_OPERATIONS[f"match.all.b{width}"], [same])
        equal = len(set(same.tolist())) == 1
        assert set(mask.tolist()) == {0xFFFFFFFF if equal else 0}
        assert set(flag.tolist()) == {int(equal)}


def test_redux() -> None:
    rng = np.random.default_rng(0)
    values = [int(v) for v in rng.integers(0, 1 << 32, 32)]
    as_signed = [signed(v, 32) for v in values]
    expected = {
        "redux.add": sum(values), "redux.and": np.bitwise_and.reduce(values), "redux.or": np.bitwise_or.reduce(values),
        "redux.xor": np.bitwise_xor.reduce(values), "redux.min.u32": min(values), "redux.max.u32": max(values),
        "redux.min.s32": min(as_signed), "redux.max.s32": max(as_signed),
    }  # fmt: skip
    for name, value in expected.items():
        (got,) = run_lanes(*WARP_OPERATIONS[name], [np.array(values, np.uint32)])
        assert set(got.tolist()) == {int(value) & 0xFFFFFFFF}, name


@pytest.mark.parametrize("nans", [0, 3, 32])
def test_redux_of_floats(nans: int) -> None:
    values = np.random.default_rng(nans).normal(size=32).astype(np.float32)
    values[5], values[6], values[7] = 0.0, -0.0, 1e-40
    values[32 - nans :] = np.nan
    for operation, best in (("min", np.nanmin), ("max", np.nanmax)):
        for form in ("", ".abs", ".NaN", ".abs.NaN"):
            (got,) = run_lanes(*WARP_OPERATIONS[f"redux.{operation}{form}.f32"], [values.view(np.uint32)])
            inputs = np.abs(values) if "abs" in form else values
            is_nan = nans == 32 or (nans and "NaN" in form)
            expected = np.float32(np.nan) if is_nan else best(inputs)
            assert len(set(got.tolist())) == 1
            np.testing.assert_equal(got.view(np.float32)[0], expected, err_msg=operation + form)


def test_groups_of_one_warp_do_not_see_each_other() -> None:
    """Tiles of eight lanes reach one and the same instruction with member masks of their own."""
    body = """mov.u32 %r60, %laneid; ld.param.u64 %d1, [out]; mad.wide.u32 %d2, %r60, 16, %d1; shr.u32 %r1, %r60, 3;
    shl.b32 %r2, %r1, 3; mov.u32 %r3, 255; shl.b32 %r3, %r3, %r2; and.b32 %r4, %r60, 1; setp.ne.u32 %p1, %r4, 0;
    redux.sync.add.u32 %r10, %r60, %r3; vote.sync.ballot.b32 %r11, %p1, %r3; match.any.sync.b32 %r12, %r4, %r3;
    elect.sync %r13|%p2, %r3; bar.warp.sync %r3; st.global.v4.u32 [%d2], {%r10, %r11, %r12, %r13};"""
    out = np.zeros((32, 4), np.uint32)
    report = ptx.Program(module("tiles", ".param .u64 out", body))["tiles"].launch(1, 32, [out], checks=True)
    for lane in range(32):
        first = lane // 8 * 8
        odd = 0xAA << first
        assert out[lane].tolist() == [8 * first + 28, odd, odd if lane % 2 else 0x55 << first, first]
    assert report.findings == []


def test_activemask_and_elect() -> None:
    body = """mov.u32 %r60, %tid.x; ld.param.u64 %d1, [out]; mad.wide.u32 %d2, %r60, 8, %d1; setp.gt.u32 %p1, %r60, 20;
    mov.u32 %r1, 0; mov.u32 %r2, 0;
    @!%p1 bra SKIP; activemask.b32 %r1; elect.sync %r2|%p2, 0xffe00000; selp.u32 %r3, 256, 0, %p2;
    add.u32 %r2, %r2, %r3;
    SKIP: st.global.v2.u32 [%d2], {%r1, %r2};"""
    out = np.zeros((32, 2), np.uint32)
    ptx.Program(module("active", ".param .u64 out", body))["active"].launch(1, 32, [out])
    assert out[:, 0].tolist() == [0] * 21 + [0xFFE00000] * 11
    assert out[:, 1].tolist() == [0] * 21 + [21 + 256] + [21] * 10


@pytest.mark.parametrize("name", BARRIER_REDUCTIONS)
def test_barrier_reduction(name: str) -> None:
    for pattern in (np.zeros(96), np.ones(96), np.arange(96) % 3 == 0):
        flags = pattern.astype(np.uint32)
        text, destinations, sources = BARRIER_REDUCTIONS[name]
        from ptx_support import lane_kernel

        out = np.zeros(96, np.uint32)
        ptx.Program(lane_kernel(text, destinations, sources))["micro"].launch(1, 96, [out, flags], threads=1)
        expected = {"popc": flags.sum(), "and": not flags.any(), "or": flags.any()}[name]
        assert set(out.tolist()) == {int(expected)}


def test_named_barriers_and_arrive() -> None:
    # Warps 0 and 1 produce and arrive at barrier 1; warp 2 waits there for both, while warp 3 does not take part.
    body = """.shared .align 4 .b8 tile[256]; mov.u32 %r60, %tid.x; ld.param.u64 %d1, [out]; shr.u32 %r1, %r60, 5;
    mov.u32 %r2, tile; setp.gt.u32 %p1, %r1, 1; @%p1 bra OTHER; mad.lo.u32 %r3, %r60, 4, %r2; st.shared.u32 [%r3], %r60;
    bar.arrive 1, 96; bra END;
    OTHER: setp.eq.u32 %p2, %r1, 3; @%p2 bra END; bar.sync 1, 96; sub.u32 %r4, %r60, 64; mad.lo.u32 %r5, %r4, 4, %r2;
    ld.shared.u32 %r6, [%r5]; ld.shared.u32 %r7, [%r5+128]; add.u32 %r8, %r6, %r7; mad.wide.u32 %d2, %r4, 4, %d1;
    st.global.u32 [%d2], %r8;
    END:"""
    out = np.zeros(32, np.uint32)
    report = ptx.Program(module("named", ".param .u64 out", body))["named"].launch(1, 128, [out], checks=True)
    assert out.tolist() == [2 * i + 32 for i in range(32)]
    assert not report.findings
