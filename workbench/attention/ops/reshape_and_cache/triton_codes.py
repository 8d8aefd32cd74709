# mypy: allow-untyped-defs, allow-incomplete-defs
"""Conversions between floats and one-byte codes by their bits, in Triton: exact for every input on every architecture.

Triton's own FP8 types do not suffice: before sm_89 there is no e4m3, and e5m2 is rounded twice, by way of float16.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def quantize(values, KIND: tl.constexpr):
    """Return the uint8 codes of float32 values: nearest, ties to even, saturated, as `cache_formats.quantization`."""
    if KIND == "int8":
        limited = tl.minimum(tl.maximum(tl.where(values == values, values, 0.0), -127.0), 127.0)
        # 1.5 * 2**23 leaves no bit for a fraction, so that adding it rounds.
        return (limited + 12582912.0 - 12582912.0).to(tl.int8).to(tl.uint8, bitcast=True)
    else:
        MANTISSA: tl.constexpr = 3 if KIND == "fp8_e4m3" else 2
        BIAS: tl.constexpr = 7 if KIND == "fp8_e4m3" else 15
        LARGEST: tl.constexpr = 448.0 if KIND == "fp8_e4m3" else 57344.0
        SMALLEST_NORMAL: tl.constexpr = 2.0 ** (1 - BIAS)
        # The last bit of this number in fp32 has the value of the last bit of a subnormal code.
        ALIGNED: tl.constexpr = 2.0 ** (24 - BIAS - MANTISSA)
        ALIGNED_BITS: tl.constexpr = (127 + 24 - BIAS - MANTISSA) << 23
        DROPPED: tl.constexpr = 23 - MANTISSA

        magnitude = tl.minimum(tl.abs(values), LARGEST)
        bits = magnitude.to(tl.int32, bitcast=True)
        rounded = (
            bits + ((1 << (DROPPED - 1)) - 1) + ((bits >> DROPPED) & 1)
        ) >> DROPPED  # may carry into the exponent
        normal = rounded - ((127 - BIAS) << MANTISSA)
        subnormal = (magnitude + ALIGNED).to(tl.int32, bitcast=True) - ALIGNED_BITS
        code = tl.where(magnitude < SMALLEST_NORMAL, subnormal, normal)
        code = code | ((values.to(tl.int32, bitcast=True) >> 24) & 0x80)
        return tl.where(values == values, code, 0x7F).to(tl.uint8)


@triton.jit
def dequantize(codes, KIND: tl.constexpr):
    """Return the float32 values of uint8 codes, without their scale."""
    if KIND == "int8":
        return codes.to(tl.int8, bitcast=True).to(tl.float32)
    elif KIND == "fp8_e5m2":  # the upper half of a float16
        return (codes.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        # Move exponent and mantissa to their places in float32; the product corrects the bias, for subnormals too.
        magnitude = ((codes & 0x7F).to(tl.int32) << 20).to(tl.float32, bitcast=True) * 2.0**120
        magnitude = tl.where((codes & 0x7F) == 0x7F, float("nan"), magnitude)
        sign = (codes & 0x80).to(tl.int32) << 24  # by its bit: Triton's -x is 0 - x, which has no -0
        return (magnitude.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
