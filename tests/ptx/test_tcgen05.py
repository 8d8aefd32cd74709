"""tcgen05.mma of every kind, layout and source of A, and loads and stores of every shape, against exact sums."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from ptx_support import HEADER, module
from ptx_tcgen05_cases import A_AT, B_AT, BITS, METADATA_AT, SCALES_AT, SHARED_BYTES, TCGEN05, Tcgen05, ZeroColumns
from test_mma import codes, value_of
from test_sparse import ASCENDING, chosen, expanded
from test_wgmma import CHUNKS, offsets

from workbench import ptx
from workbench.analysis.exact.elements import MODULUS
from workbench.analysis.exact.elements import elements as of_ring
from workbench.errors import KernelFault, UnsupportedInstructionError
from workbench.ptx.tensor_map import TensorMap

NARROW = {"e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e2m1": (2, 1, 1)}  # exponent and mantissa bits, bias


def narrow_value(kind: str, code: int) -> Fraction:
    """The value of an element of four or six bits, from the definition of its format."""
    exponent_bits, mantissa_bits, bias = NARROW[kind]
    mantissa, exponent = code & ((1 << mantissa_bits) - 1), code >> mantissa_bits & ((1 << exponent_bits) - 1)
    sign = -1 if code >> (exponent_bits + mantissa_bits) & 1 else 1
    fraction = Fraction(mantissa, 1 << mantissa_bits)
    if exponent == 0:
        return sign * fraction * Fraction(2) ** (1 - bias)
    return sign * (1 + fraction) * Fraction(2) ** (exponent - bias)


def packed(patterns: np.ndarray, width: int, together: int) -> np.ndarray:
    """Rows of bytes: so many elements, one after the other, at the begin of each 16."""
    out = np.zeros((len(patterns), patterns.shape[1] // together * 16), np.uint8)
    for row, elements in enumerate(patterns):
        for first in range(0, len(elements), together):
            number = sum(int(code) << width * i for i, code in enumerate(elements[first : first + together]))
            at = first // together * 16
            out[row, at : at + 16] = np.frombuffer(number.to_bytes(16, "little"), np.uint8)
    return out


def in_bytes(patterns: np.ndarray, width: int) -> np.ndarray:
    """Elements of four and six bits as tensor memory has them: in a byte each, four bits in its middle."""
    return (patterns << 2 if width == 4 else patterns).astype(np.uint8)


def factor(
    case: Tcgen05, kind: str, shape: tuple[int, int], rng: np.random.Generator, in_tensor_memory: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A matrix by rows of K: its bytes (32 a row, or 64), and its values."""
    rows = shape[0]
    if kind in NARROW:
        patterns = rng.integers(0, 1 << BITS[kind], shape)
        values = np.vectorize(lambda code: float(narrow_value(kind, int(code))))(patterns)
        if in_tensor_memory and not case.is_packed:
            return in_bytes(patterns, BITS[kind]), values
        return packed(patterns, BITS[kind], 32 if case.is_packed else 16), values
    if kind in ("bf16", "tf32"):
        values = rng.integers(-8, 9, shape) / 4
        words = values.astype(np.float32).view(np.uint32)
        if kind == "bf16":
            return (words >> 16).astype(np.uint16).view(np.uint8).reshape(rows, -1), values
        return (words | rng.integers(0, 1 << 13, shape).astype(np.uint32)).view(np.uint8).reshape(rows, -1), values
    patterns = codes(kind, shape, rng)
    if kind == "f16":
        values = patterns.astype(np.uint16).view(np.float16).astype(float)
    else:
        values = np.vectorize(lambda code: float(value_of(kind, int(code))))(patterns)
    return patterns.astype(f"u{BITS[kind] // 8}").view(np.uint8).reshape(rows, -1), values


