// Paged attention of one new token per sequence, split over the sequence: one block per (query head, sequence,
// partition of PARTITION_SIZE tokens), so that a single long sequence still fills the GPU. A warp takes a page at a
// time and keeps its softmax up to date (online softmax), so that one pass over K and V is enough, both can be in
// flight at once, and no memory is needed per token. Each block leaves an unnormalised sum with its maximum; the block
// of a (query head, sequence) that is done last combines them. What fits in one partition is finished at once.
//
//   out           [num_seqs, num_heads, HEAD_SIZE]
//   partial_out, partial_stats, counters [num_seqs, num_heads]                see common/partitions.cuh
//   query         [num_seqs, num_heads, HEAD_SIZE]                            rows query_stride apart
//   key_cache     [num_blocks, num_kv_heads, HEAD_SIZE / X, BLOCK_SIZE, X]    pages key_page_stride apart
//   value_cache   [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]           pages value_page_stride apart
//   block_tables  [num_seqs, max_blocks], seq_lens [num_seqs]
//   k_scale, v_scale of a quantized cache: see common/cache_scales.cuh; alibi_slopes, sinks [num_heads]; null where not
//                used
//
// Tunables: BLOCK_SIZE tokens per page, PARTITION_SIZE tokens per block, NUM_THREADS per block. Idea: vLLM's v2 kernel
// and Flash-Decoding (Dao et al., 2023) for the split, Milakov and Gimelshein (2018) for the online softmax.
#ifdef QUANTIZED  // an 8-bit CACHE; first, for templates find to_float of a built-in type only if it is declared before
#include "common/quantized.cuh"
#endif
#include "common/cache_scales.cuh"
#include "common/partitions.cuh"

#ifndef SCALAR
#define SCALAR __half
#define CACHE __half
#define HEAD_SIZE 128
#define BLOCK_SIZE 16
#define PARTITION_SIZE 512
#define TOKEN_SCALES 0  // whether slot_stride of K or V may be other than 0
#define NUM_THREADS 128
#endif

constexpr int X = 16 / sizeof(CACHE);  // elements of one 16-byte step of the key layout
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int LANES_PER_TOKEN = WARP_SIZE / BLOCK_SIZE;
constexpr int KEY_STEPS = HEAD_SIZE / X;  // 16-byte steps of a key
constexpr int KEY_STEPS_PER_LANE = (KEY_STEPS + LANES_PER_TOKEN - 1) / LANES_PER_TOKEN;
constexpr int V_VEC_SIZE = X < BLOCK_SIZE ? X : BLOCK_SIZE;
constexpr int LANES_PER_ROW = BLOCK_SIZE / V_VEC_SIZE;
constexpr int ROWS_PER_STEP = WARP_SIZE / LANES_PER_ROW;
constexpr int ROWS_PER_LANE = (HEAD_SIZE + ROWS_PER_STEP - 1) / ROWS_PER_STEP;
constexpr int IN_FLIGHT = KEY_STEPS_PER_LANE < 8 ? KEY_STEPS_PER_LANE : 8;  // at most 128 bytes of keys in registers
constexpr bool VALUES_AHEAD = ROWS_PER_LANE <= 8;                           // and as many of values beside them
// Left alone, ptxas spills to reach an occupancy that nobody asked for: grant 128 registers, or 255 for many rows.
constexpr int RESIDENT_THREADS = ROWS_PER_LANE <= 16 && sizeof(CACHE) < 4 ? 512 : 256;
constexpr int MIN_BLOCKS = RESIDENT_THREADS > NUM_THREADS ? RESIDENT_THREADS / NUM_THREADS : 1;

using Cache = CACHE;
using Key = Vector<Cache, X>;
using Value = Vector<Cache, V_VEC_SIZE>;

// The row of V that a lane reads in step i, and whether there is one.
__device__ __forceinline__ int row_of(int lane, int i) { return lane / LANES_PER_ROW + i * ROWS_PER_STEP; }
__device__ __forceinline__ bool has_row(int row) { return HEAD_SIZE % ROWS_PER_STEP == 0 || row < HEAD_SIZE; }

