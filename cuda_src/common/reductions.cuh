// Sums and maxima over the lanes of a warp.
#pragma once

constexpr int WARP_SIZE = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// NVRTC has no INFINITY.
__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// The sum over the lanes whose number agrees in every bit outside [LOW, HIGH); each of them receives it.
template <int LOW, int HIGH> __device__ __forceinline__ float sum_over_lanes(float value) {
#pragma unroll
  for (int step = HIGH / 2; step >= LOW; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
  return value;
}

template <int LOW, int HIGH> __device__ __forceinline__ float max_over_lanes(float value) {
#pragma unroll
  for (int step = HIGH / 2; step >= LOW; step /= 2) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, step));
  return value;
}
