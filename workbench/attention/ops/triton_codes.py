# mypy: allow-untyped-defs, allow-incomplete-defs
"""Codes of e4m3 as fp16 in Triton, an element at a time, on any architecture."""

from __future__ import annotations

import triton
import triton.language as tl

UNIT = tl.constexpr(256.0)
"""Factor that the numbers of `halves_of` still have to be multiplied by."""


@triton.jit
def halves_of(codes):
    """Return bytes of e4m3 as fp16 numbers that are too small by 2^8.

    Moved down by a bit, a code is such a number; the code of NaN stays NaN.
    """
    size = codes.to(tl.int16) & 0x7F
    bits = tl.where(size == 0x7F, 0x7E00, size << 7) | ((codes.to(tl.int16) & 0x80) << 8)
    return bits.to(tl.float16, bitcast=True)
