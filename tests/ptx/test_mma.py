"""mma with factors of 8 bits and less, mixed accumulators, saturation and f64, against exact sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from ptx_mma_cases import FACTOR_BITS, MMAS, NARROW, Mma
from ptx_small_cases import FORMATS, VALUES, bits_of
from ptx_support import is_product_on_elements

from workbench import ptx

GROUP, MEMBER = np.arange(32) // 4, np.arange(32) % 4


def value_of(kind: str, code: int) -> Fraction | float:
    """The value of a bit pattern, from the definition of its format."""
    if kind in FORMATS:
        code = code >> 2 if kind == "e2m1" else code  # in the middle of its byte
        top = bits_of(kind) - 1
        size, sign = code & ((1 << top) - 1), -1 if code >> top & 1 else 1
        if size in VALUES[kind]:
            return sign * VALUES[kind][size]
        return sign * float("inf") if kind == "e5m2" and size == 124 else float("nan")
    bits = FACTOR_BITS[kind]
    return code - (1 << bits) if kind[0] == "s" and code >> (bits - 1) else code


def codes(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Bit patterns; floats stay so small in range that every sum is exact."""
    if kind == "f16":
        return (rng.integers(-8, 9, shape) / 4).astype(np.float16).view(np.uint16).astype(np.uint64)
    if kind == "f64":
        return rng.normal(size=shape).view(np.uint64)
    if kind in ("e4m3", "e5m2"):
        step, middle = (3, 7 << 3) if kind == "e4m3" else (2, 15 << 2)
        small = rng.integers(middle - (2 << step), middle + (2 << step), shape)
        return (small | rng.integers(0, 2, shape) << 7).astype(np.uint64)
    return rng.integers(0, 1 << FACTOR_BITS[kind], shape).astype(np.uint64)  # of 4 and 6 bits with noise beside them


