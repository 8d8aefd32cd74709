// Pairs of 16-bit elements, as operands of products hold them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Two floats rounded to T, the first in the lower half.
template <typename T> __device__ __forceinline__ unsigned pack(float low, float high);
template <> __device__ __forceinline__ unsigned pack<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const unsigned&>(pair);
}
template <> __device__ __forceinline__ unsigned pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const unsigned&>(pair);
}
