// Paged attention of one new token per sequence over a cache of NVFP4, split over the sequence: one block per (query
// head, sequence, partition of PARTITION_SIZE tokens). Elements and scale of a group of 16, of keys and of values alike,
// are the work of one lane: LANES lanes take a token, so that a warp takes several at once. A lane holds its 16 elements
// of the query and sums 16 of the values; the scale of a key's group multiplies the group's part of the dot product,
// that of a value's group the weight. Lanes of one token keep one softmax up to date (online softmax); the others of the
// warp, the warps and the partitions have their own, and are put together at the end.
//
//   out           [num_seqs, num_heads, HEAD_SIZE]
//   partial_out, partial_stats, counters [num_seqs, num_heads]                see common/partitions.cuh
//   query         [num_seqs, num_heads, HEAD_SIZE]                            rows query_stride apart
//   key_cache     [num_blocks, bytes of a page]                               pages key_page_stride apart; in a page the
//                 groups of a head lie head_groups apart, those of a token token_groups: common/four_bits.cuh
//   value_cache   as key_cache                                                pages value_page_stride apart
//   block_tables  [num_seqs, max_blocks], seq_lens [num_seqs]
//   k_scale, v_scale: that of a head stands at head * head_stride; alibi_slopes, sinks [num_heads]; null where not used
//
// Tunables: BLOCK_SIZE tokens per page, PARTITION_SIZE tokens per block, NUM_THREADS per block, TOKENS_IN_FLIGHT tokens
// whose loads a lane has under way.
#include "common/four_bits.cuh"
#include "common/partitions.cuh"

#ifndef SCALAR
#define SCALAR __half
#define HEAD_SIZE 128
#define BLOCK_SIZE 16
#define PARTITION_SIZE 512
#define NUM_THREADS 128
#define TOKENS_IN_FLIGHT 4
#endif

// The smallest power of two that is not below `count`.
__device__ constexpr int next_power_of_2(int count) {
  int power = 1;
  while (power < count) power *= 2;
  return power;
}

constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int GROUPS = HEAD_SIZE / GROUP_SIZE;   // of a head
constexpr int LANES = next_power_of_2(GROUPS);   // of a token; those past the last group idle
constexpr int TOKENS = WARP_SIZE / LANES;        // of a warp at once
constexpr int STEP = TOKENS * TOKENS_IN_FLIGHT;  // tokens of a warp's step

