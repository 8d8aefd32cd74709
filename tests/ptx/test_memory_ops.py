"""Loads, stores, atomics and cp.async in every state space."""

from __future__ import annotations

import ctypes
from fractions import Fraction

import numpy as np
import pytest
from ptx_memory_cases import (
    ATOMICS,
    BULK_FILLS,
    CONSTANT_LOADS,
    CONSTANTS,
    PARAMETER_LOADS,
    ROUND_TRIPS,
    THREAD,
    VECTOR_ATOMICS,
    WIDE_ATOMICS,
    WIDTHS,
    Atomic,
    BulkFill,
    ConstantLoad,
    ParameterLoad,
    RoundTrip,
    VectorAtomic,
    WideAtomic,
)
from ptx_support import decode_float, module, patterns, round_float, signed

from workbench import ptx
from workbench.errors import UnsupportedInstructionError

UINTS = {16: np.uint16, 32: np.uint32, 64: np.uint64}
ALL_LANES = 0xFFFFFFFF


@pytest.mark.sampled(3)
@pytest.mark.parametrize("trip", ROUND_TRIPS, ids=str)
def test_round_trip(trip: RoundTrip) -> None:
    values = patterns(f"b{trip.width}", 32 * trip.elements, 5)[: 32 * trip.elements]
    data = np.array(values, np.uint64).astype(UINTS[trip.width])
    out, scratch = np.zeros_like(data), np.zeros(1024, np.uint8)
    ptx.Program(trip.text)["trip"].launch(1, 32, [out, data, scratch], threads=1)
    bits, mask = WIDTHS[trip.type], (1 << trip.width) - 1
    expected = [signed(v, bits) & mask if trip.type[0] == "s" else v & ((1 << bits) - 1) for v in values]
    assert out.tolist() == expected


