// A Hadamard rotation of every block of BLOCK neighbouring elements: one thread per VEC_SIZE of them, BLOCK / VEC_SIZE
// lanes a block. A butterfly makes (a + b, a - b) of two elements whose indices differ in one bit, once for each bit:
// the low bits are a thread's own elements, the high ones lie in other lanes.
//
//   out     [num_tokens, WIDTH]
//   heads   [num_tokens, WIDTH], tokens token_stride apart; WIDTH is a multiple of BLOCK
//
// Tunables: NUM_THREADS, VEC_SIZE elements of a thread. Idea: Dao's fast-hadamard-transform, without its shared memory.
#include "common/copies.cuh"

#ifndef SCALAR
#define SCALAR __nv_bfloat16
#define WIDTH 1024
#define BLOCK 128
#define SCALE 0.08838834764831845f
#define NUM_THREADS 128
#define VEC_SIZE 8
#endif

using Scalar = SCALAR;
using Vec = Vector<Scalar, VEC_SIZE>;

constexpr int LANES = BLOCK / VEC_SIZE;

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    rotate_heads(Scalar* __restrict__ out, const Scalar* __restrict__ heads, int num_tokens, long long token_stride) {
  const long long element = ((long long)blockIdx.x * NUM_THREADS + threadIdx.x) * VEC_SIZE, token = element / WIDTH;
  const bool exists = token < num_tokens;

  // 1. Load. Lanes behind the last block stay, with zeros: a shuffle needs all of a warp.
  Vec loaded{};
  if (exists) loaded.load(heads + token * token_stride + element % WIDTH);
  float x[VEC_SIZE];
#pragma unroll
  for (int i = 0; i < VEC_SIZE; ++i) x[i] = to_float(loaded.at[i]);

  // 2. Butterflies in registers.
#pragma unroll
  for (int bit = 1; bit < VEC_SIZE; bit *= 2) {
#pragma unroll
    for (int i = 0; i < VEC_SIZE; ++i) {
      if (i & bit) continue;
      const float a = x[i], b = x[i + bit];
      x[i] = a + b;
      x[i + bit] = a - b;
    }
  }

  // 3. Butterflies between lanes: the upper one has b.
#pragma unroll
  for (int bit = 1; bit < LANES; bit *= 2) {
    const float sign = threadIdx.x & bit ? -1.f : 1.f;
#pragma unroll
    for (int i = 0; i < VEC_SIZE; ++i) x[i] = fmaf(sign, x[i], __shfl_xor_sync(0xffffffffu, x[i], bit));
  }

  // 4. Scale, and store.
  Vec answer;
#pragma unroll
  for (int i = 0; i < VEC_SIZE; ++i) answer.at[i] = from_float<Scalar>(x[i] * SCALE);
  if (exists) store_global(out + element, answer);
}
