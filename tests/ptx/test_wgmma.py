"""wgmma of every type, layout and source of A, against exact sums."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_support import is_product_on_elements, module
from ptx_wgmma_cases import BITS, PRODUCTS, Wgmma
from test_mma import codes, value_of
from test_sparse import DISTINCT, chosen, expanded, metadata

from workbench import ptx
from workbench.errors import KernelFault, UnsupportedInstructionError

A_BYTES, B_BYTES = 8192, 16384
CHUNKS = (1, 8, 4, 2)  # of 16 bytes in a row of an atom, by mode
THREADS = np.arange(128)
ROW, LANE = THREADS // 32 * 16 + THREADS % 32 // 4, THREADS % 4


def factor(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A matrix by rows of K: its bytes (32 a row, or 64), and its values."""
    if kind == "b1":
        bits = rng.integers(0, 2, shape)
        return np.packbits(bits.astype(np.uint8), axis=1, bitorder="little"), bits.astype(float)
    if kind in ("bf16", "tf32"):
        values = rng.integers(-8, 9, shape) / 4
        words = values.astype(np.float32).view(np.uint32)
        if kind == "bf16":
            return (words >> 16).astype(np.uint16).view(np.uint8).reshape(shape[0], -1), values
        return (words | rng.integers(0, 1 << 13, shape).astype(np.uint32)).view(np.uint8).reshape(shape[0], -1), values
    patterns = codes(kind, shape, rng)
    if kind == "f16":
        values = patterns.astype(np.uint16).view(np.float16).astype(float)
    else:
        values = np.vectorize(lambda code: float(value_of(kind, int(code))))(patterns)
    return patterns.astype(f"u{BITS[kind] // 8}").view(np.uint8).reshape(shape[0], -1), values


def offsets(mode: int, transposed: bool, chunks: int = 2) -> tuple[int, int]:
    """The leading and stride byte offsets of a tile without gaps, whose rows of K have so many chunks of 16 bytes."""
    atom = 128 * CHUNKS[mode]
    if mode == 0:
        return 128, 128 * chunks
    return (chunks * atom, atom) if transposed else (16, atom)


