// Pool each window of tokens into one entry: one block per (window, chunk of its elements), one thread per VEC_SIZE
// elements. Every element has a softmax of its own over the tokens, so that no thread needs another one's numbers, and
// one pass does: the sum is rescaled when the maximum grows.
//
//   out            [num_windows, HEAD_SIZE]
//   values, gates  [num_windows, WINDOW, HEAD_SIZE]; a gate of minus infinity leaves its token out
//   position_bias  [WINDOW, HEAD_SIZE] fp32
//
// Tunables: NUM_THREADS, VEC_SIZE elements per access. Idea: online softmax (Milakov and Gimelshein, 2018), over the
// compressors of DeepSeek-V4.
#include "common/copies.cuh"
#include "common/exponentials.cuh"
#include "common/reductions.cuh"

#ifndef SCALAR
#define SCALAR __nv_bfloat16
#define HEAD_SIZE 512
#define WINDOW 8
#define NUM_THREADS 128
#define VEC_SIZE 4
#endif

using Scalar = SCALAR;
constexpr float LOG2_E = 1.4426950408889634f;

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    pool_windows(Scalar* __restrict__ out, const Scalar* __restrict__ values, const Scalar* __restrict__ gates,
                 const float* __restrict__ position_bias) {
  const long long window = blockIdx.x;
  const int element = (blockIdx.y * NUM_THREADS + threadIdx.x) * VEC_SIZE;
  if (element >= HEAD_SIZE) return;
  values += window * WINDOW * HEAD_SIZE + element, gates += window * WINDOW * HEAD_SIZE + element;
  float max[VEC_SIZE], total[VEC_SIZE] = {}, sum[VEC_SIZE] = {};
#pragma unroll
  for (int i = 0; i < VEC_SIZE; ++i) max[i] = -infinity();
#pragma unroll 4
  for (int token = 0; token < WINDOW; ++token) {
    // 1. Load a token's elements and gates.
    Vector<Scalar, VEC_SIZE> value, gate;
    value.load(values + token * HEAD_SIZE), gate.load(gates + token * HEAD_SIZE);
#pragma unroll
    for (int i = 0; i < VEC_SIZE; ++i) {
      const float logit = (to_float(gate.at[i]) + position_bias[token * HEAD_SIZE + element + i]) * LOG2_E;

      // 2. Rescale what was summed under the old maximum; tokens that are left out keep it at minus infinity.
      const float new_max = fmaxf(max[i], logit), base = new_max == -infinity() ? 0.f : new_max;
      const float shrink = exp2_or_zero(max[i] - base), weight = exp2_or_zero(logit - base);
      max[i] = new_max;

      // 3. Accumulate.
      total[i] = total[i] * shrink + weight;
      sum[i] = sum[i] * shrink + weight * to_float(value.at[i]);
    }
  }

  // 4. Store.
  Vector<Scalar, VEC_SIZE> entry;
#pragma unroll
  for (int i = 0; i < VEC_SIZE; ++i) entry.at[i] = from_float<Scalar>(total[i] > 0.f ? sum[i] / total[i] : 0.f);
  store_global(out + window * HEAD_SIZE + element, entry);
}