def put(out: np.ndarray, rows: np.ndarray, mode: int, transposed: bool, size: int) -> None:
    """Lay a matrix out in shared memory as a descriptor of that mode describes it."""
    width, mask, shift = (*CHUNKS, 8)[mode], (0, 7, 3, 1, 3)[mode], 5 if mode == 4 else 4
    depth = 4 if mode == 4 else 8
    chunks = rows.shape[1] // 16
    leading, stride = leading_and_stride(mode, transposed, size, chunks)
    together = 16 // size

    def store(offset: int, value: np.ndarray) -> None:
        chunk = offset // 16 * 16
        at = (chunk ^ (chunk >> 7 & mask) << shift) + offset % 16
        out[at : at + len(value)] = value

    for row, bytes_ in enumerate(rows):
        if not transposed:
            for chunk in range(chunks):
                along = chunk * (leading if mode == 0 else 16)
                store(row // 8 * stride + row % 8 * 16 * width + along, bytes_[16 * chunk : 16 * chunk + 16])
            continue
        for k in range(16 * chunks // size):
            here = row % together * size
            if mode == 0:
                at = here + row // together * stride + k % 8 * 16 + k // 8 * leading
            else:
                atom = together * width
                at = row % atom // together * 16 + here
                at += row // atom * leading + k % depth * 16 * width + k // depth * stride
            store(at, bytes_[size * k : size * k + size])


def leading_and_stride(mode: int, transposed: bool, size: int, chunks: int = 2) -> tuple[int, int]:
    """The offsets of a tile without gaps; of bytes that are transposed there are two atoms for each chunk along K."""
    if mode == 4:
        return (1024, 512)
    if transposed and size == 1:
        atom = 128 * CHUNKS[mode]
        return (128, 256 * chunks) if mode == 0 else (2 * chunks * atom, atom)
    return offsets(mode, transposed, chunks)


def tensor_metadata(case: Tcgen05, nibbles: np.ndarray) -> np.ndarray:
    """Four columns of 128 lanes that have the metadata of A's rows, and elsewhere what is not allowed.

    As CUTLASS has it (mma_traits_sm100.hpp, tmem_e_frg), and JAX (format_tcgen05_sparse_metadata).
    """
    words = np.zeros((128, 4), np.uint64)
    of_word = 4 if case.kind in ("f16", "tf32") else 8
    for row, mine in enumerate(nibbles):
        for half in range(2):
            bits = sum(int(four) << 4 * i for i, four in enumerate(mine[of_word * half : of_word * (half + 1)]))
            if of_word == 4:
                lane = row % 8 + 8 * half + row // 16 * 16
                words[lane, case.selector] |= np.uint64(bits << row // 8 % 2 * 16)
            else:
                words[row, half] = bits
    return words.astype(np.uint32)


def places(case: Tcgen05) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(block, lane, column) of D's elements, each [rows][columns]."""
    row, column = np.indices((case.rows, case.columns))
    own = case.rows // (1 + case.pair)
    block, row = row // own, row % own
    if own == 128:
        return block, row, column
    if case.stationary or case.pair:
        part = case.columns // (128 // own)
        return block, row + column // part * own, column % part
    return block, row // 16 * 32 + row % 16 + case.lane, column


def run(
    case: Tcgen05,
    a: np.ndarray,
    b: np.ndarray,
    d: np.ndarray,
    scales: Sequence[np.ndarray],
    nibbles: np.ndarray | None = None,
    launches: Sequence[dict] = ({"checks": True}, {}),
) -> np.ndarray:
    """Columns of tensor memory after a product, [blocks][columns][lanes], for the bytes of A and B and D's words."""
    size, blocks = {"f16": 2, "tf32": 4}.get(case.kind, 1), 1 + case.pair
    block_of, lanes, _ = places(case)
    given = []
    for block in range(blocks):
        inside, words = np.zeros(SHARED_BYTES, np.uint8), np.zeros((8, 128), np.uint32)
        own = a[block_of[:, 0] == block]
        if case.mode_a is not None:
            put(inside[A_AT:B_AT], own, case.mode_a, case.transposed_a, size)
        else:
            copies = range(0, 128, len(own)) if case.stationary or case.pair else (0,)
            for further in copies:
                words[:, lanes[block_of[:, 0] == block, 0] + further] = own.view(np.uint32).T
        put(inside[B_AT:SCALES_AT], np.split(b, blocks)[block], case.mode_b, case.transposed_b, size)
        # Each block has the scales of its own rows of A, and of all columns of B.
        of_block = (np.split(scales[0], blocks)[block], scales[1])
        for i, (parts, first) in enumerate(zip(of_block, case.scale_ids, strict=True)):
            for row, of_row in enumerate(parts):
                at = SCALES_AT + 512 * (i + row // 128) + row % 32 * 16 + row % 128 // 32 * 4 + first
                inside[at : at + len(of_row)] = of_row
        if nibbles is not None:
            inside[METADATA_AT:] = tensor_metadata(case, nibbles[block_of[:, 0] == block]).view(np.uint8).reshape(-1)
        given += [inside, words.reshape(-1).view(np.uint8), d[block].reshape(-1).view(np.uint8)]
    out = np.zeros_like(d)
    a_offsets = leading_and_stride(case.mode_a or 0, case.transposed_a, size)
    b_offsets = leading_and_stride(case.mode_b, case.transposed_b, size, 2 + 2 * case.sparse)
    kernel = ptx.Program.from_text(case.text(*zip(a_offsets, b_offsets, strict=True)))["tile_product"]
    for options in launches:
        report = kernel.launch(blocks, 128, [np.concatenate(given), out], cluster=blocks, **options)
        assert report.findings == []
    return out


@pytest.mark.parametrize("case", TCGEN05, ids=lambda case: case.name)
def test_every_product(case: Tcgen05) -> None:
    rng = np.random.default_rng(7)
    a_bytes, a = factor(case, case.a, (case.rows, case.stored_depth), rng, case.mode_a is None)
    shift = case.mask.shift if case.mask else 0
    b_bytes, b = factor(case, case.b, (case.columns + shift, case.depth), rng)
    b = b[shift:]
    if case.mask:
        parts = 128 // case.rows
        b[[zero for i in range(parts) for zero in case.mask.columns(i, case.columns // parts)]] = 0
    nibbles = None
    if case.sparse:
        bits = 4 if case.is_packed else {"f16": 16, "tf32": 32}.get(case.kind, 8)
        nibbles = chosen(bits, (case.rows, case.depth), rng, (*ASCENDING, 0b0110))
        a = expanded(a, nibbles, bits)
    a, b = a * case.signs[0], b * case.signs[1]
    scales = [np.zeros((0, 0), np.uint8)] * 2
    for which, matrix in enumerate((a, b) if case.scales else ()):
        steps = rng.integers(-2, 3, (len(matrix), case.parts))
        values = 2.0**steps if case.powers else 1 + rng.integers(0, 8, steps.shape) / 8
        scales[which] = (steps + 127 if case.powers else 56 + 8 * (values - 1)).astype(np.uint8)
        matrix *= np.repeat(values, case.depth // case.parts, 1)
    kind = {"f32": np.float32, "s32": np.int32, "f16": np.float16}[case.sums]
    before = rng.integers(-9, 10, (case.rows, case.columns)).astype(float)
    if case.saturating:
        before[::2], before[1::2] = np.iinfo(np.int32).max - 5, np.iinfo(np.int32).min + 5
    want = a @ b.T + (before / 2**case.shift if case.keep else 0)
    if case.sums == "s32":
        limits = np.iinfo(np.int32)
        want = np.clip(want, limits.min, limits.max) if case.saturating else want
    # Lanes and columns that D does not have keep these.
    cells = rng.integers(0, 1 << 16, (1 + case.pair, case.columns, 128)).astype(np.uint32)
    block, lane, column = places(case)

    def as_words(values: np.ndarray) -> np.ndarray:
        bits = values.astype(kind).view(np.uint16 if kind is np.float16 else np.uint32)
        return bits.astype(np.uint32)

    cells[block, column, lane] = as_words(before)
    expected = cells.copy()
    kept = np.zeros((1 + case.pair, 128), bool)
    for i, mask in enumerate(case.masks or ()):
        kept[i // 4, i % 4 * 32 : i % 4 * 32 + 32] = [mask >> bit & 1 for bit in range(32)]
    expected[block, column, lane] = np.where(kept[block, lane], cells[block, column, lane], as_words(want))
    np.testing.assert_array_equal(run(case, a_bytes, b_bytes, cells, scales, nibbles), expected)
    if (
        case.sums != "s32" and case.kind != "tf32"
    ):  # the same on elements of a ring, of which these numbers are what they are
        found = run(case, a_bytes, b_bytes, cells, scales, nibbles, [{"exact": True}])[block, column, lane]
        bits = torch.from_numpy(found.astype(np.uint16 if kind is np.float16 else np.uint32).view(kind))
        wanted = (want * 2**20).astype(np.int64) % MODULUS * pow(2**20, -1, MODULUS) % MODULUS
        used = ~kept[block, lane]
        np.testing.assert_array_equal(of_ring(bits).numpy()[used], wanted[used])


SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}  # registers of .x1


def place(shape: str, lane: np.ndarray, i: int, apart: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of a register of each lane, as CUTLASS has them."""
    if shape == "16x64b":
        return lane // 4 + 8 * (lane % 2), 2 * i + lane // 2 % 2
    if shape == "16x128b":
        return lane // 4 + 8 * (i % 2), 4 * (i // 2) + lane % 4
    if shape == "16x256b":
        return lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2
    if shape == "16x32bx2":
        return lane % 16, i + np.where(lane >= 16, apart, 0)
    return lane, np.full_like(lane, i)


def moves(body: str, registers: int) -> str:
    """A kernel of one warp around ``body`` with 64 columns at %tm, registers from ``in`` and to ``out``."""
    listed = "{" + ", ".join(f"%v{i}" for i in range(registers)) + "}"
    lines = [
        f".reg .b32 %v<{registers}>, %t, %n, %tm, %c; .reg .b64 %in, %out;",
        ".shared .align 4 .b32 where;",
        "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %n, where;",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%n], 64;",
        "bar.warp.sync -1; ld.shared.b32 %tm, [where];",
        "mad.wide.u32 %in, %t, 4, %in; mad.wide.u32 %out, %t, 4, %out;",
        *(f"ld.global.b32 %v{i}, [%in+{128 * i}];" for i in range(registers)),
        body.replace("LISTED", listed),
        *(f"st.global.b32 [%out+{128 * i}], %v{i};" for i in range(registers)),
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 64;",
    ]
    header = HEADER.replace("sm_80", "sm_100a")
    return f"{header}.visible .entry moves(.param .u64 in, .param .u64 out)\n{{\n" + "\n".join(lines) + "\nret;\n}\n"


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_loads_and_stores(shape: str, pack: bool) -> None:
    """A store of one shape and loads of .32x32b see the same cells, and the other way round."""
    count, apart = 4 * SHAPES[shape], 32
    split = f", {apart}" if shape == "16x32bx2" else ""
    store = f"tcgen05.st.sync.aligned.{shape}.x4{'.unpack::16b' * pack}.b32 [%tm]{split}, LISTED;"
    load = f"tcgen05.ld.sync.aligned.{shape}.x4{'.pack::16b' * pack}.b32 LISTED, [%tm]{split};"
    whole = ", ".join(f"%w{i}" for i in range(64))
    cells = [
        ".reg .b32 %w<64>;", "mov.u32 %c, 0;", *(f"mov.u32 %w{i}, 0;" for i in range(64)),
        f"tcgen05.st.sync.aligned.32x32b.x64.b32 [%tm], {{{whole}}}; tcgen05.wait::st.sync.aligned;", store,
        f"tcgen05.wait::st.sync.aligned; tcgen05.ld.sync.aligned.32x32b.x64.b32 {{{whole}}}, [%tm];",
        "tcgen05.wait::ld.sync.aligned;", *(f"st.global.b32 [%out+{128 * (count + i)}], %w{i};" for i in range(64)),
        *(f"mov.u32 %v{i}, 0;" for i in range(count)), load, "tcgen05.wait::ld.sync.aligned;",
    ]  # fmt: skip
    given = np.random.default_rng(5).integers(0, 1 << 32, (count, 32)).astype(np.uint32)
    out = np.zeros((count + 64, 32), np.uint32)
    report = ptx.Program.from_text(moves("\n".join(cells), count))["moves"].launch(1, 32, [given, out], checks=True)
    assert report.findings == []
    np.testing.assert_array_equal(out[:count], given)
    expected = np.zeros((64, 32), np.uint32)
    for i in range(count):
        row, column = place(shape, np.arange(32), i, apart // 2 if pack else apart)
        if not pack:
            expected[column, row] = given[i]
        else:
            expected[2 * column, row], expected[2 * column + 1, row] = given[i] & 0xFFFF, given[i] >> 16
    np.testing.assert_array_equal(out[count:], expected)


COPIES = {"128x256b": 2, "128x128b": 1, "64x128b.warpx2::02_13": 1, "64x128b.warpx2::01_23": 1, "32x128b.warpx4": 1}
WIDENED = {"": 0, ".b8x16.b4x16_p64": 4, ".b8x16.b6x16_p32": 6}  # bits of an element


def widened(chunks: np.ndarray, bits: int) -> np.ndarray:
    """Sixteen elements from the begin of each 16 bytes, as tensor memory has them in bytes."""
    if not bits:
        return chunks
    numbers = [int.from_bytes(chunk.tobytes(), "little") for chunk in chunks]
    codes = [[number >> bits * i & (1 << bits) - 1 for i in range(16)] for number in numbers]
    return in_bytes(np.array(codes), bits).view(np.uint32)


@pytest.mark.parametrize("format", WIDENED)
@pytest.mark.parametrize("shape", COPIES)
def test_copies(shape: str, format: str) -> None:
    chunks, rows = COPIES[shape], int(shape.split("x")[0])
    lines = [
        ".reg .pred %p, %first; .reg .b32 %v<8>, %t, %n, %at, %tm, %bar, %w; .reg .b64 %in, %out, %x;",
        ".shared .align 1024 .b8 tile[4096]; .shared .align 8 .b64 done; .shared .align 4 .b32 where;",
        "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %n, where; mov.u32 %bar, done;",
        "mad.wide.u32 %in, %t, 32, %in; mad.wide.u32 %out, %t, 32, %out; shl.b32 %at, %t, 5; mov.u32 %w, tile;",
        "add.u32 %at, %at, %w;",
        *(f"ld.global.b64 %x, [%in+{8 * i}]; st.shared.b64 [%at+{8 * i}], %x;" for i in range(4)),
        "shr.u32 %w, %t, 5; setp.eq.u32 %first, %w, 0; setp.eq.u32 %p, %t, 0;",
        "@%p mbarrier.init.shared.b64 [%bar], 1;",
        "@%first tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%n], 32;",
        "fence.proxy.async.shared::cta; bar.sync 0; ld.shared.b32 %tm, [where];",
        f"mov.b64 %x, {(2048 >> 4) << 16 | (128 >> 4) << 32 | 1 << 46};",
        f"@%p tcgen05.cp.cta_group::1.{shape}{format} [%tm], %x;",
        "@%p tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%bar];",
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0; @!%p bra WAIT;",
        "shl.b32 %w, %w, 21; add.u32 %w, %w, %tm;",
        f"tcgen05.ld.sync.aligned.32x32b.x{4 * chunks}.b32 {{{', '.join(f'%v{i}' for i in range(4 * chunks))}}}, [%w];",
        *(f"st.global.b32 [%out+{4 * i}], %v{i};" for i in range(4 * chunks)),
        "tcgen05.wait::ld.sync.aligned; bar.sync 0; @%first tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 32;",
    ]
    header, inside = HEADER.replace("sm_80", "sm_100a"), "\n".join(lines)
    text = f"{header}.visible .entry copies(.param .u64 in, .param .u64 out)\n{{\n{inside}\nret;\n}}\n"
    given = np.random.default_rng(3).integers(0, 1 << 32, (256, 4)).astype(np.uint32)  # chunks of 16 bytes
    out = np.zeros((128, 8), np.uint32)
    report = ptx.Program.from_text(text)["copies"].launch(1, 128, [given, out], checks=True)
    assert report.findings == []
    lane = np.arange(128)
    row = lane // 64 * 32 + lane % 32 if shape.endswith("01_23") else lane % rows
    for chunk in range(chunks):
        want = widened(given[128 * chunk + row], WIDENED[format])
        np.testing.assert_array_equal(out[:, 4 * chunk : 4 * chunk + 4], want)


def shifting(body: str, group: int = 1) -> str:
    """A kernel of 128 threads: ``in`` is 132 rows of 32 bytes, the first 128 of which are copied to tensor memory."""
    form = f"cta_group::{group}"
    values = ", ".join(f"%v{i}" for i in range(8))
    lines = [
        ".reg .pred %p, %first, %leads; .reg .b32 %v<8>, %t, %n, %at, %tm, %bar, %w; .reg .b64 %in, %from, %out, %x;",
        ".shared .align 1024 .b8 tile[5120]; .shared .align 8 .b64 done; .shared .align 4 .b32 where;",
        "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %n, where; mov.u32 %bar, done;",
        # Rows of 32 bytes in a swizzle of 32: chunk 1 of lines with bit 7 of their address goes before chunk 0.
        "mov.u32 %v0, %t; mov.u32 %v7, tile;",
        "NEXT: mad.wide.u32 %from, %v0, 32, %in; shl.b32 %at, %v0, 5; shr.u32 %v1, %at, 3; and.b32 %v1, %v1, 16;",
        "xor.b32 %at, %at, %v1; add.u32 %v2, %at, %v7; xor.b32 %v3, %v2, 16;",
        "ld.global.v4.b32 {%v4, %v5, %v6, %w}, [%from]; st.shared.v4.b32 [%v2], {%v4, %v5, %v6, %w};",
        "ld.global.v4.b32 {%v4, %v5, %v6, %w}, [%from+16]; st.shared.v4.b32 [%v3], {%v4, %v5, %v6, %w};",
        "add.u32 %v0, %v0, 128; setp.lt.u32 %p, %v0, 132; @%p bra NEXT;",
        "shr.u32 %w, %t, 5; setp.eq.u32 %first, %w, 0; setp.eq.u32 %leads, %t, 0;",
        "@%leads mbarrier.init.shared.b64 [%bar], 1;",
        f"@%first tcgen05.alloc.{form}.sync.aligned.shared::cta.b32 [%n], 32;",
        "fence.proxy.async.shared::cta; bar.sync 0; ld.shared.b32 %tm, [where];",
        f"mov.b64 %x, {(256 >> 4) << 32 | 1 << 46 | 6 << 61};",
        f"@%leads tcgen05.cp.{form}.128x256b [%tm], %x; @!%leads bra DONE;",
        f"mov.b64 %x, {(4096 >> 4) | (256 >> 4) << 32 | 1 << 46 | 6 << 61};",
        body,
        f"tcgen05.commit.{form}.mbarrier::arrive::one.b64 [%bar];",
        "DONE: mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0; @!%p bra DONE;",
        "shl.b32 %w, %w, 21; add.u32 %w, %w, %tm;",
        f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{values}}}, [%w]; tcgen05.wait::ld.sync.aligned;",
        "mad.wide.u32 %out, %t, 32, %out;",
        *(f"st.global.b32 [%out+{4 * i}], %v{i};" for i in range(8)),
        f"bar.sync 0; @%first tcgen05.dealloc.{form}.sync.aligned.b32 %tm, 32;",
    ]
    header, inside = HEADER.replace("sm_80", "sm_100a"), "\n".join(lines)
    return f"{header}.visible .entry shifting(.param .u64 in, .param .u64 out)\n{{\n{inside}\nret;\n}}\n"


def test_lanes_are_shifted_and_the_last_ones_copied() -> None:
    """A convolution moves the rows of A: all but the last of each warp's lanes get those behind them."""
    given = np.random.default_rng(4).integers(0, 1 << 32, (132, 8)).astype(np.uint32)
    out = np.zeros((128, 8), np.uint32)
    want = given[:128].reshape(4, 32, 8).copy()
    want[:, :31] = want[:, 1:].copy()
    report = ptx.Program.from_text(shifting("tcgen05.shift.cta_group::1.down [%tm];"))["shifting"].launch(
        1, 128, [given, out], checks=True
    )
    assert report.findings == []
    np.testing.assert_array_equal(out, want.reshape(128, 8))
    want[:, 31] = given[128:]
    body = "tcgen05.shift.down.cta_group::1 [%tm]; tcgen05.cp.cta_group::1.4x256b [%tm+2031616], %x;"
    report = ptx.Program.from_text(shifting(body))["shifting"].launch(1, 128, [given, out], checks=True)
    assert report.findings == []
    np.testing.assert_array_equal(out, want.reshape(128, 8))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("tcgen05.shift.cta_group::1.down [%tm+2097152];", "a shift from lane 32 on"),
        ("tcgen05.shift.cta_group::1.down [%tm+28];", "8 columns of tensor memory from column 28"),
        ("tcgen05.cp.cta_group::1.4x256b [%tm+2097152], %x;", "a copy to lane 32, where one of the lanes 0 to 31"),
        ("tcgen05.shift.cta_group::2.down [%tm];", "in a cluster of 1"),
    ],
)
def test_shifts_are_checked(body: str, words: str) -> None:
    group = 2 if "::2" in body else 1
    kernel = ptx.Program.from_text(shifting(body, 1).replace("cta_group::1", f"cta_group::{group}"))["shifting"]
    with pytest.raises(KernelFault, match=words):
        kernel.launch(1, 128, [np.zeros((132, 8), np.uint32), np.zeros((128, 8), np.uint32)])


@pytest.mark.parametrize("atom", [16, 32, 64])
def test_a_tile_is_read_in_the_swizzle_that_it_was_written_in(atom: int) -> None:
    lines = [
        ".reg .pred %p, %first; .reg .b32 %t, %n, %tm, %bar; .reg .b64 %map, %x;",
        ".shared .align 1024 .b8 tile[4096]; .shared .align 8 .b64 bars[2]; .shared .align 4 .b32 where;",
        "mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; mov.u32 %bar, bars; mov.u32 %n, where; mov.u32 %t, tile;",
        "mov.b64 %map, map; cvta.param.u64 %map, %map;",
        "@%first mbarrier.init.shared.b64 [%bar], 1; @%first mbarrier.init.shared.b64 [%bar+8], 1;",
        "fence.mbarrier_init.release.cluster; @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 4096;",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%n], 32; bar.warp.sync -1; ld.shared.b32 %tm, [%n];",
        "@%first cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%t], [%map, {0, 0}], [%bar];",
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0; @!%p bra WAIT;",
        f"mov.b64 %x, {(1024 >> 4) << 32 | 1 << 46 | 2 << 61};",
        "@%first tcgen05.cp.cta_group::1.32x128b.warpx4 [%tm], %x;",
        "@%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%bar+8];",
        "DONE: mbarrier.try_wait.parity.shared.b64 %p, [%bar+8], 0; @!%p bra DONE;",
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 32;",
    ]
    header, inside = HEADER.replace("sm_80", "sm_100a"), "\n".join(lines)
    text = f"{header}.visible .entry reads(.param .align 64 .b8 map[128])\n{{\n{inside}\nret;\n}}\n"
    tensor_map = TensorMap.of(torch.zeros(32, 32), (32, 32), swizzle=128, atom=atom)
    report = ptx.Program.from_text(text)["reads"].launch(1, 32, [tensor_map], checks=True)
    found = [one.message for one in report.findings]
    assert len(found) == (atom != 16), found
    assert atom == 16 or f"wrote with one of 128 in atoms of {atom}" in found[0]


@pytest.mark.parametrize(
    "left_out",
    [
        "fence.proxy.async.shared::cta;", "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%bar];",
        "DONE: mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0; @!%p bra DONE;", "tcgen05.wait::ld.sync.aligned;",
    ],
)  # fmt: skip
def test_the_order_around_a_shift_matters(left_out: str) -> None:
    text = shifting("tcgen05.shift.cta_group::1.down [%tm];")
    assert left_out in text
    kernel = ptx.Program.from_text(text.replace(left_out, "DONE:" if left_out[0] == "D" else ""))["shifting"]
    given = np.zeros((132, 8), np.uint32), np.zeros((128, 8), np.uint32)
    if "commit" in left_out:
        with pytest.raises(KernelFault, match="deadlock"):
            kernel.launch(1, 128, [*given], checks=True)
    else:
        assert kernel.launch(1, 128, [*given], checks=True, strict=True).findings


def reduced(operation: str, values: np.ndarray) -> np.ndarray:
    """The minimum or maximum of each column's 32-bit words; of floating point by the PTX ISA's redux.sync."""
    name, *rest = operation.split(".")
    kind = rest[-1]
    if kind != "f32":
        whole = values.view(np.int32) if kind == "s32" else values
        return (whole.max(0) if name == "max" else whole.min(0)).view(np.uint32)
    numbers = values.view(np.float32)
    if "abs" in rest:
        numbers = np.abs(numbers)
    # -0 is below 0, and a NaN gives way to numbers.
    keys = [[(x, not np.signbit(x)) for x in column if not np.isnan(x)] for column in numbers.T]
    found = [(max if name == "max" else min)(column)[0] if column else np.nan for column in keys]
    if "NaN" in rest:
        found = [np.nan if np.isnan(column).any() else x for x, column in zip(found, numbers.T, strict=True)]
    words = np.array(found, np.float32).view(np.uint32)
    words[np.isnan(found)] = 0x7FFFFFFF
    return words


@pytest.mark.parametrize(
    "operation",
    ["min.f32", "max.f32", "min.abs.f32", "max.abs.NaN.f32", "min.NaN.f32", "min.u32", "max.s32", "u32.max"],
)
@pytest.mark.parametrize("shape", ["32x32b", "16x32bx2"])
def test_loads_with_a_reduction(shape: str, operation: str) -> None:
    split = ", 8" if shape == "16x32bx2" else ""
    store = f"tcgen05.st.sync.aligned.{shape}.x4.b32 [%tm]{split}, LISTED; tcgen05.wait::st.sync.aligned;"
    load = f"tcgen05.ld.red.sync.aligned.{shape}.x4.{operation} LISTED, %c, [%tm]{split};"
    body = f"{store} mov.u32 %v1, 0; {load} tcgen05.wait::ld.sync.aligned; mov.b32 %v0, %c;"
    rng = np.random.default_rng(6)
    given = rng.integers(0, 1 << 32, (4, 32)).astype(np.uint32)
    given[:, ::2] = rng.choice(np.array([0, 1 << 31, 0x7FC00000, 0x3F800000, 0xBF800000], np.uint32), (4, 16))
    given[:, 0] = 0x7FC00000
    out = np.zeros_like(given)
    report = ptx.Program.from_text(moves(body, 4))["moves"].launch(1, 32, [given, out], checks=True)
    assert report.findings == []
    assert report.notes == []
    np.testing.assert_array_equal(out[1:], given[1:])
    kind = ".".join(sorted(operation.split("."), key=lambda part: part[0] in "us"))
    np.testing.assert_array_equal(out[0], reduced(kind, given))


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("tcgen05.ld.sync.aligned.32x32b.x4.b32 LISTED, [%tm]; tcgen05.wait::ld.sync.aligned;", "unwritten",
         "column 0"),
        ("tcgen05.st.sync.aligned.32x32b.x4.b32 [%tm], LISTED; tcgen05.ld.sync.aligned.32x32b.x4.b32 LISTED, [%tm];"
         "tcgen05.wait::ld.sync.aligned; tcgen05.wait::st.sync.aligned;", "race", "tcgen05.wait::st"),
        ("tcgen05.st.sync.aligned.32x32b.x4.b32 [%tm+61], LISTED; tcgen05.wait::st.sync.aligned;", "misuse",
         "4 columns of tensor memory from column 61"),
        ("tcgen05.st.sync.aligned.32x32b.x4.b32 [%tm+2097152], LISTED;", "misuse",
         "lane 32 of tensor memory from warp 0"),
        ("tcgen05.st.sync.aligned.32x32b.x4.b32 [%tm], LISTED;", "race", "tcgen05.wait::st"),
        (".reg .pred %p; setp.eq.u32 %p, %t, 0; @%p tcgen05.shift.cta_group::1.down [%tm];"
         "tcgen05.ld.sync.aligned.32x32b.x4.b32 LISTED, [%tm]; tcgen05.wait::ld.sync.aligned;", "race",
         "tcgen05.commit behind the shift"),
        ("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
         "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%n], 32;", "misuse", "after tcgen05.relinquish"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%n], 48;", "misuse", "48 columns"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%n], 128; ld.shared.b32 %c, [%n];"
         "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %c, 128;", "misuse", "must not grow"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%n], 32;", "misuse", "still allocated"),
        ("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 64;", "misuse", "not allocated so"),
        ("add.u32 %c, %tm, %t; tcgen05.ld.sync.aligned.32x32b.x4.b32 LISTED, [%c];", "misuse",
         "differs between the lanes"),
    ],
    ids=lambda value: value if len(str(value)) < 12 else "",
)  # fmt: skip
def test_misuse_is_found(body: str, kind: str, words: str) -> None:
    kernel = ptx.Program.from_text(moves(body, 4))["moves"]
    report = kernel.launch(1, 32, [np.zeros((4, 32), np.uint32), np.zeros((4, 32), np.uint32)], checks=True)
    assert any(kind in finding.kind and words in finding.message for finding in report.findings), report.findings


@pytest.mark.parametrize(("by", "strict", "count"), [("", False, 1), ("LLVM NVPTX Back-End", False, 0),
                                                     ("LLVM NVPTX Back-End", True, 1)])  # fmt: skip
def test_triton_loads_ahead_what_nothing_wrote(by: str, strict: bool, count: int) -> None:
    body = "tcgen05.ld.sync.aligned.32x32b.x4.b32 LISTED, [%tm]; tcgen05.wait::ld.sync.aligned;"
    kernel = ptx.Program.from_text(f"// Generated by {by}\n" + moves(body, 4))["moves"]
    arrays = [np.zeros((4, 32), np.uint32)] * 2
    report = kernel.launch(1, 32, arrays, checks=True, strict=strict)
    assert [finding.kind for finding in report.findings] == ["unwritten tensor memory read"] * count


@pytest.mark.parametrize("fence", ["", "before_thread_sync", "after_thread_sync"])
def test_a_strict_launch_asks_for_fences(fence: str) -> None:
    text = Tcgen05("f16", "f16", "f16").text((16, 16), (1024, 1024))
    assert text.count("tcgen05.fence") == 4
    kernel = ptx.Program.from_text(text.replace(f"tcgen05.fence::{fence};", "") if fence else text)["tile_product"]
    found = []
    for strict in (False, True):
        given = [np.zeros(1 << 17, np.uint8), np.zeros((256, 128), np.uint32)]
        found.append([str(one) for one in kernel.launch(1, 128, given, checks=True, strict=strict).findings])
    assert found[0] == []
    assert bool(found[1]) == bool(fence)
    assert all("tensor memory race" in one and "put tcgen05.fence::before" in one for one in found[1])


@pytest.mark.parametrize(
    ("use", "is_early"),
    [
        ("add.u32 %v1, %v1, 1; tcgen05.wait::ld.sync.aligned;", True),
        ("mov.b32 %c, %v1; add.u32 %c, %c, 1; tcgen05.wait::ld.sync.aligned;", True),
        ("mov.b32 %c, %v1; tcgen05.wait::ld.sync.aligned; add.u32 %c, %c, 1;", False),
        ("mov.u32 %v1, 0; tcgen05.wait::ld.sync.aligned;", True),
        (
            "tcgen05.wait::ld.sync.aligned; tcgen05.ld.red.sync.aligned.32x32b.x4.min.u32 LISTED, %c, [%tm];"
            "add.u32 %c, %c, 1; tcgen05.wait::ld.sync.aligned;",
            True,
        ),
    ],
)
def test_registers_of_a_load_are_used_behind_its_wait(use: str, is_early: bool) -> None:
    """A note, and a finding of a strict launch."""
    store = "tcgen05.st.sync.aligned.32x32b.x4.b32 [%tm], LISTED; tcgen05.wait::st.sync.aligned;"
    kernel = ptx.Program.from_text(moves(f"{store} tcgen05.ld.sync.aligned.32x32b.x4.b32 LISTED, [%tm]; {use}", 4))
    kinds = []
    for strict in (False, True):
        given = [np.zeros((4, 32), np.uint32), np.zeros((4, 32), np.uint32)]
        report = kernel["moves"].launch(1, 32, given, checks=True, strict=strict)
        kinds.append(({one.kind for one in report.findings}, {one.kind for one in report.notes}))
    early = {"register of a tensor load touched before wait"} if is_early else set()
    assert kinds == [(set(), early), (early, set())]


@pytest.mark.parametrize("use", ["add.u32 %v1, %v1, 1;", ""])
def test_a_use_of_a_loads_registers_waits_for_the_load(use: str) -> None:
    """As the assembler does; strict launches want the wait itself."""
    store = "tcgen05.st.sync.aligned.32x32b.x4.b32 [%tm], {}; tcgen05.wait::st.sync.aligned;"
    load = "tcgen05.ld.sync.aligned.32x32b.x4.b32 LISTED, [%tm];"
    body = f"{store.format('LISTED')} {load} {use} {store.format('{%t, %t, %t, %t}')}"
    kernel = ptx.Program.from_text(moves(body, 4))["moves"]
    found = []
    for strict in (False, True):
        given = [np.zeros((4, 32), np.uint32), np.zeros((4, 32), np.uint32)]
        found.append({one.kind for one in kernel.launch(1, 32, given, checks=True, strict=strict).findings})
    assert ("tensor memory race" in found[0]) == (not use)
    assert "tensor memory race" in found[1]


def test_metadata_is_in_tensor_memory_before_the_product() -> None:
    """A copy of the same thread comes before the product without a wait; a store has to be waited for."""
    case = Tcgen05("f16", "f16", "f16", sparse=True)
    text = case.text((16, 16), (1024, 1024))
    (copy,) = re.findall(r"@%leads tcgen05.cp[^;]*128x128b[^;]*;", text)
    store = "tcgen05.st.sync.aligned.32x32b.x2.b32 [%w+290], {%n, %n};"
    filled = f"mov.u32 %n, 0x44444444; {store} tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync;"
    late = f"mov.u32 %n, 0x44444444; {store} tcgen05.fence::before_thread_sync;"
    kinds = []
    for body in ("", filled, late):
        meets = f"{body} bar.sync 0; tcgen05.fence::after_thread_sync;" if body else ""
        kernel = ptx.Program.from_text(text.replace(copy, meets or copy))["tile_product"]
        given = np.zeros(1 << 17, np.uint8)
        given[METADATA_AT:SHARED_BYTES] = 0x44
        report = kernel.launch(1, 128, [given, np.zeros((256, 128), np.uint32)], checks=True)
        kinds.append({finding.kind for finding in report.findings})
    assert kinds == [set(), set(), {"tensor memory race"}]


def test_an_allocation_that_never_fits_is_a_deadlock() -> None:
    body = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%n], 512;"
    with pytest.raises(KernelFault, match="deadlock"):
        ptx.Program.from_text(moves(body, 4))["moves"].launch(1, 32, [np.zeros(128, np.uint32)] * 2)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"rows": 96}, "no such number of rows"), ({"columns": 24}, "in steps of 16"),
        ({"rows": 64, "columns": 32, "lane": 32}, "lane 32, where 0 or 16"), ({"a": "bf16", "kind": "tf32"}, ""),
        ({"transposed_a": True, "mode_a": 4}, "for transposed elements of 32 bits"),
        ({"kind": "tf32", "a": "tf32", "b": "tf32", "mode_b": 4}, "for transposed elements of 32 bits"),
        ({"kind": "tf32", "a": "tf32", "b": "tf32", "transposed_b": True}, "need a swizzle of 128 bytes in atoms"),
        ({"stationary": True, "columns": 64, "mask": ZeroColumns(3, 4, (4, 0, 0, 0))}, "behind its first span"),
        ({"stationary": True, "columns": 64, "rows": 32, "mask": ZeroColumns(3, 4, shift=17)}, "at most 16 are"),
        ({"stationary": True, "columns": 64, "mask": ZeroColumns(3, 4, zeros_first=(0, 0, 0, 2))}, "that PTX reserves"),
        ({"sparse": True, "rows": 64}, "a sparse A, whose metadata has a layout .* use 128 rows"),
        ({"base_offset": 4}, "with a base offset and a swizzle"),
        ({"sparse": True, "selector": 2}, "selector of 2, where 0 or 1"),
        ({"sparse": True, "mode_b": 3}, "B with a swizzle of 32 bytes, where a row of K has 64"),
        ({"sparse": True}, "bits 0 to 3 of the metadata in lane 0, column 290 of tensor memory are 0b0000, where"),
    ],
    ids=str,
)  # fmt: skip
def test_descriptors_are_checked(field: dict[str, object], words: str) -> None:
    """A dense product is described, and a sparse one where the field says so."""
    if not words:
        text = Tcgen05("f16", "f16", "f16").text((0, 0), (0, 0)).replace("kind::f16", "kind::tf32")
        words = "a type of elements"
    else:
        text = Tcgen05("f16", "f16", "f16")._replace(**field).text((16, 16), (1024, 1024))
    given, out = np.zeros(1 << 17, np.uint8), np.zeros((256, 128), np.uint32)
    given[:B_AT] = 1
    with pytest.raises(KernelFault, match=words):
        ptx.Program.from_text(text)["tile_product"].launch(1, 128, [given, out])


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("mma.ws.sp.cta_group::1.kind::f16 [%r1], %d1, %d2, [%r2], %r3, %p1;", "sparse"),
        ("mma.cta_group::1.kind::f16.ashift [%r1], [%r2], %d2, %r3, %p1;", "before or after the shift"),
        ("mma.cta_group::1.kind::mxf4 [%r1], %d1, %d2, %r3, %p1;", "scales that this kind"),
        ("mma.kind::f16 [%r1], %d1, %d2, %r3, %p1;", "without .cta_group"),
        ("mma.cta_group::1.kind::f16 [%r1], %d1, %d2, %r3, {%r4, %r5}, %p1;", "2 masks of lanes"),
        ("cp.cta_group::1.4x256b.warpx4 [%r1], %d1;", "does not support"),
        ("cp.cta_group::1.128x128b.b8x16 [%r1], %d1;", "does not support"),
        ("shift.cta_group::1 [%r1];", "does not support"),
        ("ld.red.sync.aligned.32x32b.x1.min.u32 {%r1}, %r3, [%r2];", "does not support"),
        ("ld.red.sync.aligned.16x64b.x2.min.u32 {%r1, %r4}, %r3, [%r2];", "does not support"),
        ("ld.red.sync.aligned.32x32b.x2.min.abs.u32 {%r1, %r4}, %r3, [%r2];", "does not support"),
        ("ld.sync.aligned.32x32b.x2.b32 {%r1}, [%r2];", "1 registers, where 2 belong"),
    ],
)
def test_forms_that_are_refused(statement: str, reason: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=reason):
        ptx.Program(module("no", "", f"tcgen05.{statement}"))["no"]