@pytest.mark.parametrize("load", PARAMETER_LOADS, ids=str)
def test_parameter(load: ParameterLoad) -> None:
    data = bytes(range(0xE0, 0xE0 + 24))
    out = np.zeros(32, UINTS[load.width])
    ptx.Program(load.text)["load"].launch(1, 32, [out, data], threads=1)
    bits = WIDTHS[load.type]
    value = int.from_bytes(data[8 : 8 + bits // 8], "little")
    assert set(out.tolist()) == {(signed(value, bits) if load.type[0] == "s" else value) & ((1 << load.width) - 1)}


@pytest.mark.parametrize("load", CONSTANT_LOADS, ids=str)
def test_constant(load: ConstantLoad) -> None:
    out = np.zeros(32 * load.elements, UINTS[load.width])
    report = ptx.Program(load.text)["load"].launch(1, 32, [out], threads=1, statistics=True)
    bits, mask = WIDTHS[load.type], (1 << load.width) - 1
    read = [int.from_bytes(CONSTANTS[at * bits // 8 :][: bits // 8], "little") for at in range(len(out))]
    assert out.tolist() == [(signed(v, bits) if load.type[0] == "s" else v) & mask for v in read]
    assert (report.mix["constant"], report.global_load_requests) == (1, 0)


def step(case: Atomic, old: int, operand: int, second: int) -> int:
    kind, width = case.type, case.width
    if case.operation == "add" and "f" in kind:
        if kind.endswith("x2"):
            half = Atomic(case.space, "add", kind[:-2])
            return step(half, old & 0xFFFF, operand & 0xFFFF, 0) | step(half, old >> 16, operand >> 16, 0) << 16
        return round_float(decode_float(old, kind) + decode_float(operand, kind), kind)
    a, b = (signed(old, width), signed(operand, width)) if kind[0] == "s" else (old, operand)
    results = {
        "exch": lambda: b, "cas": lambda: second if a == b else a, "and": lambda: a & b, "or": lambda: a | b,
        "xor": lambda: a ^ b, "min": lambda: min(a, b), "max": lambda: max(a, b), "add": lambda: a + b,
        "inc": lambda: 0 if a >= b else a + 1, "dec": lambda: b if a == 0 or a > b else a - 1,
    }  # fmt: skip
    return results[case.operation]() & ((1 << width) - 1)


@pytest.mark.parametrize("case", ATOMICS, ids=str)
def test_atomic_lanes_go_in_order(case: Atomic) -> None:
    rng = np.random.default_rng(7)
    if "f" in case.type:
        half = case.type.removesuffix("x2")
        draws = [round_float(Fraction(float(x)), half) for x in rng.normal(size=80)]
        pairs = zip(draws[::2], draws[1::2], strict=True)
        values = [low | (high << 16 if case.type.endswith("x2") else 0) for low, high in pairs]
    else:
        values = [int(x) & ((1 << case.width) - 1) for x in rng.integers(0, 1 << 62, 40) * 7]
        if case.operation == "cas":
            values = [v & 3 for v in values]
        if case.operation in ("inc", "dec"):
            values = [v % 9 for v in values]
    data = np.array(values, np.uint64).astype(UINTS[case.width])
    out, scratch = np.zeros(40, data.dtype), np.zeros(64, np.uint8)
    ptx.Program(case.text)["cell"].launch(1, 32, [out, data, scratch], threads=1)
    cell, old = values[0], []
    for lane in range(32):
        old.append(cell)
        cell = step(case, cell, values[lane + 1], values[lane + 2])
    assert out[1:33].tolist() == old
    assert int(out[0]) == cell


@pytest.mark.parametrize("case", VECTOR_ATOMICS, ids=str)
def test_minima_of_vectors(case: VectorAtomic) -> None:
    kind = case.type.removesuffix("x2")
    count = 4 if case.type.endswith("x2") else 2
    rng = np.random.default_rng(8)
    numbers = rng.integers(-9, 10, (33, count)) / 4
    bits = np.array([[round_float(Fraction(float(x)), kind) for x in row] for row in numbers], np.uint16)
    out, scratch = np.zeros((32, count), np.uint16), bits[0].copy()
    report = ptx.Program(case.text)["cell"].launch(1, 32, [out, bits, scratch], checks=True)
    assert report.findings == []
    expected, cell = [], list(zip(numbers[0], bits[0], strict=True))
    for x, b in zip(numbers[1:], bits[1:], strict=True):
        expected.append([old for _, old in cell])
        pairs = zip(cell, zip(x, b, strict=True), strict=True)
        cell = [(min if case.operation == "min" else max)(pair, key=lambda one: one[0]) for pair in pairs]
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(scratch, [old for _, old in cell])


@pytest.mark.parametrize("apart", [0, 8])
@pytest.mark.parametrize("case", WIDE_ATOMICS, ids=str)
def test_atomics_of_128_bits(case: WideAtomic, apart: int) -> None:
    """Also where the host's memory is aligned to 8 bytes alone."""
    data = np.random.default_rng(3).integers(0, 2, (35, 2)).astype(np.uint64)
    out, room = np.zeros((33, 2), np.uint64), np.zeros(128, np.uint8)
    at = room.ctypes.data + -room.ctypes.data % 16 + apart
    scratch = np.frombuffer((ctypes.c_uint8 * 64).from_address(at), np.uint8)
    report = ptx.Program(case.text)["cell"].launch(1, 32, [out, data, scratch], checks=True)
    assert report.findings == []
    cell, old = data[0], []
    for lane in range(32):
        old.append(cell)
        if case.operation == "exch" or (cell == data[lane + 1]).all():
            cell = data[lane + (1 if case.operation == "exch" else 2)]
    np.testing.assert_array_equal(out[1:], old)
    np.testing.assert_array_equal(out[0], cell)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("atom.global.add.b128 %w1, [%d1], %w2;", "for exch and cas alone"),
        ("red.global.exch.b128 [%d1], %w2;", "for exch and cas alone"),
        ("atom.global.min.noftz.f16 %h1, [%d1], %h2;", "for vectors alone"),
    ],
)
def test_other_atomics_are_refused(statement: str, reason: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=reason):
        ptx.Program(module("no", "", f".reg .b128 %w<4>; {statement}"))["no"]


@pytest.mark.parametrize("case", BULK_FILLS, ids=str)
def test_shared_memory_is_filled_with_zeros(case: BulkFill) -> None:
    out = np.zeros(32 * 64, np.uint8)
    report = ptx.Program(case.text)["filled"].launch(1, 32, [out, np.zeros(1), np.zeros(1)], checks=True)
    assert report.findings == []
    want = np.full((16, 128), 255, np.uint8)
    want[:, 16:88] = 0
    np.testing.assert_array_equal(out, want.reshape(-1))


_FILL = ".shared .align 16 .b8 tile[256]; mov.u32 %r1, tile; mov.u32 %r2, %tid.x; mov.u32 %r3, 0;"


@pytest.mark.parametrize(
    ("body", "threads", "kind"),
    [
        ("st.bulk.shared::cta [%r1], 64, 0; ld.shared.u32 %r4, [%r1+60];", 1, None),
        ("st.bulk.shared::cta [%r1], 64, 0; ld.shared.u32 %r4, [%r1+64];", 1, "uninitialised"),
        ("setp.eq.u32 %p1, %r2, 0; @%p1 st.bulk.shared::cta [%r1], 256, 0; setp.ne.u32 %p1, %r2, 0;"
         "@%p1 st.shared.u32 [%r1+8], %r2;", 64, "race"),
        ("setp.eq.u32 %p1, %r2, 0; @%p1 st.bulk.shared::cta [%r1], 256, 0; bar.sync 0;"
         "setp.eq.u32 %p1, %r2, 40; @%p1 st.shared.u32 [%r1+8], %r2;", 64, None),
        ("st.bulk.shared::cta [%r1], 60, 0;", 1, "misuse"),
        ("st.bulk.shared::cta [%r1+128], 136, 0;", 1, "out-of-bounds"),
        ("ld.param.u64 %d1, [out]; st.bulk [%d1], 64, 0;", 1, "misuse"),
    ],
    ids=str,
)  # fmt: skip
def test_fills_are_checked_as_stores(body: str, threads: int, kind: str | None) -> None:
    program = ptx.Program(module("fill", ".param .u64 out", _FILL + body).replace("sm_80", "sm_100"))
    report = program["fill"].launch(1, threads, [np.zeros(64, np.uint8)], checks=True)
    kinds = [one.kind for one in report.findings]
    assert kinds == [] if kind is None else any(kind in one for one in kinds), kinds


def test_red_has_no_result() -> None:
    text = module("count", ".param .u64 out", "ld.param.u64 %d1, [out]; red.global.add.u32 [%d1+4], 1;")
    out = np.zeros(3, np.uint32)
    ptx.Program(text)["count"].launch((7, 3), (33, 2), [out])
    assert out.tolist() == [0, 7 * 3 * 66, 0]


def test_atomics_of_many_blocks_lose_nothing() -> None:
    body = f"""{THREAD} ld.param.u64 %d1, [out]; mov.u32 %r3, %ctaid.x; and.b32 %r1, %r60, 7;
    mad.wide.u32 %d2, %r1, 4, %d1;
    atom.global.add.u32 %r2, [%d2], 1; red.global.max.u32 [%d1+32], %r3; red.global.add.f64 [%d1+40],
    0d3FF0000000000000;"""
    out = np.zeros(12, np.uint32)
    ptx.Program(module("many", ".param .u64 out", body))["many"].launch(500, 64, [out], threads=4)
    assert out[:8].tolist() == [500 * 8] * 8
    assert out[8] == 499
    assert out[10:12].view(np.float64)[0] == 500 * 64


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("kind", ["plain", "zero-fill", "ignore"])
def test_async_copy(size: int, kind: str) -> None:
    extra = {"plain": "", "zero-fill": ", %r5", "ignore": ", %p1"}[kind]
    body = f""".shared .align 16 .b8 tile[1024];
    {THREAD} ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out];
    mov.u32 %r1, tile; mad.lo.u32 %r2, %r60, {size}, %r1; mad.wide.u32 %d3, %r60, {size}, %d1;
    and.b32 %r5, %r60, {size - 1}; setp.lt.u32 %p1, %r60, 5;
    cp.async.ca.shared.global [%r2], [%d3], {size}{extra};
    cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
    mad.wide.u32 %d4, %r60, {size}, %d2;"""
    for i in range(size // 4):
        body += f"ld.shared.u32 %r6, [%r2+{4 * i}]; st.global.u32 [%d4+{4 * i}], %r6;"
    source = np.arange(1, 32 * size + 1, dtype=np.uint64).astype(np.uint8)
    out = np.zeros_like(source)
    program = ptx.Program(module("copy", ".param .u64 in, .param .u64 out", body))
    report = program["copy"].launch(1, 32, [source, out], checks=True, statistics=True)
    assert not report.findings
    expected = source.reshape(32, size).copy()
    for lane in range(32):
        kept = {"plain": size, "zero-fill": lane & (size - 1), "ignore": 0 if lane < 5 else size}[kind]
        expected[lane, kept:] = 0
    assert (out.reshape(32, size) == expected).all()
    assert report.global_load_requests == 1


def test_async_copy_lands_at_the_wait_not_before() -> None:
    body = f""".shared .align 16 .b8 tile[512];
    {THREAD} ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, tile; mad.lo.u32 %r2, %r60, 4, %r1;
    mad.wide.u32 %d3, %r60, 4, %d1; mad.wide.u32 %d4, %r60, 4, %d2;
    st.shared.u32 [%r2], 0; st.shared.u32 [%r2+128], 0;
    cp.async.ca.shared.global [%r2], [%d3], 4; cp.async.commit_group;
    cp.async.ca.shared.global [%r2+128], [%d3], 4; cp.async.commit_group;
    ld.shared.u32 %r3, [%r2]; cp.async.wait_group 1; ld.shared.u32 %r4, [%r2]; ld.shared.u32 %r5, [%r2+128];
    cp.async.wait_all; ld.shared.u32 %r6, [%r2+128];
    st.global.u32 [%d4], %r3; st.global.u32 [%d4+128], %r4; st.global.u32 [%d4+256], %r5;
    st.global.u32 [%d4+384], %r6;"""
    source, out = np.arange(1, 33, dtype=np.uint32), np.full(128, 99, np.uint32)
    program = ptx.Program(module("copy", ".param .u64 in, .param .u64 out", body))
    report = program["copy"].launch(1, 32, [source, out], checks=True)
    assert out.reshape(4, 32)[0].tolist() == [0] * 32
    assert (out.reshape(4, 32)[1] == source).all()
    assert out.reshape(4, 32)[2].tolist() == [0] * 32
    assert (out.reshape(4, 32)[3] == source).all()
    assert [f.kind for f in report.findings] == ["cp.async data read before wait"] * 2
    assert all(f.other_ptx_line for f in report.findings)


Step = tuple[str, int, int]  # an action of the lanes of a mask, with the number of groups that a wait leaves pending
LOW, HIGH = 0xFFFF, 0xFFFF0000
COPY, COMMIT, WAIT = ("copy", ALL_LANES, 0), ("commit", ALL_LANES, 0), ("wait_group", ALL_LANES, 0)
SCRIPTS: list[list[Step]] = [
    [COPY, COMMIT, COPY, COMMIT, COPY, ("wait_group", ALL_LANES, 1), WAIT, ("wait_all", ALL_LANES, 0)],
    # Groups of the same copy with different numbers.
    [("commit", LOW, 0), COPY, COMMIT, COPY, COMMIT, ("wait_group", ALL_LANES, 1), WAIT],
    [COPY, ("commit", LOW, 0), COPY, COMMIT, ("wait_group", HIGH, 0), ("wait_group", ALL_LANES, 1), WAIT],
    [COPY, COMMIT, ("commit", HIGH, 0), ("wait_group", ALL_LANES, 1), WAIT],
    # Two halves that each commit two groups: their copies stand behind each other.
    [
        *[(action, mask, 0) for mask in (LOW, HIGH) for action in ("copy", "commit") * 2],
        ("wait_group", ALL_LANES, 1), WAIT,
    ],
    # Lanes that wait apart, and copies of others in front of theirs.
    [COPY, COMMIT, COPY, COMMIT, ("wait_group", HIGH, 1), ("wait_group", LOW, 0), ("wait_all", HIGH, 0)],
    [("copy", LOW, 0), ("copy", HIGH, 0), COMMIT, ("wait_group", HIGH, 0), COPY, ("wait_all", LOW, 0), COMMIT, WAIT],
]  # fmt: skip


def drawn_script(seed: int) -> list[Step]:
    rng = np.random.default_rng(seed)
    masks = [(ALL_LANES,), (ALL_LANES, LOW, HIGH), (ALL_LANES, ALL_LANES, 0x00FFFF0F), (1, 0x80F0, ALL_LANES - 1)]
    actions = rng.choice(["copy", "commit", "wait_group", "wait_all"], 32, p=[0.4, 0.3, 0.25, 0.05])
    return [(str(action), int(rng.choice(masks[seed % 4])), int(rng.integers(3))) for action in actions]


@pytest.mark.parametrize("script", [*SCRIPTS, *map(drawn_script, range(8))])
def test_async_copies_land_for_the_lanes_that_wait(script: list[Step]) -> None:
    """Copies, commits and waits of the warp or of lanes that differ, beside a queue of each lane's own."""
    steps, lanes = len(script), np.arange(32)
    body = f""".shared .align 16 .b8 tile[{128 * steps}];
    {THREAD} ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, tile; mad.lo.u32 %r2, %r60, 4, %r1;
    mad.wide.u32 %d3, %r60, 4, %d1; mad.wide.u32 %d4, %r60, 4, %d2; mov.u32 %r5, 1; shl.b32 %r5, %r5, %r60;"""
    body += "".join(f"st.shared.u32 [%r2+{128 * step}], 0;" for step in range(steps))
    source = np.arange(1, 32 * steps + 1, dtype=np.uint32).reshape(steps, 32)
    tile, expected = np.zeros((steps, 32), np.uint32), []
    pending: list[list[tuple[int, int | None]]] = [[] for _ in lanes]  # (step, group) of each lane
    committed = [0] * 32
    for step, (action, mask, keep) in enumerate(script):
        text = {
            "copy": f"cp.async.ca.shared.global [%r2+{128 * step}], [%d3+{128 * step}], 4;",
            "commit": "cp.async.commit_group;",
            "wait_group": f"cp.async.wait_group {keep};",
            "wait_all": "cp.async.wait_all;",
        }[action]
        body += f"and.b32 %r6, %r5, {mask}; setp.ne.u32 %p1, %r6, 0; @%p1 {text}\n"
        for lane in lanes[(mask >> lanes & 1) == 1]:
            own = pending[lane]
            if action == "copy":
                own.append((step, None))
            elif action == "commit":
                own[:] = [(at, committed[lane] if group is None else group) for at, group in own]
                committed[lane] += 1
            else:
                kept = 0 if action == "wait_all" else keep
                for at, group in own.copy():
                    if action == "wait_all" if group is None else group + kept < committed[lane]:
                        tile[at, lane] = source[at, lane]
                        own.remove((at, group))
        if action.startswith("wait"):
            expected.append(tile.copy())
            for row in range(steps):
                body += f"ld.shared.u32 %r7, [%r2+{128 * row}]; st.global.u32 [%d4+{128 * row}], %r7;"
            body += f"add.u64 %d4, %d4, {128 * steps};"
    kernel = ptx.Program(module("copies", ".param .u64 in, .param .u64 out", body))["copies"]
    for options in ({}, {"checks": True}):
        out = np.zeros((len(expected), steps, 32), np.uint32)
        kernel.launch(1, 32, [source, out], **options)
        assert (out == np.stack(expected)).all()


def test_pack_and_unpack() -> None:
    body = f"""{THREAD} ld.param.u64 %d1, [out]; mad.wide.u32 %d2, %r60, 16, %d1;
    cvt.u16.u32 %h1, %r60; add.u16 %h2, %h1, 100; add.u16 %h3, %h1, 200; add.u16 %h4, %h1, 300;
    mov.b64 %d3, {{%h1, %h2, %h3, %h4}}; mov.b64 {{%r1, %r2}}, %d3; mov.b32 {{%h5, %h6}}, %r2;
    mov.b32 %r3, {{%h6, %h5}};
    mov.b64 {{_, %h7, %h8, _}}, %d3; mov.b32 %r4, {{%h8, %h7}}; mov.b64 %d4, {{%r3, %r4}};
    st.global.b64 [%d2], %d3; st.global.v2.b32 [%d2+8], {{%r3, %r4}};"""
    out = np.zeros((32, 8), np.uint16)
    ptx.Program(module("pack", ".param .u64 out", body))["pack"].launch(1, 32, [out])
    for lane in range(32):
        assert out[lane].tolist() == [
            lane,
            lane + 100,
            lane + 200,
            lane + 300,
            lane + 300,
            lane + 200,
            lane + 200,
            lane + 100,
        ]


def test_device_variables_start_initialised_and_live_as_long_as_the_program() -> None:
    text = module("bump", ".param .u64 out", f"""{THREAD} ld.param.u64 %d1, [out]; mad.wide.u32 %d2, %r60, 4, %d1;
    ld.const.u32 %r1, [table+4]; ld.global.u32 %r2, [counter]; add.u32 %r3, %r1, %r2; st.global.u32 [%d2], %r3;
    bar.sync 0; setp.eq.u32 %p1, %r60, 0; @%p1 st.global.u32 [counter], %r3;""")  # fmt: skip
    text = text.replace(
        ".visible .entry",
        ".global .align 4 .u32 counter = 5;\n.const .align 4 .b8 table[8] = {1, 0, 0, 0, 16, 1};\n.visible .entry",
    )
    program, out = ptx.Program(text), np.zeros(32, np.uint32)
    program["bump"].launch(1, 32, [out])
    assert set(out.tolist()) == {272 + 5}
    program["bump"].launch(1, 32, [out])
    assert set(out.tolist()) == {272 + 277}