def pack(kind: str, matrix: np.ndarray, count: int, *, left: bool) -> np.ndarray:
    """Registers of a factor whose rows are m or n. PTX ISA: a lane holds neighbours along k; the registers of A go
    through the two halves of its rows first, then along k."""
    bits = FACTOR_BITS[kind]
    parts = max(1, 32 // bits)
    halves = matrix.shape[0] // 8 if left else 1
    out = np.zeros((count, 32), np.uint64)
    for r in range(count):
        row, high = (r % halves, r // halves) if left else (0, r)
        for i in range(parts):
            element = matrix[GROUP + 8 * row, MEMBER * parts + i + 4 * parts * high]
            out[r] |= element << np.uint64(bits * i)
    return out


def spots(mma: Mma) -> list[tuple[np.ndarray, np.ndarray]]:
    """(row, column) of the elements of the accumulator."""
    m, n, _ = mma.extents
    return [(GROUP + 8 * (i // 2), 2 * MEMBER + i % 2) for i in range(m * n // 32)]


def run(mma: Mma, a: np.ndarray, b: np.ndarray, c: np.ndarray, exact: bool = False) -> np.ndarray:
    """D as an array of floats or integers, for bit patterns of A [m][k] and B [n][k] and values of C."""
    d_kind, a_kind, b_kind, c_kind = mma.kinds
    m, n, _ = mma.extents
    types = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "f16": np.float16}
    values = [c[place].astype(types[c_kind]) for place in spots(mma)]
    if c_kind == "f16":
        halves = [v.view(np.uint16).astype(np.uint64) for v in values]
        c_registers = [halves[2 * i] | halves[2 * i + 1] << np.uint64(16) for i in range(len(halves) // 2)]
    else:
        c_registers = [v.view(np.uint64 if c_kind == "f64" else np.uint32).astype(np.uint64) for v in values]
    counts = mma.counts
    word = np.uint64 if a_kind == "f64" else np.uint32
    registers = [*pack(a_kind, a, counts[1], left=True), *pack(b_kind, b, counts[2], left=False), *c_registers]
    out = np.zeros((counts[0], 32), word)
    ptx.Program(mma.text)["tile"].launch(1, 32, [np.stack(registers).astype(word), out], exact=exact)
    got = np.zeros((m, n), types[d_kind])
    for i, place in enumerate(spots(mma)):
        if d_kind == "f16":
            got[place] = (out[i // 2] >> np.uint32(16 * (i % 2))).astype(np.uint16).view(np.float16)
        else:
            got[place] = out[i].view(types[d_kind])
    return got


def decoded(kind: str, matrix: np.ndarray) -> np.ndarray:
    if kind == "f16":
        return matrix.astype(np.uint16).view(np.float16).astype(np.float64)
    if kind == "f64":
        return matrix.view(np.float64)
    return np.vectorize(lambda code: value_of(kind, int(code)), otypes=[object])(matrix)


@pytest.mark.parametrize("mma", MMAS, ids=lambda mma: mma.name)
def test_mma(mma: Mma) -> None:
    rng = np.random.default_rng(3)
    m, n, k = mma.extents
    d_kind, a_kind, b_kind, c_kind = mma.kinds
    a, b = codes(a_kind, (m, k), rng), codes(b_kind, (n, k), rng)
    c = rng.integers(-(2**31), 2**31, (m, n)) if c_kind == "s32" else rng.integers(-50, 50, (m, n)).astype(np.float64)
    got = run(mma, a, b, c)
    x, y = decoded(a_kind, a), decoded(b_kind, b)
    if a_kind == "f64":
        np.testing.assert_allclose(got, x @ y.T + c, rtol=1e-14, atol=1e-14)
        short = [rng.integers(-9, 9, each.shape).astype(np.float64) for each in (a, b)]
        found = run(mma, *(each.view(np.uint64) for each in short), c, exact=True)
        assert is_product_on_elements(found, *short, c)
        return
    if mma.operation:
        joined = {"xor": lambda p, q: p ^ q, "and": lambda p, q: p & q}[mma.operation]
        exact = joined(a[:, None].astype(object), b[None].astype(object)).sum(2) + c.astype(object)
    else:
        exact = x @ y.T + c.astype(object if a_kind != "f16" else np.float64)
    if d_kind == "s32":
        low, high = -(2**31), 2**31 - 1
        exact = np.vectorize(
            lambda s: min(max(s, low), high) if mma.suffix else (s - low) % 2**32 + low, otypes=[object]
        )(exact)
        assert (got.astype(object) == exact).all()
    else:
        assert (got.astype(np.float64) == exact.astype(np.float64).astype(got.dtype).astype(np.float64)).all()
        assert is_product_on_elements(run(mma, a, b, c, exact=True), x, y, c)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", *NARROW])
def test_every_code_of_the_small_floats(kind: str) -> None:
    """One factor is 1, so that D shows the value of each code, NaN and infinity among them."""
    mma = next(m for m in MMAS if m.shape == "m16n8k32" and m.types == f"f32.{kind}.{kind}.f32")
    one = {"e4m3": 0x38, "e5m2": 0x3C, "e3m2": 0x0C, "e2m3": 0x08, "e2m1": 0x08}[kind]
    for first in range(0, 256, 16):
        a, b = np.zeros((16, 32), np.uint64), np.zeros((8, 32), np.uint64)
        a[:, 5], b[:, 5] = np.arange(first, first + 16), one
        got = run(mma, a, b, np.zeros((16, 8)))
        expected = np.array([float(value_of(kind, code)) for code in range(first, first + 16)], np.float32)
        np.testing.assert_array_equal(got, np.repeat(expected[:, None], 8, axis=1))


def test_saturation_is_of_the_whole_sum() -> None:
    """A sum that leaves s32 on the way and comes back is exact, with and without .satfinite."""
    mma = next(m for m in MMAS if m.shape == "m16n8k32" and m.types == "s32.s8.s8.s32" and m.suffix)
    a, b = np.zeros((16, 32), np.uint64), np.full((8, 32), 127, np.uint64)
    a[:, 0], a[:, 31] = 127, 0x81  # 127 * 127 up, then as much down
    got = run(mma, a, b, np.full((16, 8), 2**31 - 1))
    assert (got == 2**31 - 1).all()
    a[:, 31] = 0
    assert (run(mma, a, b, np.full((16, 8), 2**31 - 1)) == 2**31 - 1).all()
    assert (run(mma, a | np.uint64(0x80), b, np.full((16, 8), -(2**31))) == -(2**31)).all()


def test_double_products_are_fused() -> None:
    mma = next(m for m in MMAS if m.shape == "m8n8k4")
    a, b, c = np.zeros((8, 4)), np.zeros((8, 4)), np.full((8, 8), -1.0)
    a[:, 2], b[:, 2] = 1 + 2.0**-30, 1 - 2.0**-30
    got = run(mma, a.view(np.uint64), b.view(np.uint64), c)
    assert (got == -(2.0**-60)).all()