extern "C" __global__ void __launch_bounds__(NUM_THREADS) paged_attention_scaled_groups(
    SCALAR* __restrict__ out, float* partial_out, float2* partial_stats, unsigned* counters,
    const SCALAR* __restrict__ query, const unsigned char* __restrict__ key_cache,
    const unsigned char* __restrict__ value_cache, const int* __restrict__ block_tables,
    const int* __restrict__ seq_lens, const float* __restrict__ k_scale,
    const float* __restrict__ v_scale, const float* __restrict__ alibi_slopes,
    const float* __restrict__ sinks, float scale, float soft_cap, int sliding_window,
    int k_head_stride, int v_head_stride, int num_kv_heads, int head_groups, int token_groups,
    int page_groups, int table_stride, long long query_stride, long long key_page_stride,
    long long value_page_stride) {
  const int head = blockIdx.x, num_heads = gridDim.x, seq = blockIdx.y;
  const int kv_head = head / (num_heads / num_kv_heads);
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int seq_len = seq_lens[seq];
  const int window_start = sliding_window > 0 ? max(seq_len - sliding_window, 0) : 0;
  const int begin = max((int)blockIdx.z * PARTITION_SIZE, window_start);
  const int end = min(((int)blockIdx.z + 1) * PARTITION_SIZE, seq_len);
  if (begin >= end) {  // the whole block: past the sequence, or before the window
    if (seq_len == 0 && blockIdx.z == 0)
      for (int row = threadIdx.x; row < HEAD_SIZE; row += NUM_THREADS)
        out[(seq * num_heads + head) * (long long)HEAD_SIZE + row] = from_float<SCALAR>(0.f);
    return;
  }
  const int* table = block_tables + (long long)seq * table_stride;

  __shared__ float warp_max[NUM_WARPS], warp_sum[NUM_WARPS], scaled_query[HEAD_SIZE];
  __shared__ alignas(16) float warp_out[NUM_WARPS][HEAD_SIZE];

  // 1. Load the query once, in fp32, and keep the lane's part of it, with every factor of a score
  //    folded in: the softmax scale, that of all keys, the unit of their codes, and the change to
  //    base 2 (or, where tanh comes in between, the division by the cap).
  const int group = lane % LANES, place = lane / LANES;
  const bool has_group = group < GROUPS;
  const float of_keys = k_scale ? k_scale[kv_head * k_head_stride] : 1.f;
  const float of_values = v_scale ? v_scale[kv_head * v_head_stride] : 1.f;
  const float factor = scale * of_keys * E2M1_UNIT * (soft_cap > 0.f ? 1.f / soft_cap : LOG2_E);
  for (int i = threadIdx.x; i < HEAD_SIZE; i += NUM_THREADS)
    scaled_query[i] = to_float(query[seq * query_stride + head * HEAD_SIZE + i]) * factor;
  __syncthreads();
  float q[GROUP_SIZE];
#pragma unroll
  for (int i = 0; i < GROUP_SIZE; ++i)
    q[i] = has_group ? scaled_query[group * GROUP_SIZE + i] : 0.f;
  const float slope = alibi_slopes ? alibi_slopes[head] * LOG2_E : 0.f;
  const float sink = sinks ? sinks[head] * LOG2_E : -infinity();

  float max_score = -infinity(), sum = 0.f, sums[GROUP_SIZE] = {};
  for (int first = begin + warp * STEP; first < end; first += NUM_WARPS * STEP) {
    // 2. Load keys and values of TOKENS_IN_FLIGHT tokens. Past the end everything is 0: an unused
    // slot may hold NaN.
    uint2 keys[TOKENS_IN_FLIGHT], values[TOKENS_IN_FLIGHT];
    unsigned char key_scales[TOKENS_IN_FLIGHT], value_scales[TOKENS_IN_FLIGHT];
#pragma unroll
    for (int j = 0; j < TOKENS_IN_FLIGHT; ++j) {
      keys[j] = values[j] = make_uint2(0, 0);
      key_scales[j] = value_scales[j] = 0;
      const int token = first + j * TOKENS + place;
      if (token >= end || !has_group) continue;
      const long long page = table[token / BLOCK_SIZE];
      const int index = kv_head * head_groups + token % BLOCK_SIZE * token_groups + group;
      const unsigned char* key_page = key_cache + page * key_page_stride;
      const unsigned char* value_page = value_cache + page * value_page_stride;
      keys[j] = reinterpret_cast<const uint2*>(key_page)[index];
      key_scales[j] = key_page[8 * page_groups + index];
      values[j] = reinterpret_cast<const uint2*>(value_page)[index];
      value_scales[j] = value_page[8 * page_groups + index];
    }

    // 3. Score: the lanes of a token add up their groups.
    float scores[TOKENS_IN_FLIGHT], new_max = max_score;
#pragma unroll
    for (int j = 0; j < TOKENS_IN_FLIGHT; ++j) {
      const int token = first + j * TOKENS + place;
      float key[GROUP_SIZE], score = 0.f;
      widen(keys[j], key);
#pragma unroll
      for (int i = 0; i < GROUP_SIZE; ++i) score = fmaf(q[i], key[i], score);
      score = sum_over_lanes<1, LANES>(score * scale_of(key_scales[j]));
      if (soft_cap > 0.f) score = soft_cap * LOG2_E * tanhf(score);
      score += slope * (token - (seq_len - 1));
      scores[j] = token < end ? score : -infinity();
      new_max = fmaxf(new_max, scores[j]);
    }

    // 4. Rescale what was summed under the old maximum. Lanes that have seen no token yet have
    // none.
    const float known_max = new_max == -infinity() ? 0.f : new_max;
    const float rescale = exp2f(max_score - known_max);
    max_score = new_max;
    sum *= rescale;
#pragma unroll
    for (int i = 0; i < GROUP_SIZE; ++i) sums[i] *= rescale;

    // 5. Accumulate: a lane's group of each value.
#pragma unroll
    for (int j = 0; j < TOKENS_IN_FLIGHT; ++j) {
      const float weight = exp2f(scores[j] - known_max);
      sum += weight;
      const float scaled_weight = weight * scale_of(value_scales[j]);
      float value[GROUP_SIZE];
      widen(values[j], value);
#pragma unroll
      for (int i = 0; i < GROUP_SIZE; ++i) sums[i] = fmaf(scaled_weight, value[i], sums[i]);
    }
  }

  // 6. Reduce over the tokens of a warp, then over the warps, each under its own maximum; one that
  // saw no token has
  //    minus infinity. With one partition that is the answer; else leave the sums for the block
  //    that is done last.
  const float highest = max_over_lanes<LANES, WARP_SIZE>(max_score);
  const float rescale = max_score == -infinity() ? 0.f : exp2f(max_score - highest);
  sum = sum_over_lanes<LANES, WARP_SIZE>(sum * rescale);
  if (lane == 0) {
    warp_max[warp] = highest;
    warp_sum[warp] = sum;
  }
#pragma unroll
  for (int i = 0; i < GROUP_SIZE; ++i) {
    const float all = sum_over_lanes<LANES, WARP_SIZE>(sums[i] * rescale);
    if (place == 0 && has_group) warp_out[warp][group * GROUP_SIZE + i] = all;
  }
  __syncthreads();
  const int first = window_start / PARTITION_SIZE,
            last = (seq_len + PARTITION_SIZE - 1) / PARTITION_SIZE;
  const long long row_of_all = seq * num_heads + head;
  const long long first_place = row_of_all * gridDim.z, own_place = first_place + blockIdx.z;
  SCALAR* out_row = out + row_of_all * HEAD_SIZE;
  const auto all_warps = [&](int row) {
    return over_warps<NUM_WARPS>(warp_max, warp_sum, 1, &warp_out[0][row], HEAD_SIZE);
  };
  for (int row = threadIdx.x; row < HEAD_SIZE; row += NUM_THREADS) {
    Sums all = all_warps(row);
    all.of_values *= of_values * E2M1_UNIT;
    if (last - first == 1) {
      out_row[row] = from_float<SCALAR>(all.average(sink));
    } else {
      if (row == 0) partial_stats[own_place] = make_float2(all.max, all.of_weights);
      partial_out[own_place * HEAD_SIZE + row] = all.of_values;
    }
  }
  if (last - first == 1 || !last_to_arrive(counters + row_of_all, last - first)) return;

  // 7. Reduce over the partitions: a warp adds up every NUM_WARPS-th, then as above.
  add_partitions<1, HEAD_SIZE, NUM_WARPS, HEAD_SIZE>(
      warp_max + warp, warp_sum + warp, warp_out[warp], partial_out + first_place * HEAD_SIZE,
      partial_stats + first_place, first + warp, last, gridDim.z);
  __syncthreads();
  for (int row = threadIdx.x; row < HEAD_SIZE; row += NUM_THREADS)
    out_row[row] = from_float<SCALAR>(all_warps(row).average(sink));
}
