// Elements of a quantized cache as floats, without their scale: one at a time, and four at a time in a sum.
#pragma once

#include "common/eight_bits.cuh"

__device__ __forceinline__ float to_float(signed char value) { return value; }

// An e5m2 is the upper half of an fp16.
__device__ __forceinline__ float to_float(__nv_fp8_e5m2 value) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(value.__x << 8)));
}

// From sm_89 on there is an instruction. Before, the header goes through the bits of every code in a loop; but where a
// float has the lowest bits of its exponent and the highest of its mantissa, those of an e4m3 are a float too small by
// 2^120, subnormal numbers included. Only NaN is another number then.
__device__ __forceinline__ float to_float(__nv_fp8_e4m3 value) {
#if __CUDA_ARCH__ >= 890
  return float(value);
#else
  const int code = static_cast<signed char>(value.__x);  // whose sign reaches up to the float's
  const float number = __uint_as_float(code << 20 & 0x87f00000) * 0x1p120f;
  return (code & 0x7f) == 0x7f ? __int_as_float(0x7fffffff) : number;
#endif
}

#include "common/vectors.cuh"  // whose templates find to_float of a built-in type only if it is declared before

// sum_i weights_i * codes_i in fp32.
template <typename Code, int N>
__device__ __forceinline__ float dot(const Vector<float, N>& weights, const Vector<Code, N>& codes) {
  float sum = 0.f;
  if constexpr (N % 4 == 0) {
    constexpr int DISTANCE = EightBits<Code>::DISTANCE;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      unsigned pairs[2];
      EightBits<Code>::widen(reinterpret_cast<const unsigned*>(codes.at)[i / 4], pairs[0], pairs[1]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float2 values = __half22float2(reinterpret_cast<const __half2&>(pairs[j]));
        sum = fmaf(weights.at[i + j * (3 - DISTANCE)], values.x, sum);
        sum = fmaf(weights.at[i + j * (3 - DISTANCE) + DISTANCE], values.y, sum);
      }
    }
    sum *= EightBits<Code>::UNIT;
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) sum = fmaf(weights.at[i], to_float(codes.at[i]), sum);
  }
  return sum;
}
