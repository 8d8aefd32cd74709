// Combining the partial results of the partitions of a sequence.
//
//   partial_out   [num_seqs, num_heads, num_partitions, HEAD_SIZE] fp32       sum of exp2(score - max) * V
//   partial_stats [num_seqs, num_heads, num_partitions] (max, sum) fp32       scores in base 2
#pragma once

#include "common/reductions.cuh"
#include "common/vectors.cuh"

constexpr float LOG2_E = 1.4426950408889634f;

// The partitions of one (query head, sequence), put on a common maximum, added up and divided once. A sink takes its
// share of the weight and gives no value. SIZE elements of a head, TOKENS per partition; a thread per element, a grid of
// [num_heads, num_seqs].
template <typename T, int SIZE, int TOKENS, int THREADS>
__device__ __forceinline__ void reduce_partitions(T* __restrict__ out, const float* __restrict__ partial_out,
                                                  const float2* __restrict__ partial_stats,
                                                  const int* __restrict__ seq_lens, const float* __restrict__ v_scale,
                                                  const float* __restrict__ sinks, int sliding_window,
                                                  int scale_stride, int num_kv_heads, int num_partitions) {
  const int head = blockIdx.x, num_heads = gridDim.x, seq = blockIdx.y;
  const int seq_len = seq_lens[seq];
  const int first = sliding_window > 0 ? max(seq_len - sliding_window, 0) / TOKENS : 0;
  const int last = (seq_len + TOKENS - 1) / TOKENS;
  const long long place = ((long long)seq * num_heads + head) * num_partitions;

  float max_score = sinks ? sinks[head] * LOG2_E : -infinity();
  for (int i = first; i < last; ++i) max_score = fmaxf(max_score, partial_stats[place + i].x);
  float sum = sinks ? exp2f(sinks[head] * LOG2_E - max_score) : 0.f;
  for (int i = first; i < last; ++i) sum += partial_stats[place + i].y * exp2f(partial_stats[place + i].x - max_score);
  const float value_scale = v_scale ? v_scale[head / (num_heads / num_kv_heads) * scale_stride] : 1.f;
  const float inverse = seq_len > 0 ? value_scale / sum : 0.f;
  for (int row = threadIdx.x; row < SIZE; row += THREADS) {
    float total = 0.f;
    for (int i = first; i < last; ++i)
      total += partial_out[(place + i) * SIZE + row] * exp2f(partial_stats[place + i].x - max_score);
    out[((long long)seq * num_heads + head) * SIZE + row] = from_float<T>(total * inverse);
  }
}
