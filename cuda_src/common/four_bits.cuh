// Groups of 16 numbers of four bits (e2m1), two in a byte, with a scale of eight bits (e4m3):
// NVFP4, as workbench/attention/cache_formats/nvfp4.py defines it, bit for bit on every
// architecture.
//
// A page of a cache has `page_groups` groups, their elements first, 8 bytes for each, then their
// scales:
//
//   elements of group i   at 8 * i
//   scale of group i      at 8 * page_groups + i
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "common/quantized.cuh"

constexpr int GROUP_SIZE = 16;

// Whether there are instructions for e2m1: only code for one architecture, or one family, has them.
#if (defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ >= 1000) || \
    (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000)
constexpr bool HAS_E2M1 = true;
#else
constexpr bool HAS_E2M1 = false;
#endif

// What the numbers of `widen` have still to be multiplied by.
constexpr float E2M1_UNIT = HAS_E2M1 ? 1.f : 16384.f;

// The index of the number in `half` of pair `pair` of `widen`, among the eight.
__device__ constexpr int element_of(int pair, int half) {
  return HAS_E2M1 ? 2 * pair + half : pair + 4 * half;
}

// Eight codes of a register, the first in its lowest bits, as four pairs of fp16.
__device__ __forceinline__ void widen(unsigned eight, __half2 (&pairs)[4]) {
  unsigned bits[4];
  if constexpr (HAS_E2M1) {  // an instruction converts two neighbours
    asm("{\n.reg .b8 a, b, c, d;\nmov.b32 {a, b, c, d}, %4;\n"
        "cvt.rn.f16x2.e2m1x2 %0, a;\ncvt.rn.f16x2.e2m1x2 %1, b;\n"
        "cvt.rn.f16x2.e2m1x2 %2, c;\ncvt.rn.f16x2.e2m1x2 %3, d;\n}"
        : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
        : "r"(eight));
  } else {
    // Exponent and mantissa moved to the lowest bit of an fp16's exponent and the bits beside it
    // are a number too small by 2^14, subnormal ones included.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned pair = eight >> 4 * i;
      bits[i] = (pair & 0x00070007u) << 9 | (pair & 0x00080008u) << 12;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = reinterpret_cast<const __half2&>(bits[i]);
}

// The sixteen codes of a group as floats, too small by E2M1_UNIT.
__device__ __forceinline__ void widen(uint2 group, float (&values)[GROUP_SIZE]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    __half2 pairs[4];
    widen(i == 0 ? group.x : group.y, pairs);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 pair = __half22float2(pairs[j]);
      values[8 * i + element_of(j, 0)] = pair.x;
      values[8 * i + element_of(j, 1)] = pair.y;
    }
  }
}

// The scale of a group as a float.
__device__ __forceinline__ float scale_of(unsigned char code) {
  __nv_fp8_e4m3 scale;
  scale.__x = code;
  return to_float(scale);
}

// The nearest code, ties to even, saturated. Where a float has what the code keeps, adding half of
// the last bit kept rounds; below 1, where steps are all 0.5, so does adding 2^22, whose last bit
// is worth as much.
__device__ __forceinline__ unsigned e2m1_of(float value) {
  const float size = fminf(fabsf(value), 6.f);
  const unsigned bits = __float_as_uint(size), sign = __float_as_uint(value) >> 28 & 8;
  const unsigned normal = ((bits + 0x1fffff + (bits >> 22 & 1)) >> 22) - (126 << 1);
  const unsigned subnormal = __float_as_uint(size + 4194304.f) & 0xf;
  return (size < 1.f ? subnormal : normal) | sign;
}

// Eight floats, none of them NaN, as codes.
__device__ __forceinline__ unsigned eight_of(const float* values) {
  if constexpr (HAS_E2M1) {
    unsigned eight;
    asm("{\n.reg .b8 a, b, c, d;\n"
        "cvt.rn.satfinite.e2m1x2.f32 a, %2, %1;\ncvt.rn.satfinite.e2m1x2.f32 b, %4, %3;\n"
        "cvt.rn.satfinite.e2m1x2.f32 c, %6, %5;\ncvt.rn.satfinite.e2m1x2.f32 d, %8, %7;\n"
        "mov.b32 %0, {a, b, c, d};\n}"
        : "=r"(eight)
        : "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]), "f"(values[4]),
          "f"(values[5]), "f"(values[6]), "f"(values[7]));
    return eight;
  } else {
    unsigned eight = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) eight |= e2m1_of(values[i]) << 4 * i;
    return eight;
  }
}

struct Group {
  uint2 elements;
  unsigned char scale;
};

// A group of floats, multiplied by the reciprocal of k_scale or v_scale already. A NaN among them
// makes the scale NaN.
__device__ __forceinline__ Group group_of(const float (&values)[GROUP_SIZE]) {
  unsigned largest = 0;  // in the order of their bits, of which those of NaN are the largest
#pragma unroll
  for (int i = 0; i < GROUP_SIZE; ++i)
    largest = max(largest, __float_as_uint(values[i]) & 0x7fffffffu);
  if (largest > 0x7f800000u) return {make_uint2(0, 0), 0x7f};
  Group group;
  group.scale =
      __nv_cvt_float_to_fp8(__uint_as_float(largest) * (1.f / 6.f), __NV_SATFINITE, __NV_E4M3);
  const float scale = scale_of(group.scale), factor = scale > 0.f ? 1.f / scale : 0.f;
  float scaled[GROUP_SIZE];
#pragma unroll
  for (int i = 0; i < GROUP_SIZE; ++i) scaled[i] = values[i] * factor;
  group.elements = make_uint2(eight_of(scaled), eight_of(scaled + 8));
  return group;
}
