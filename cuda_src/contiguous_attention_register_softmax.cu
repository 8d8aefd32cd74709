// Attention of one new token per sequence over a contiguous cache: one block per (query heads of a group, sequence).
// The elements of a key and of a value lie side by side, so a *thread group* that shares a token's dot product also
// holds that token's slice of the output. Scores never leave registers: each thread group keeps its own online softmax
// (maximum, sum, output), and all of them are merged once at the end. Each key and value is read once for HEADS_PER_BLOCK
// query heads.
//
//   out, query [num_seqs, num_heads, HEAD_SIZE]                               query rows query_stride apart
//   kv_cache   [rows, 2, num_kv_heads, max_seqlen, HEAD_SIZE]                 keys, then values; rows row_stride apart
//   seq_lens, cache_rows [num_seqs]
//
// Tunables: HEADS_PER_BLOCK, THREAD_GROUP_SIZE threads per token, VEC_SIZE elements per load, TOKENS_IN_FLIGHT per
// thread group, NUM_THREADS per block. Method: online softmax (Milakov and Gimelshein, 2018).
#include "common/reductions.cuh"
#include "common/vectors.cuh"

#ifndef SCALAR
#define SCALAR __half
#define HEAD_SIZE 128
#define GROUP 4
#define HEADS_PER_BLOCK 4
#define THREAD_GROUP_SIZE 16
#define VEC_SIZE 8
#define TOKENS_IN_FLIGHT 2
#define NUM_THREADS 128
#endif

constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int NUM_GROUPS = NUM_THREADS / THREAD_GROUP_SIZE;
constexpr int VECS = HEAD_SIZE / (THREAD_GROUP_SIZE * VEC_SIZE);  // of one thread
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LOWEST = -3e38f;  // a maximum of nothing: unlike minus infinity it may be subtracted from itself

