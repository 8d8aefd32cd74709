"""mma.sp against exact sums of the dense product, and the metadata that it takes.

Where the metadata lies is the PTX ISA's listing, "Matrix fragments for multiply-accumulate operation with sparse
matrix A": of four lanes the selector names one, two or all; 16 bits of it are for a row of 16-bit factors and 32 for
a row of smaller ones, of 16 stored bytes each.
"""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sparse_cases import SPARSE_MMAS, SparseMma
from ptx_support import is_product_on_elements
from test_block_scales import pack, scale_value
from test_mma import GROUP, MEMBER, codes, value_of

from workbench import ptx
from workbench.analysis.prediction.tensor_flops import flop_counts
from workbench.errors import KernelFault, UnsupportedInstructionError

ASCENDING = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
DISTINCT = (*ASCENDING, 0b0001, 0b0010, 0b0011, 0b0110, 0b0111, 0b1011)
HALVES = (0b0100, 0b1110)  # of TF32: the first element of two, or the second


def elements(kind: str, shape: tuple[int, int], rng: np.random.Generator, packed: bool) -> tuple:
    """Bit patterns and their values."""
    if kind in ("bf16", "tf32"):
        values = rng.integers(-8, 9, shape) / 4
        words = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        return (words >> np.uint64(16) if kind == "bf16" else words), values
    if packed and kind == "e2m1":
        patterns = rng.integers(0, 16, shape).astype(np.uint64)
        return patterns, np.vectorize(lambda code: float(value_of(kind, int(code) << 2)), otypes=[float])(patterns)
    patterns = codes(kind, shape, rng)
    if kind == "f16":
        return patterns, patterns.astype(np.uint16).view(np.float16).astype(float)
    return patterns, np.vectorize(lambda code: float(value_of(kind, int(code))), otypes=[float])(patterns)