extern "C" __global__ void __launch_bounds__(NUM_THREADS, MIN_BLOCKS)
paged_attention_partition(SCALAR* __restrict__ out, float* partial_out, float2* partial_stats, unsigned* counters,
                          const SCALAR* __restrict__ query, const Cache* __restrict__ key_cache,
                          const Cache* __restrict__ value_cache, const int* __restrict__ block_tables,
                          const int* __restrict__ seq_lens, const float* __restrict__ k_scale,
                          const float* __restrict__ v_scale, const float* __restrict__ alibi_slopes,
                          const float* __restrict__ sinks, float scale, float soft_cap, int sliding_window,
                          int k_slot_stride, int k_head_stride, int v_slot_stride, int v_head_stride, int num_kv_heads,
                          int table_stride, long long query_stride, long long key_page_stride,
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

  __shared__ alignas(16) float scaled_query[HEAD_SIZE];
  __shared__ alignas(16) float weights[NUM_WARPS][BLOCK_SIZE];
  __shared__ float warp_max[NUM_WARPS], warp_sum[NUM_WARPS], sink, value_scale;
  __shared__ alignas(16) float warp_out[NUM_WARPS][HEAD_SIZE];

  // 1. Load the query once, in fp32, with every factor of a score folded in: the softmax scale, the scale of all
  //    quantized keys, and the change to base 2 (or, where tanh comes in between, the division by the cap).
  const CacheScales<TOKEN_SCALES> key_scales{k_scale, k_slot_stride, kv_head * k_head_stride};
  const CacheScales<TOKEN_SCALES> value_scales{v_scale, v_slot_stride, kv_head * v_head_stride};
  const float factor = scale * key_scales.common() * (soft_cap > 0.f ? 1.f / soft_cap : LOG2_E);
  for (int i = threadIdx.x; i < HEAD_SIZE; i += NUM_THREADS)
    scaled_query[i] = to_float(query[seq * query_stride + head * HEAD_SIZE + i]) * factor;
  const float slope = alibi_slopes ? alibi_slopes[head] * LOG2_E : 0.f;
  if (threadIdx.x == 0) sink = sinks ? sinks[head] * LOG2_E : -infinity(), value_scale = value_scales.common();
  __syncthreads();

  const int slot = lane % BLOCK_SIZE;
  float max_score = -infinity(), sum = 0.f, rows[ROWS_PER_LANE] = {};
  for (int page = begin / BLOCK_SIZE + warp; page * BLOCK_SIZE < end; page += NUM_WARPS) {
    const long long block = table[page];
    const Cache* keys = key_cache + block * key_page_stride + (long long)kv_head * (HEAD_SIZE * BLOCK_SIZE);
    const Cache* values = value_cache + block * value_page_stride + (long long)kv_head * (HEAD_SIZE * BLOCK_SIZE);
    const int token = page * BLOCK_SIZE + slot;
    const bool inside = token >= begin && token < end;
    const float token_key_scale = inside ? key_scales.of(block * BLOCK_SIZE + slot) : 1.f;
    const float token_value_scale = inside ? value_scales.of(block * BLOCK_SIZE + slot) : 1.f;

    // 2. Score: lanes BLOCK_SIZE apart share a token; each load of the warp is 512 bytes in a row.
    Value value[VALUES_AHEAD ? ROWS_PER_LANE : 1];
    if (VALUES_AHEAD) {  // not needed before step 4, but under way from here on
#pragma unroll
      for (int i = 0; i < ROWS_PER_LANE; ++i)
        if (has_row(row_of(lane, i)))
          value[i].load(values + row_of(lane, i) * BLOCK_SIZE + lane % LANES_PER_ROW * V_VEC_SIZE);
    }
    float score = 0.f;
#pragma unroll 1
    for (int first = 0; first < KEY_STEPS_PER_LANE; first += IN_FLIGHT) {
      Key key[IN_FLIGHT];
#pragma unroll
      for (int j = 0; j < IN_FLIGHT; ++j) {
        const int step = lane / BLOCK_SIZE + (first + j) * LANES_PER_TOKEN;
        if (step < KEY_STEPS) key[j].load(keys + (step * BLOCK_SIZE + slot) * X);
      }
#pragma unroll
      for (int j = 0; j < IN_FLIGHT; ++j) {
        const int step = lane / BLOCK_SIZE + (first + j) * LANES_PER_TOKEN;
        if (step >= KEY_STEPS) continue;
        Vector<float, X> q;
        q.load(scaled_query + step * X);
        score += dot(q, key[j]);
      }
    }
    score = sum_over_lanes<BLOCK_SIZE, WARP_SIZE>(score) * token_key_scale;
    if (soft_cap > 0.f) score = soft_cap * LOG2_E * tanhf(score);
    score += slope * (token - (seq_len - 1));
    score = inside ? score : -infinity();  // also where an unused slot made it NaN

    // 3. Rescale what was summed under the old maximum. The page has a token inside, so that the new one is finite.
    const float new_max = fmaxf(max_score, max_over_lanes<1, BLOCK_SIZE>(score));
    const float rescale = exp2f(max_score - new_max), weight = exp2f(score - new_max);
    sum = sum * rescale + weight;
    max_score = new_max;
    __syncwarp();  // the weights of the page before have been read
    if (lane < BLOCK_SIZE) weights[warp][slot] = weight * token_value_scale;  // but not in the sum of the weights
    __syncwarp();

    // 4. Accumulate: a lane reads V_VEC_SIZE tokens of a row and keeps the row's sum.
    const int first_token = lane % LANES_PER_ROW * V_VEC_SIZE;
    const bool whole = page * BLOCK_SIZE >= begin && (page + 1) * BLOCK_SIZE <= end;
    Vector<float, V_VEC_SIZE> w;
    w.load(weights[warp] + first_token);
#pragma unroll
    for (int i = 0; i < ROWS_PER_LANE; ++i) {
      if (!has_row(row_of(lane, i))) break;
      Value v;
      if (VALUES_AHEAD) {
        v = value[i];
      } else {
        v.load(values + row_of(lane, i) * BLOCK_SIZE + first_token);
      }
      if (!whole) {  // a weight of zero is not enough: an unused slot may hold NaN, and 0 * NaN is NaN
#pragma unroll
        for (int j = 0; j < V_VEC_SIZE; ++j) {
          const int at = page * BLOCK_SIZE + first_token + j;
          if (at < begin || at >= end) v.at[j] = Cache{};
        }
      }
      rows[i] = rows[i] * rescale + dot(w, v);
    }
  }

  // 5. Reduce over the lanes of a row, then over the warps, each under its own maximum; a warp without a page has
  //    minus infinity. With one partition that is the answer; else leave the sums for the block that is done last.
  sum = sum_over_lanes<1, BLOCK_SIZE>(sum);
  if (lane == 0) warp_max[warp] = max_score, warp_sum[warp] = sum;
#pragma unroll
  for (int i = 0; i < ROWS_PER_LANE; ++i) {
    const float row_sum = sum_over_lanes<1, LANES_PER_ROW>(rows[i]);
    if (lane % LANES_PER_ROW == 0 && has_row(row_of(lane, i))) warp_out[warp][row_of(lane, i)] = row_sum;
  }
  __syncthreads();
  const int first = window_start / PARTITION_SIZE, last = (seq_len + PARTITION_SIZE - 1) / PARTITION_SIZE;
  const long long row_of_all = seq * num_heads + head;
  const long long first_place = row_of_all * gridDim.z, place = first_place + blockIdx.z;
  SCALAR* out_row = out + row_of_all * HEAD_SIZE;
  const auto all_warps = [&](int row) {
    return over_warps<NUM_WARPS>(warp_max, warp_sum, 1, &warp_out[0][row], HEAD_SIZE);
  };
  for (int row = threadIdx.x; row < HEAD_SIZE; row += NUM_THREADS) {
    Sums all = all_warps(row);
    all.of_values *= value_scale;
    if (last - first == 1) {
      out_row[row] = from_float<SCALAR>(all.average(sink));
    } else {
      if (row == 0) partial_stats[place] = make_float2(all.max, all.of_weights);
      partial_out[place * HEAD_SIZE + row] = all.of_values;
    }
  }
  if (last - first == 1 || !last_to_arrive(counters + row_of_all, last - first)) return;

  // 6. Reduce over the partitions: a warp adds up every NUM_WARPS-th, then as above.
  add_partitions<1, HEAD_SIZE, NUM_WARPS, HEAD_SIZE>(warp_max + warp, warp_sum + warp, warp_out[warp],
                                                     partial_out + first_place * HEAD_SIZE,
                                                     partial_stats + first_place, first + warp, last, gridDim.z);
  __syncthreads();
  for (int row = threadIdx.x; row < HEAD_SIZE; row += NUM_THREADS)
    out_row[row] = from_float<SCALAR>(all_warps(row).average(sink));
}