using Vec = Vector<SCALAR, VEC_SIZE>;

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
contiguous_attention_register_softmax(SCALAR* __restrict__ out, const SCALAR* __restrict__ query,
                                      const SCALAR* __restrict__ kv_cache, const int* __restrict__ seq_lens,
                                      const int* __restrict__ cache_rows, float scale, int num_heads, int max_seqlen,
                                      long long query_stride, long long row_stride) {
  const int first_head = blockIdx.x * HEADS_PER_BLOCK, seq = blockIdx.y;
  const int kv_head = first_head / GROUP, num_kv_heads = num_heads / GROUP;
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int group = threadIdx.x / THREAD_GROUP_SIZE, group_lane = threadIdx.x % THREAD_GROUP_SIZE;
  const int seq_len = seq_lens[seq];
  const long long head_stride = (long long)max_seqlen * HEAD_SIZE;
  const SCALAR* keys = kv_cache + cache_rows[seq] * row_stride + kv_head * head_stride;
  const SCALAR* values = keys + num_kv_heads * head_stride;

  // 1. Load the queries once, in fp32, with the softmax scale and the change to base 2 folded in; then each thread its
  //    slice of them into registers.
  __shared__ alignas(16) float scaled_query[HEADS_PER_BLOCK * HEAD_SIZE];
  for (int i = threadIdx.x; i < HEADS_PER_BLOCK * HEAD_SIZE; i += NUM_THREADS)
    scaled_query[i] = to_float(query[seq * query_stride + first_head * HEAD_SIZE + i]) * (scale * LOG2_E);
  __syncthreads();
  Vector<float, VEC_SIZE> q[HEADS_PER_BLOCK][VECS];
  float rows[HEADS_PER_BLOCK][VECS][VEC_SIZE] = {};
  float max_score[HEADS_PER_BLOCK], total[HEADS_PER_BLOCK];
#pragma unroll
  for (int h = 0; h < HEADS_PER_BLOCK; ++h) {
    max_score[h] = LOWEST, total[h] = 0.f;
#pragma unroll
    for (int v = 0; v < VECS; ++v)
      q[h][v].load(scaled_query + h * HEAD_SIZE + (group_lane + v * THREAD_GROUP_SIZE) * VEC_SIZE);
  }

  for (int start = group; start - group < seq_len; start += NUM_GROUPS * TOKENS_IN_FLIGHT) {
    Vec key[TOKENS_IN_FLIGHT][VECS], value[TOKENS_IN_FLIGHT][VECS];
#pragma unroll
    for (int t = 0; t < TOKENS_IN_FLIGHT; ++t) {
      // Past the end read the last token again: no traffic, and no NaN of an unused slot.
      const long long token = min(start + t * NUM_GROUPS, seq_len - 1);
#pragma unroll
      for (int v = 0; v < VECS; ++v) {
        const int element = (group_lane + v * THREAD_GROUP_SIZE) * VEC_SIZE;
        key[t][v].load(keys + token * HEAD_SIZE + element);
        value[t][v].load(values + token * HEAD_SIZE + element);
      }
    }
#pragma unroll
    for (int h = 0; h < HEADS_PER_BLOCK; ++h) {
      // 2. Score: minus infinity past the end.
      float score[TOKENS_IN_FLIGHT], new_max = max_score[h];
#pragma unroll
      for (int t = 0; t < TOKENS_IN_FLIGHT; ++t) {
        score[t] = 0.f;
#pragma unroll
        for (int v = 0; v < VECS; ++v) score[t] += dot(q[h][v], key[t][v]);
        score[t] = sum_over_lanes<1, THREAD_GROUP_SIZE>(score[t]);
        score[t] = start + t * NUM_GROUPS < seq_len ? score[t] : -infinity();
        new_max = fmaxf(new_max, score[t]);
      }

      // 3. Rescale what was summed under the old maximum.
      const float rescale = exp2f(max_score[h] - new_max);
      max_score[h] = new_max;
      total[h] *= rescale;
#pragma unroll
      for (int v = 0; v < VECS; ++v)
#pragma unroll
        for (int e = 0; e < VEC_SIZE; ++e) rows[h][v][e] *= rescale;

      // 4. Accumulate.
#pragma unroll
      for (int t = 0; t < TOKENS_IN_FLIGHT; ++t) {
        const float weight = exp2f(score[t] - new_max);
        total[h] += weight;
#pragma unroll
        for (int v = 0; v < VECS; ++v)
#pragma unroll
          for (int e = 0; e < VEC_SIZE; ++e)
            rows[h][v][e] = fmaf(weight, to_float(value[t][v].at[e]), rows[h][v][e]);
      }
    }
  }

  // 5. Reduce: bring every thread group to the maximum of its warp and add up, then the warps likewise.
  __shared__ float warp_max[NUM_WARPS][HEADS_PER_BLOCK], warp_total[NUM_WARPS][HEADS_PER_BLOCK];
  __shared__ float partial_out[NUM_WARPS][HEADS_PER_BLOCK][HEAD_SIZE];
#pragma unroll
  for (int h = 0; h < HEADS_PER_BLOCK; ++h) {
    const float highest = max_over_lanes<THREAD_GROUP_SIZE, WARP_SIZE>(max_score[h]);
    const float rescale = exp2f(max_score[h] - highest);
    const float sum = sum_over_lanes<THREAD_GROUP_SIZE, WARP_SIZE>(total[h] * rescale);
    if (lane == 0) warp_max[warp][h] = highest, warp_total[warp][h] = sum;
#pragma unroll
    for (int v = 0; v < VECS; ++v)
#pragma unroll
      for (int e = 0; e < VEC_SIZE; ++e) {
        const float row = sum_over_lanes<THREAD_GROUP_SIZE, WARP_SIZE>(rows[h][v][e] * rescale);
        if (lane < THREAD_GROUP_SIZE)
          partial_out[warp][h][(group_lane + v * THREAD_GROUP_SIZE) * VEC_SIZE + e] = row;
      }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < HEADS_PER_BLOCK * HEAD_SIZE; i += NUM_THREADS) {
    const int h = i / HEAD_SIZE, element = i % HEAD_SIZE;
    float highest = LOWEST, sum = 0.f, row = 0.f;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; ++w) highest = fmaxf(highest, warp_max[w][h]);
#pragma unroll
    for (int w = 0; w < NUM_WARPS; ++w) {
      const float rescale = exp2f(warp_max[w][h] - highest);
      sum += warp_total[w][h] * rescale;
      row += partial_out[w][h][element] * rescale;
    }
    out[((long long)seq * num_heads + first_head + h) * HEAD_SIZE + element] =
        from_float<SCALAR>(seq_len > 0 ? row / sum : 0.f);
  }
}