def expanded(stored: np.ndarray, nibbles: np.ndarray, bits: int) -> np.ndarray:
    """A with its zeros, for the stored values and the four bits of each chunk of a row; elements have ``bits``."""
    full = np.zeros((len(stored), 2 * stored.shape[1]))
    for row in range(len(stored)):
        for chunk, nibble in enumerate(nibbles[row].tolist()):
            first, second = nibble & 3, nibble >> 2
            if bits == 32:
                full[row, 2 * chunk + first // 2] = stored[row, chunk]
                continue
            width = 2 if bits == 4 else 1
            for i, place in enumerate((first, second)):
                at, begin = 4 * chunk * width + place * width, (2 * chunk + i) * width
                full[row, at : at + width] = stored[row, begin : begin + width]
    return full


def metadata(nibbles: np.ndarray, bits: int, selector: int) -> np.ndarray:
    """The register of 32 lanes for sixteen rows; lanes that have none hold what is not allowed."""
    wide = bits >= 16
    of_half = 4 if wide else 8  # chunks of 16 stored bytes
    words = np.zeros(32, np.uint64)
    for row in range(16):
        for half in range(nibbles.shape[1] // of_half):
            mine = sum(int(n) << 4 * i for i, n in enumerate(nibbles[row, half * of_half : (half + 1) * of_half]))
            if wide:
                lane, shift = (selector if nibbles.shape[1] == 4 else 2 * selector + half), row // 8 * 16
            else:
                lane, shift = 2 * selector + row // 8 + 2 * half, 0
            words[row % 8 * 4 + lane] |= np.uint64(mine << shift)
    return words


def run(
    case: SparseMma,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    words: np.ndarray,
    scales: np.ndarray,
    **options: bool,
) -> tuple:
    """D [16][8] for the codes of stored A and of B, C, the metadata and both registers of scales; and the findings."""
    spots = [(GROUP + 8 * (i // 2), 2 * MEMBER + i % 2) for i in range(4)]
    d_kind = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[case.kinds[0]]
    sums = [c[spot].astype(d_kind) for spot in spots]
    if d_kind is np.float16:
        halves = [each.view(np.uint16).astype(np.uint32) for each in sums]
        sums = [halves[2 * i] | halves[2 * i + 1] << np.uint32(16) for i in range(2)]
    _, of_a, of_b, _ = case.counts
    factors = [*pack(a, of_a, case.element_bits), *pack(b, of_b, case.element_bits)]
    registers = [*factors, *(each.view(np.uint32) for each in sums), words, *scales]
    given = np.stack([each.astype(np.uint64) for each in registers]).astype(np.uint32)
    out = np.zeros((case.counts[0], 32), np.uint32)
    report = ptx.Program(case.text)["tile"].launch(1, 32, [given, out], checks=True, **options)
    got = np.zeros((16, 8), d_kind)
    for i, spot in enumerate(spots):
        if d_kind is np.float16:
            got[spot] = (out[i // 2] >> np.uint32(16 * (i % 2))).astype(np.uint16).view(np.float16)
        else:
            got[spot] = out[i].view(d_kind)
    return got, report.findings


def chosen(bits: int, shape: tuple[int, int], rng: np.random.Generator, allowed: tuple[int, ...]) -> np.ndarray:
    """Allowed metadata, four bits for each chunk of the rows of A, which has ``shape``."""
    of_chunk = {32: 2, 4: 8}.get(bits, 4)
    return rng.choice(HALVES if bits == 32 else allowed, (shape[0], shape[1] // of_chunk))


@pytest.mark.parametrize("case", SPARSE_MMAS, ids=lambda case: case.name)
def test_every_product(case: SparseMma) -> None:
    rng = np.random.default_rng(5)
    d_kind, a_kind, b_kind, _ = case.kinds
    bits = case.element_bits
    nibbles = chosen(bits, (16, case.k), rng, ASCENDING if case.ordered else DISTINCT)
    a_codes, stored = elements(a_kind, (16, case.k // 2), rng, case.is_packed)
    b_codes, b = elements(b_kind, (8, case.k), rng, case.is_packed)
    a = expanded(stored, nibbles, bits)
    c = rng.integers(-50, 50, (16, 8)).astype(float)
    if case.saturating:
        c[::2], c[1::2] = 2**31 - 9, -(2**31) + 9
    low, high = (124, 131) if case.scale == "ue8m0" else (50, 60)
    parts = rng.integers(low, high, (2, 32, 4)).astype(np.uint32)
    scales = sum(parts[..., i] << np.uint32(8 * i) for i in range(4))
    want = c.copy()
    if case.runs:
        byte_a, thread_a, byte_b, thread_b = case.places
        lanes = [4 * (i % 8) + 2 * thread_a + i // 8 for i in range(16)], [4 * i + thread_b for i in range(8)]
        lookup = np.vectorize(lambda code: scale_value(case.scale, int(code)), otypes=[float])
        for matrix, which, byte in ((a, 0, byte_a), (b, 1, byte_b)):
            values = lookup(parts[which][lanes[which]][:, byte : byte + case.runs])
            matrix *= np.repeat(values, case.k // case.runs, 1)
    if d_kind == "f32" and case.runs:
        for k in range(case.k):  # in K's order, each sum rounded
            want = (want + np.outer(a[:, k], b[:, k])).astype(np.float32).astype(float)
    else:
        want += a @ b.T
    if d_kind == "s32":
        want = np.clip(want, -(2**31), 2**31 - 1) if case.saturating else want
    given = (case, a_codes, b_codes, c, metadata(nibbles, bits, case.selector), scales)
    got, findings = run(*given)
    assert findings == []
    np.testing.assert_array_equal(got, want.astype(got.dtype))
    if d_kind != "s32":
        assert is_product_on_elements(run(*given, exact=True)[0], a, b, c)


def found(case: SparseMma, lane: int, word: int, element: int = 1, strict: bool = False) -> list[str]:
    """The findings of a product in which one lane has other metadata than the rest; all of A is one element."""
    rng = np.random.default_rng(1)
    bits = case.element_bits
    words = metadata(chosen(bits, (16, case.k), rng, ASCENDING), bits, case.selector)
    words[lane] = word
    a, b = np.full((16, case.k // 2), element, np.uint64), np.zeros((8, case.k), np.uint64)
    _, findings = run(case, a, b, np.zeros((16, 8)), words, np.zeros((2, 32), np.uint64), strict=strict)
    assert all(finding.kind == "invalid sparsity metadata" for finding in findings)
    return [finding.message for finding in findings]


@pytest.mark.parametrize(
    ("case", "lane", "word", "message"),
    [
        (SparseMma(32, "f32.f16.f16.f32", 1), 6, 0x44544444, "bits 20 to 23 of the metadata of lane 6 are 0b0101, where"
         " two different places of 2 bits each belong, which 0b0000, 0b0101, 0b1010 and 0b1111 are not"),
        (SparseMma(32, "f32.f16.f16.f32", 1, ordered=True), 6, 0x44444441, "bits 0 to 3 of the metadata of lane 6 are "
         "0b0001, where 0b0100, 0b1000, 0b1001, 0b1100, 0b1101 or 0b1110 belongs"),
        (SparseMma(32, "f32.f16.f16.f32", 1), 6, 0x44444441, ""),
        (SparseMma(32, "f32.f16.f16.f32", 1), 4, 0, ""),
        (SparseMma(16, "f32.f16.f16.f32", 3), 31, 0x4444F444, "bits 12 to 15 of the metadata of lane 31 are 0b1111"),
        (SparseMma(16, "f32.tf32.tf32.f32"), 1, 0x44444484, "bits 4 to 7 of the metadata of lane 1 are 0b1000, where "
         "0b0100 or 0b1110 belongs"),
        (SparseMma(64, "s32.s4.s4.s32", 1), 3, 0x04444444, "bits 28 to 31 of the metadata of lane 3 are 0b0000"),
        (SparseMma(64, "f32.e4m3.e4m3.f32"), 30, 0xA4444444, "bits 28 to 31 of the metadata of lane 30 are 0b1010"),
    ],
)  # fmt: skip
def test_metadata_is_checked(case: SparseMma, lane: int, word: int, message: str) -> None:
    """In the lanes that the selector names, and in those alone."""
    messages = found(case, lane, word)
    assert len(messages) == bool(message)
    assert not message or message in messages[0]


def test_metadata_of_zeros_matters_to_strict_launches_alone() -> None:
    """CUTLASS writes 0b0000 where a chunk of A is zero."""
    case = SparseMma(64, "s32.s8.s8.s32")
    assert [len(found(case, 5, 0, element, strict)) for element, strict in ((0, False), (0, True), (1, False))] == [
        0, 1, 1,
    ]  # fmt: skip


def test_invalid_metadata_ends_a_launch_without_checks() -> None:
    given, out = np.zeros((15, 32), np.uint32), np.zeros((4, 32), np.uint32)
    given[0, 0] = 1
    with pytest.raises(KernelFault, match=r"invalid sparsity metadata.*lane 0 are 0b0000"):
        ptx.Program(SparseMma(32, "f32.f16.f16.f32").text)["tile"].launch(1, 32, [given, out])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (SparseMma(32, "f32.f16.f16.f32", 2), "the sparsity selector 2, where the constant 0 or 1 belongs"),
        (SparseMma(64, "s32.s8.s8.s32", 1), "the sparsity selector 1, where the constant 0 belongs"),
        (SparseMma(64, "f32.e4m3.e4m3.f32", kind="f8f6f4"), "PTX only has as mma.sp::ordered_metadata"),
        (SparseMma(64, "f16.e4m3.e4m3.f16"), "PTX only has as mma.sp::ordered_metadata"),
        (SparseMma(64, "f32.e2m1.e4m3.f32", ordered=True), "needs .kind::f8f6f4"),
        (SparseMma(32, "f32.e4m3.e4m3.f32"), "does not support this instruction"),
        (SparseMma(32, "f16.f16.f16.f32"), "2 registers of C|does not support this instruction"),
    ],
)
def test_forms_that_ptx_does_not_have(case: SparseMma, message: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=message):
        ptx.Program(case.text)["tile"]


def test_a_sparse_product_counts_for_half_its_size() -> None:
    """Its time is that of the dense product with half its K."""
    given, out = np.full((15, 32), 0x44444444, np.uint32), np.zeros((4, 32), np.uint32)
    report = ptx.Program(SparseMma(32, "f32.f16.f16.f32").text)["tile"].launch(1, 32, [given, out], statistics=True)
    assert flop_counts(report.lines, 1.0) == {"tensor_flops": 2 * 16 * 8 * 16}
