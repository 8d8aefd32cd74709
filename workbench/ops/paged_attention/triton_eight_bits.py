"""8-bit cache elements as fp16 in Triton, four at a time, on any architecture.

fp16 holds every e4m3, e5m2 and int8 value exactly; the scale can wait. A tile is loaded as int16, pairs of elements
that are neighbours in a head, because matrices of 16-bit elements come out of shared memory transposed and 8-bit ones
do not: one product for the even elements, one for the odd ones. Triton's own conversions take an element at a time
and know no e4m3 before sm_89. The methods are those of ``cuda_src/common/operands.cuh``.
"""

from __future__ import annotations

import triton
import triton.language as tl

UNITS = {"auto": 1.0, "fp8_e4m3": 256.0, "fp8_e5m2": 1.0, "int8": 1.0}
"""What `widen`'s numbers have still to be multiplied by, by kv_cache_dtype."""

# An e5m2 is the upper half of an fp16.
_FROM_E5M2 = tl.constexpr("""{
    .reg .b32 even;
    shl.b32 even, $2, 8;
    and.b32 $0, even, 0xff00ff00;
    and.b32 $1, $2, 0xff00ff00;
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

# 1024 + u is the fp16 of bits 0x6400 + u for a byte u; with u = value + 128 it is the value plus 1152.
_FROM_INT8 = tl.constexpr("""{
    .reg .b32 shifted, even, odd, offset;
    xor.b32 shifted, $2, 0x80808080;
    mov.b32 offset, 0x64806480;
    mov.b32 odd, 0x64646464;
    prmt.b32 even, shifted, odd, 0x4240;
    prmt.b32 odd, shifted, odd, 0x4341;
    sub.f16x2 $0, even, offset;
    sub.f16x2 $1, odd, offset;
}""")


@triton.jit
def widen(pairs, KIND: tl.constexpr):
    """``pairs`` int16 of a cache of the kv_cache_dtype KIND: the first and the second elements as fp16, ``UNITS[KIND]``
    times too small."""
    if KIND == "fp8_e5m2":
        ASM: tl.constexpr = _FROM_E5M2
    elif KIND == "fp8_e4m3":
        ASM: tl.constexpr = _FROM_E4M3
    else:
        ASM: tl.constexpr = _FROM_INT8
    return tl.inline_asm_elementwise(ASM, "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2)
