// Vectors of cache elements as one memory access, and their arithmetic in fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// A float for every element type that we read.
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// A float rounded to the nearest T.
template <typename T> __device__ __forceinline__ T from_float(float value);
template <> __device__ __forceinline__ float from_float<float>(float value) { return value; }
template <> __device__ __forceinline__ __half from_float<__half>(float value) { return __float2half_rn(value); }
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// The unsigned type that one load instruction moves.
template <int BYTES> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

// N elements of T side by side; at most 16 bytes move at once, so that wider ones take several accesses.
template <typename T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vector {
  static constexpr int STEP_BYTES = sizeof(T) * N > 16 ? 16 : sizeof(T) * N;
  static constexpr int NUM_STEPS = sizeof(T) * N / STEP_BYTES;
  using Step = typename Word<STEP_BYTES>::type;

  T at[N];

  // `address` must be a multiple of STEP_BYTES.
  __device__ __forceinline__ void load(const T* address) {
#pragma unroll
    for (int i = 0; i < NUM_STEPS; ++i) reinterpret_cast<Step*>(at)[i] = reinterpret_cast<const Step*>(address)[i];
  }

  // The first `count` elements stay (one at least), the others become zero.
  __device__ __forceinline__ void keep(int count) {
#pragma unroll
    for (int i = 1; i < N; ++i)
      if (i >= count) at[i] = T{};
  }
};

// sum_i a_i * b_i in fp32.
template <typename A, typename B, int N>
__device__ __forceinline__ float dot(const Vector<A, N>& a, const Vector<B, N>& b) {
  float sum = to_float(a.at[0]) * to_float(b.at[0]);
#pragma unroll
  for (int i = 1; i < N; ++i) sum = fmaf(to_float(a.at[i]), to_float(b.at[i]), sum);
  return sum;
}
