// Elements of a quantized cache as floats, without their scale.
#pragma once

#include <cuda_fp8.h>

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
