// Floats as one-byte codes: rounded to the nearest, ties to even, and saturated; NaN becomes 0x7F in FP8 and 0 in INT8,
// which stops at -127. The same bits on every architecture, and as workbench/attention/cache_formats/quantization.py.
#pragma once

#include <cuda_fp8.h>

#include "common/vectors.cuh"

template <int N> __device__ __forceinline__ void encode(signed char (&codes)[N], const float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) codes[i] = max(-127, min(127, __float2int_rn(values[i])));  // which makes NaN 0
}

// Two at a time, as the instruction takes two (sm_89 and newer; before, the header computes them).
template <__nv_fp8_interpretation_t KIND, int N>
__device__ __forceinline__ void encode_fp8(unsigned char (&codes)[N], const float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float first = values[i], second = i + 1 < N ? values[i + 1] : 0.f;
    const unsigned pair = __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, KIND);
    // The header keeps sign and payload of a NaN, the instruction does not.
    codes[i] = isnan(first) ? 0x7F : pair & 0xFF;
    if (i + 1 < N) codes[i + 1] = isnan(second) ? 0x7F : pair >> 8;
  }
}
template <int N> __device__ __forceinline__ void encode(__nv_fp8_e4m3 (&codes)[N], const float (&values)[N]) {
  encode_fp8<__NV_E4M3>(reinterpret_cast<unsigned char(&)[N]>(codes), values);
}
template <int N> __device__ __forceinline__ void encode(__nv_fp8_e5m2 (&codes)[N], const float (&values)[N]) {
  encode_fp8<__NV_E5M2>(reinterpret_cast<unsigned char(&)[N]>(codes), values);
}

// The codes of `elements * factor`: the factor is the reciprocal of the scale to multiply by when reading.
template <typename Code, typename T, int N>
__device__ __forceinline__ Vector<Code, N> quantize(const Vector<T, N>& elements, float factor) {
  float values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = to_float(elements.at[i]) * factor;
  Vector<Code, N> codes;
  encode(codes.at, values);
  return codes;
}
