# mypy: allow-untyped-defs, allow-incomplete-defs
"""8-bit cache elements as fp16 in Triton, four at a time, on any architecture.

fp16 holds every e4m3, e5m2 and int8 value exactly; the scale can wait. A tile is loaded as int16, pairs of elements
that are neighbours in a head, because matrices of 16-bit elements come out of shared memory transposed and 8-bit ones
do not: one product for the even elements, one for the odd ones. Triton's own conversions take one element at a time and
support no e4m3 before sm_89. The methods are those of ``cuda_src/common/eight_bits.cuh``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.paged_attention.problem import Problem
from workbench.attention.ops.paged_attention.triton_tiles import has_e4m3

# An e5m2 is the upper half of an fp16.
_FROM_E5M2 = tl.constexpr("""{
    prmt.b32 $0, $2, 0, 0x2404;
    and.b32 $1, $2, 0xff00ff00;
}""")

# One instruction converts two neighbours.
_CONVERT_E4M3 = tl.constexpr("""{
    .reg .b32 placed;
    .reg .b16 even, odd;
    prmt.b32 placed, $2, 0, 0x3120;
    mov.b32 {even, odd}, placed;
    cvt.rn.f16x2.e4m3x2 $0, even;
    cvt.rn.f16x2.e4m3x2 $1, odd;
}""")

# An e4m3 moved down by one bit is an fp16 too small by 2^8; the code of NaN is made to reach the uppermost bit.
_FROM_E4M3 = tl.constexpr("""{
    .reg .b32 size, next, even, odd, sign;
    and.b32 size, $2, 0x7f7f7f7f;
    add.u32 next, size, 0x01010101;
    and.b32 next, next, 0x80808080;
    or.b32 size, size, next;
    shl.b32 sign, $2, 8;
    and.b32 sign, sign, 0x80008000;
    and.b32 even, size, 0x00ff00ff;
    shl.b32 even, even, 7;
    or.b32 $0, even, sign;
    and.b32 sign, $2, 0x80008000;
    and.b32 odd, size, 0xff00ff00;
    shr.u32 odd, odd, 1;
    or.b32 $1, odd, sign;
}""")

# Bits n below 2048 are the fp16 n * 2^-24. Even elements, with the sign bit flipped, are 1152 too large. Odd elements
# with a sign are 256 too large: their products with a little more than 2^-8 are rounded to 1, those of others to 0.
_FROM_INT8 = tl.constexpr("""{
    .reg .b32 raised, offset, codes, factor, negative, excess;
    lop3.b32 raised, $2, 0x00ff00ff, 0x04800480, 0x6a;
    mov.b32 offset, 0x04800480;
    sub.f16x2 $0, raised, offset;
    prmt.b32 codes, $2, 0, 0x4341;
    mov.b32 factor, 0x1c011c01;
    mul.rn.f16x2 negative, codes, factor;
    mov.b32 excess, 0xdc00dc00;
    fma.rn.f16x2 $1, negative, excess, codes;
}""")


def unit_of(problem: Problem) -> float:
    """Return the factor that the numbers of `widen` still have to be multiplied by."""
    if problem.kv_cache_dtype == "fp8_e4m3":
        return 1.0 if has_e4m3(problem) else 2.0**8
    return 2.0**24 if problem.kv_cache_dtype == "int8" else 1.0


@triton.jit
def widen(pairs, KIND: tl.constexpr, HAS_E4M3: tl.constexpr):
    """Return the first and the second elements of ``pairs`` as fp16, too small by the factor `unit_of`.

    ``pairs`` are int16 of a cache of the kv_cache_dtype KIND; HAS_E4M3 is the result of `has_e4m3`.
    """
    if KIND == "fp8_e5m2":
        ASM: tl.constexpr = _FROM_E5M2
    elif KIND == "int8":
        ASM: tl.constexpr = _FROM_INT8  # type: ignore[no-redef]
    elif HAS_E4M3:
        ASM: tl.constexpr = _CONVERT_E4M3  # type: ignore[no-redef]
    else:
        ASM: tl.constexpr = _FROM_E4M3  # type: ignore[no-redef]
    return tl.inline_asm_elementwise(ASM, "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2)
