"""mma with block scales, against sums in K's order; which lanes and bytes hold the scales is the PTX ISA's listing."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from ptx_mma_cases import SCALED_MMAS, ScaledMma
from ptx_support import is_product_on_elements, round_float
from test_mma import GROUP, MEMBER, codes, value_of

from workbench import ptx
from workbench.errors import UnsupportedInstructionError

FIRST = next(mma for mma in SCALED_MMAS if (mma.a, mma.b) == ("e4m3", "e4m3"))


def scale_value(kind: str, code: int) -> float:
    if kind == "ue8m0":
        return float("nan") if code == 255 else 2.0 ** (code - 127)
    return float(value_of("e4m3", code & 127))


def scales(mma: ScaledMma, data: np.ndarray, *, left: bool) -> np.ndarray:
    """The scale bytes [rows or columns][runs] that the selectors pick from a register."""
    byte, thread = mma.selectors[:2] if left else mma.selectors[2:]
    lanes = [4 * (i % 8) + 2 * thread + i // 8 for i in range(16)] if left else [4 * i + thread for i in range(8)]
    return np.array([[int(data[lane]) >> 8 * (byte + run) & 255 for run in range(mma.runs)] for lane in lanes])


def pack(matrix: np.ndarray, count: int, bits: int) -> np.ndarray:
    """Registers of a factor [rows][k]: a lane holds 32 bits of neighbours along k; A's go through its halves first."""
    parts, halves = 32 // bits, matrix.shape[0] // 8
    out = np.zeros((count, 32), np.uint64)
    for r in range(count):
        for i in range(parts):
            element = matrix[GROUP + 8 * (r % halves), MEMBER * parts + i + 4 * parts * (r // halves)]
            out[r] |= element << np.uint64(bits * i)
    return out


def run(
    mma: ScaledMma, a: np.ndarray, b: np.ndarray, c: np.ndarray, data: np.ndarray, exact: bool = False
) -> np.ndarray:  # fmt: skip
    """D [16][8] for codes of A [16][k] and B [8][k], values of C, and the registers of both scales [2][32]."""
    spots = [(GROUP + 8 * (i // 2), 2 * MEMBER + i % 2) for i in range(4)]
    sums = [c[spot].astype(np.float32).view(np.uint32).astype(np.uint64) for spot in spots]
    bits = 8 if mma.k == 32 else 4
    registers = np.stack([*pack(a, 4, bits), *pack(b, 2, bits), *sums, *data.astype(np.uint64)]).astype(np.uint32)
    out = np.zeros((4, 32), np.float32)
    ptx.Program(mma.text)["tile"].launch(1, 32, [registers, out], exact=exact)
    got = np.zeros((16, 8), np.float32)
    for i, spot in enumerate(spots):
        got[spot] = out[i]
    return got


def values(mma: ScaledMma, kind: str, matrix: np.ndarray) -> np.ndarray:
    shift = 2 if mma.k == 64 else 0  # of 64 along K, four bits stand alone
    return np.vectorize(lambda code: float(value_of(kind, int(code) << shift)), otypes=[float])(matrix)


@pytest.mark.parametrize("mma", SCALED_MMAS, ids=lambda mma: mma.name)
def test_scaled_mma(mma: ScaledMma) -> None:
    rng = np.random.default_rng(8)
    shapes = (16, mma.k), (8, mma.k)
    if mma.k == 64:
        a, b = (rng.integers(0, 16, shape).astype(np.uint64) for shape in shapes)
    else:
        a, b = (codes(kind, shape, rng) for kind, shape in zip((mma.a, mma.b), shapes, strict=True))
    c = rng.integers(-50, 50, (16, 8)).astype(np.float32)
    low, high = (117, 137) if mma.scale == "ue8m0" else (1, 127)
    parts = rng.integers(low, high, (2, 32, 4)).astype(np.uint32)
    data = sum(parts[..., i] << np.uint32(8 * i) for i in range(4))
    got = run(mma, a, b, c, data)
    by_a, by_b = (scales(mma, one, left=left) for one, left in ((data[0], True), (data[1], False)))
    x, y = values(mma, mma.a, a), values(mma, mma.b, b)
    expected, length = c, mma.k // mma.runs
    lookup = np.vectorize(lambda code: scale_value(mma.scale, int(code)), otypes=[float])
    for k in range(mma.k):  # products and the sums with them are exact in f64, each rounded once
        scaled = [each[:, k] * lookup(by[:, k // length]) for each, by in ((x, by_a), (y, by_b))]
        expected = (expected.astype(np.float64) + np.outer(*scaled)).astype(np.float32)
    assert (got == expected).all()
    x, y = (each * np.repeat(lookup(by), length, 1) for each, by in ((x, by_a), (y, by_b)))
    assert is_product_on_elements(run(mma, a, b, c, data, exact=True), x, y, c)


@pytest.mark.parametrize(
    ("of_a", "of_b"), [(254, 0), (254, 1), (254, 254), (0, 0), (3, 120), (200, 20), (60, 60), (255, 127), (90, 255)]
)
def test_scales_far_apart(of_a: int, of_b: int) -> None:
    """A product is exact however large or small a scale makes one of its factors; it is rounded as it is added."""
    a, b = np.zeros((16, 32), np.uint64), np.zeros((8, 32), np.uint64)
    a[:, 3], b[:, 3] = 0x79, 0x02  # 288, 2 to the -8
    a[:, 20], b[:, 20] = 0xB8, 0x39  # -1, 1.125
    c = np.full((16, 8), 2.0**-100, np.float32)
    data = np.array([[of_a] * 32, [of_b] * 32], np.uint32)
    got = run(FIRST, a, b, c, data)
    if 255 in (of_a, of_b):
        assert np.isnan(got).all()
        return
    bits = round_float(Fraction(2) ** -100, "f32")
    for product in (Fraction(288, 256), Fraction(-9, 8)):
        total = Fraction(float(np.uint32(bits).view(np.float32))) + product * Fraction(2) ** (of_a + of_b - 254)
        bits = round_float(total, "f32")
        if bits == 0x7F800000:
            break  # no finite product leads back
    assert (got == np.uint32(bits).view(np.float32)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"selectors": (0, 2, 0, 0)}, "thread-id-a of 2, where .scale_vec::1X allows 0, 1"),
        ({"selectors": (0, 0, 4, 0)}, "byte-id-b of 4"),
        ({"runs": 2}, "takes .scale_vec::1X"),
        ({"scale": "ue4m3"}, "does not support this mma with block scales"),
        ({"kind": "mxf4nvf4", "runs": 2, "a": "e2m1", "b": "e2m1", "scale": "ue4m3"}, "takes .scale_vec::4X"),
    ],
)
def test_what_block_scales_allow(change: dict, message: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=message):
        ptx.Program(FIRST._replace(registers=False, **change).text)["tile"]
