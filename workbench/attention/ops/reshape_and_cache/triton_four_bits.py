# mypy: allow-untyped-defs, allow-incomplete-defs
"""Groups of 16 numbers of four bits with a scale of eight (NVFP4) in Triton: ``cuda_src/common/four_bits.cuh``.

Two numbers are in a byte. Even and odd ones are tensors of their own here, ``[tokens, groups, 8]``, so that no
number has to be moved from lane to lane: queries and outputs are taken apart instead.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.reshape_and_cache.triton_codes import dequantize, quantize
from workbench.attention.ops.rules import is_from

# An instruction converts the two of a byte; then the lower halves belong to the even numbers.
_WIDEN = tl.constexpr("""{
    .reg .b8 a, b, c, d;
    .reg .b32 p, q, r, s;
    mov.b32 {a, b, c, d}, $4;
    cvt.rn.f16x2.e2m1x2 p, a;
    cvt.rn.f16x2.e2m1x2 q, b;
    cvt.rn.f16x2.e2m1x2 r, c;
    cvt.rn.f16x2.e2m1x2 s, d;
    prmt.b32 $0, p, q, 0x5410;
    prmt.b32 $1, r, s, 0x5410;
    prmt.b32 $2, p, q, 0x7632;
    prmt.b32 $3, r, s, 0x7632;
}""")

_NARROW = tl.constexpr("""{
    .reg .b8 a, b, c, d;
    cvt.rn.satfinite.e2m1x2.f32 a, $5, $1;
    cvt.rn.satfinite.e2m1x2.f32 b, $6, $2;
    cvt.rn.satfinite.e2m1x2.f32 c, $7, $3;
    cvt.rn.satfinite.e2m1x2.f32 d, $8, $4;
    mov.b32 $0, {a, b, c, d};
}""")


def has_e2m1(arch: str) -> bool:
    """Return True if an architecture converts e2m1, for whose own instructions Triton compiles: sm_100 and newer."""
    return is_from(arch, 100)


def unit_of(arch: str) -> float:
    """Return the factor that the numbers of `widen` still have to be multiplied by."""
    return 1.0 if has_e2m1(arch) else 2.0**14


@triton.jit
def widen(pairs, HAS_E2M1: tl.constexpr):
    """Return the first and the second number of each byte as float32, too small by the factor `unit_of`."""
    if HAS_E2M1:
        even, odd = tl.inline_asm_elementwise(
            _WIDEN, "=r,=r,=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=4
        )
    else:  # exponent and mantissa at the lowest bit of an fp16's exponent and beside it: too small by 2^14
        bits = pairs.to(tl.int32)
        even = ((bits & 0x07) << 9 | (bits & 0x08) << 12).to(tl.int16).to(tl.float16, bitcast=True)
        odd = ((bits & 0x70) << 5 | (bits & 0x80) << 8).to(tl.int16).to(tl.float16, bitcast=True)
    return even.to(tl.float32), odd.to(tl.float32)


@triton.jit
def scale_of(codes):
    """Return the scales of groups as float32."""
    return dequantize(codes, "fp8_e4m3")


@triton.jit
def _code_of(values):
    """Return the codes of float32 values as int32: nearest, ties to even, saturated."""
    size = tl.minimum(tl.abs(values), 6.0)
    bits = size.to(tl.int32, bitcast=True)
    normal = ((bits + 0x1FFFFF + ((bits >> 22) & 1)) >> 22) - (126 << 1)
    subnormal = (size + 4194304.0).to(tl.int32, bitcast=True) & 0xF  # whose last bit is worth 0.5
    return tl.where(size < 1.0, subnormal, normal) | ((values.to(tl.int32, bitcast=True) >> 28) & 8)


@triton.jit
def narrow(even, odd, HAS_E2M1: tl.constexpr):
    """Return bytes ``[tokens, groups, 8]`` and scales ``[tokens, groups]`` of float32 numbers, both as uint8.

    They are bit for bit those of `workbench.attention.cache_formats.nvfp4`.
    """
    # In the order of their bits, of which those of NaN are the largest.
    sizes = tl.maximum(even.to(tl.int32, bitcast=True) & 0x7FFFFFFF, odd.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    largest = tl.max(sizes, axis=2)
    scales = quantize(largest.to(tl.float32, bitcast=True) * (1.0 / 6.0), "fp8_e4m3")
    size = scale_of(scales)
    factor = tl.where(size > 0.0, tl.div_rn(1.0, tl.where(size > 0.0, size, 1.0)), 0.0)[:, :, None]
    if HAS_E2M1:
        codes = tl.inline_asm_elementwise(
            _NARROW, "=r,f,f,f,f,f,f,f,f", [even * factor, odd * factor], dtype=tl.uint8, is_pure=True, pack=4
        )
    else:
        codes = (_code_of(even * factor) | (_code_of(odd * factor) << 4)).to(tl.uint8)
    return tl.where((largest > 0x7F800000)[:, :, None], 0, codes).to(tl.uint8), scales