def laid_out(rows: np.ndarray, mode: int, transposed: bool, size: int) -> np.ndarray:
    """Shared memory that holds a matrix as a descriptor of that mode describes it."""
    out, width = np.zeros(size, np.uint8), CHUNKS[mode]
    chunks = rows.shape[1] // 16
    leading, stride = offsets(mode, transposed, chunks)
    mask = (0, 7, 3, 1)[mode]

    def put(offset: int, value: np.ndarray) -> None:
        at = offset ^ (offset >> 7 & mask) << 4
        out[at : at + len(value)] = value

    if not transposed:
        for row, bytes_ in enumerate(rows):
            for chunk in range(chunks):
                along = chunk * (leading if mode == 0 else 16)
                put(row // 8 * stride + row % 8 * 16 * width + along, bytes_[16 * chunk : 16 * chunk + 16])
        return out
    for row, bytes_ in enumerate(rows):
        for k in range(8 * chunks):
            if mode == 0:
                at = row % 8 * 2 + row // 8 * stride + k % 8 * 16 + k // 8 * leading
            else:
                at = row % (8 * width) * 2 + row // (8 * width) * leading + k % 8 * 16 * width + k // 8 * stride
            chunk = at // 16 * 16
            chunk ^= (chunk >> 7 & mask) << 4
            out[chunk + at % 16 : chunk + at % 16 + 2] = bytes_[2 * k : 2 * k + 2]
    return out


def run(
    case: Wgmma, a: np.ndarray, b: np.ndarray, d: np.ndarray, words_of_a: np.ndarray, message: str = "",
    exact: bool = False,
) -> np.ndarray:  # fmt: skip
    """D of a product of bytes by rows of K, for the threads' metadata of A, in which ``message`` is found."""
    inside = np.zeros(A_BYTES + B_BYTES, np.uint8)
    if case.mode_a is not None:
        inside[:A_BYTES] = laid_out(a, case.mode_a, case.transposed_a, A_BYTES)
    inside[A_BYTES:] = laid_out(b, case.mode_b, case.transposed_b, B_BYTES)
    words = a.view(np.uint32).reshape(64, 8)
    registers = [words[ROW + 8 * (r % 2), LANE + 4 * (r // 2)] for r in range(4)]
    kind = {"f32": np.float32, "s32": np.int32, "f16": np.float16}[case.kinds[0]]
    parts = 2 if kind is np.float16 else 1
    places = [(ROW + 8 * (i // 2 % 2), i // 4 * 8 + 2 * LANE + i % 2) for i in range(case.columns // 2)]
    sums = [d[place].astype(kind) for place in places]
    registers += [
        np.stack(sums[i : i + parts], 1).copy().view(np.uint32).reshape(-1) for i in range(0, len(sums), parts)
    ]
    registers.append(words_of_a)
    given = np.concatenate([inside, *(each.astype(np.uint32).view(np.uint8) for each in registers)])
    given = np.concatenate([given, np.zeros(-len(given) % 1024, np.uint8)])
    out = np.zeros((case.registers, 128), np.uint32)
    leading, stride = zip(
        offsets(case.mode_a or 0, case.transposed_a),
        offsets(case.mode_b, case.transposed_b, 2 + 2 * case.sparse),
        strict=True,
    )
    kernel = ptx.Program.from_text(case.text(leading, stride))["tile_product"]
    report = kernel.launch(1, 128, [given, out], checks=True, statistics=True, exact=exact)
    assert len(report.findings) == bool(message)
    assert all(message in finding.message for finding in report.findings)
    # Each pass brings 128 bytes of an operand; the four warps read their own rows of A and B once for all.
    operands = (64 * (case.mode_a is not None) + case.columns * (1 + case.sparse)) * 32 // 128
    assert report.operand_wavefronts == operands
    others = [line for line in report.lines if "wgmma" not in line.text]
    assert report.shared_wavefronts - sum(line.counts.shared_wavefronts for line in others) == operands
    values = out.view(kind).reshape(case.registers, 128, parts)
    result = np.zeros((64, case.columns), kind)
    for i, place in enumerate(places):
        result[place] = values[i // parts, :, i % parts]
    return result


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda case: case.name)
def test_every_product(case: Wgmma) -> None:
    rng = np.random.default_rng(7)
    d_kind, a_kind, b_kind = case.kinds
    a_bytes, a = factor(a_kind, (64, case.depth // (1 + case.sparse)), rng)
    words = np.zeros(128)
    if case.sparse:
        bits = BITS[a_kind]
        nibbles = chosen(bits, (64, case.depth), rng, DISTINCT)
        a = expanded(a, nibbles, bits)
        words = np.concatenate([metadata(of_warp, bits, case.selector) for of_warp in np.split(nibbles, 4)])
    b_bytes, b = factor(b_kind, (case.columns, case.depth), rng)
    d = rng.integers(-9, 10, (64, case.columns)).astype(float)
    if case.saturating:
        d[::2] = np.iinfo(np.int32).max - 5
        d[1::2] = np.iinfo(np.int32).min + 5
    want = (a * case.signs[0]) @ (b * case.signs[1]).T + (d if case.keep else 0)
    if d_kind == "s32":
        limits = np.iinfo(np.int32)
        want = np.clip(want, limits.min, limits.max) if case.saturating else want
    given = (case, a_bytes, b_bytes, d, words)
    kind = {"s32": np.int64, "f16": np.float16, "f32": np.float32}[d_kind]
    np.testing.assert_array_equal(run(*given), want.astype(kind))
    if d_kind != "s32" and a_kind != "tf32":  # whose lower bits are noise here
        signed = a * case.signs[0], b * case.signs[1]
        assert is_product_on_elements(run(*given, exact=True), *signed, d if case.keep else 0 * d)


SPARSE = next(case for case in PRODUCTS if case.sparse and case.selector == 1 and case.mode_a)


@pytest.mark.parametrize(
    ("thread", "word", "message"),
    [
        (
            38,
            0x44440444,
            "invalid sparsity metadata: bits 12 to 15 of the metadata of lane 6 are 0b0000, where two different places",
        ),
        (36, 0, ""),  # not one of the lanes that the selector names
    ],
)
def test_metadata_is_checked(thread: int, word: int, message: str) -> None:
    """Each warp's own, in the lanes that the selector names."""
    a, b = np.ones((64, 32), np.uint8), np.zeros((SPARSE.columns, 64), np.uint8)
    words = np.full(128, 0x44444444, np.uint32)
    words[thread] = word
    d = np.zeros((64, SPARSE.columns))
    run(SPARSE, a, b, d, words, message)


def test_a_row_of_64_bytes_does_not_fit_a_swizzle_of_32() -> None:
    text = SPARSE._replace(mode_b=3).text(offsets(1, False), offsets(3, False))
    with pytest.raises(KernelFault, match="B with a swizzle of 32 bytes, where a row of K has 64"):
        ptx.Program.from_text(text)["tile_product"].launch(
            1, 128, [np.full(65536, 0x44, np.uint8), np.zeros((SPARSE.registers, 128), np.uint32)]
        )


def test_a_warp_group_has_four_warps() -> None:
    case = PRODUCTS[0]
    kernel = ptx.Program.from_text(case.text(offsets(0, False), offsets(0, False)))["tile_product"]
    given, out = np.zeros(65536, np.uint8), np.zeros((case.registers, 128), np.uint32)
    with pytest.raises(KernelFault, match="a warp group of fewer than four warps"):
        kernel.launch(1, 96, [given, out])


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("m64n12k16.f32.f16.f16 {%r1}, %d1, %d2, 1, 1, 1, 0, 0;", "no .m64n12k16"),
        ("m64n8k32.f32.f16.f16 {%r1, %r2, %r3, %r4}, %d1, %d2, 1, 1, 1, 0, 0;", "no .m64n8k32"),
        ("m64n8k16.f32.f16.f16 {%r1, %r2}, %d1, %d2, 1, 1, 1, 0, 0;", "2 registers for 4"),
        ("m64n8k16.f32.f16.f16 {%r1, %r2, %r3, %r4}, %d1, %d2, 1, 2, 1, 0, 0;", "factors of 2 and 1"),
        ("m64n40k32.s32.s8.s8 {%r1}, %d1, %d2, 1;", "no .m64n40k32"),
        ("sp.m64n8k16.f32.f16.f16 {%r1, %r2, %r3, %r4}, %d1, %d2, %r5, 0, 1, 1, 1, 0, 0;", "no .m64n8k16"),
        (
            "sp.m64n8k32.f32.f16.f16 {%r1, %r2, %r3, %r4}, %d1, %d2, %r5, 2, 1, 1, 1, 0, 0;",
            "selector 2, where .* 0 or 1",
        ),
        ("sp.m64n8k64.s32.s8.s8 {%r1, %r2, %r3, %r4}, %d1, %d2, %r5, 1, 1;", "selector 1, where the constant 0"),
    ],
)
def test_forms_that_do_not_exist(statement: str, reason: str) -> None:
    marks = ".sp" * statement.startswith("sp.")
    with pytest.raises(UnsupportedInstructionError, match=reason):
        ptx.Program(module("no", "", f"wgmma.mma_async{marks}.sync.aligned.{statement.removeprefix('sp.')}"))["no"]
