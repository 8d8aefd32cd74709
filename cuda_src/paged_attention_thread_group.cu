// Paged attention of one new token per sequence: one block per (query head, sequence), one warp per page.
// Inside a warp a *thread group* takes a token: its threads share the dot product of query and key, then add up
// by shuffles. The values need no groups: each thread reads a few tokens of one row of V and keeps that row's sum.
//
//   out         [num_seqs, num_heads, HEAD_SIZE]
//   query       [num_seqs, num_heads, HEAD_SIZE]                              rows query_stride apart
//   key_cache   [num_blocks, num_kv_heads, HEAD_SIZE / X, BLOCK_SIZE, X]      pages key_page_stride apart
//   value_cache [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]             pages value_page_stride apart
//   block_tables[num_seqs, max_blocks], seq_lens [num_seqs]
//   k_scale, v_scale of a quantized cache: see common/cache_scales.cuh
//
// Tunables: BLOCK_SIZE tokens per page, NUM_THREADS per block, THREAD_GROUP_SIZE threads per token,
// VEC_SIZE elements of a key and V_VEC_SIZE tokens of a value row per load. Idea: vLLM, csrc/attention.
#ifdef QUANTIZED  // an 8-bit CACHE; first, for templates find to_float of a built-in type only if it is declared before
#include "common/quantized.cuh"
#endif
#include "common/cache_scales.cuh"
#include "common/reductions.cuh"
#include "common/vectors.cuh"

#ifndef SCALAR  // what vLLM derives for fp16 and pages of 16 tokens
#define SCALAR __half
#define CACHE __half
#define HEAD_SIZE 128
#define BLOCK_SIZE 16
#define NUM_THREADS 128
#define THREAD_GROUP_SIZE 2
#define VEC_SIZE 4
#define V_VEC_SIZE 8
#define TOKEN_SCALES 0  // whether each token of a quantized cache has a scale of its own
#endif

// The largest divisor of `count` that is at most `limit`.
__device__ constexpr int largest_divisor(int count, int limit) {
  while (limit > 1 && (limit > count || count % limit != 0)) --limit;
  return limit;
}

constexpr int X = 16 / sizeof(CACHE);  // elements of one 16-byte step of the key layout
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int GROUPS_PER_WARP = WARP_SIZE / THREAD_GROUP_SIZE;
constexpr int TOKENS_PER_GROUP = BLOCK_SIZE / GROUPS_PER_WARP;
constexpr int KEY_VECS_PER_THREAD = HEAD_SIZE / (THREAD_GROUP_SIZE * VEC_SIZE);
constexpr int BYTES_IN_FLIGHT = sizeof(CACHE) == 1 ? 64 : 128;  // loads of a thread: as floats they fit in registers
constexpr int KEY_VECS_IN_FLIGHT = largest_divisor(KEY_VECS_PER_THREAD, BYTES_IN_FLIGHT / (VEC_SIZE * sizeof(CACHE)));
constexpr int LANES_PER_ROW = BLOCK_SIZE / V_VEC_SIZE;
constexpr int ROWS_PER_STEP = WARP_SIZE / LANES_PER_ROW;
constexpr int ROWS_PER_THREAD = (HEAD_SIZE + ROWS_PER_STEP - 1) / ROWS_PER_STEP;
constexpr int ROWS_IN_FLIGHT = largest_divisor(ROWS_PER_THREAD, BYTES_IN_FLIGHT / (V_VEC_SIZE * sizeof(CACHE)));
// Left alone, ptxas spills to reach an occupancy that nobody asked for: grant 128 registers, or 255 for many row sums.
constexpr int RESIDENT_THREADS = ROWS_PER_THREAD <= (sizeof(CACHE) == 1 ? 8 : 16) ? 512 : 256;
constexpr int MIN_BLOCKS = RESIDENT_THREADS > NUM_THREADS ? RESIDENT_THREADS / NUM_THREADS : 1;
constexpr float LOG2_E = 1.4426950408889634f;

using Cache = CACHE;
using Key = Vector<Cache, VEC_SIZE>;
using Value = Vector<Cache, V_VEC_SIZE>;

// Step 4 for one page, of which `count` tokens exist: rows[i] += weights . V[row i].
__device__ __forceinline__ void accumulate_page(float (&rows)[ROWS_PER_THREAD], const float* weights,
                                                const Cache* page, int lane, int count) {
  const int token = lane % LANES_PER_ROW * V_VEC_SIZE;
  if (token >= count) return;
  Vector<float, V_VEC_SIZE> weight;
  weight.load(weights + token);
#pragma unroll
  for (int first = 0; first < ROWS_PER_THREAD; first += ROWS_IN_FLIGHT) {
    Value value[ROWS_IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < ROWS_IN_FLIGHT; ++i) {
      const int row = lane / LANES_PER_ROW + (first + i) * ROWS_PER_STEP;
      if (HEAD_SIZE % ROWS_PER_STEP != 0 && row >= HEAD_SIZE) break;
      value[i].load(page + row * BLOCK_SIZE + token);
    }
    if (token + V_VEC_SIZE > count) {  // an unused slot may hold NaN: a weight of zero is not enough, 0 * NaN is NaN
#pragma unroll
      for (int i = 0; i < ROWS_IN_FLIGHT; ++i) value[i].keep(count - token);
    }
#pragma unroll
    for (int i = 0; i < ROWS_IN_FLIGHT; ++i) {
      if (HEAD_SIZE % ROWS_PER_STEP != 0 && lane / LANES_PER_ROW + (first + i) * ROWS_PER_STEP >= HEAD_SIZE) break;
      rows[first + i] += dot(weight, value[i]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS, MIN_BLOCKS)
paged_attention_thread_group(SCALAR* __restrict__ out, const SCALAR* __restrict__ query,
                             const Cache* __restrict__ key_cache, const Cache* __restrict__ value_cache,
                             const int* __restrict__ block_tables, const int* __restrict__ seq_lens,
#ifdef QUANTIZED
                             const float* __restrict__ k_scale, const float* __restrict__ v_scale, int k_slot_stride,
                             int k_head_stride, int v_slot_stride, int v_head_stride,
#endif
                             float scale, int num_kv_heads, int table_stride, long long query_stride,
                             long long key_page_stride, long long value_page_stride) {
  const int head = blockIdx.x, num_heads = gridDim.x, seq = blockIdx.y;
  const int kv_head = head / (num_heads / num_kv_heads);
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int seq_len = seq_lens[seq];
  const int num_pages = (seq_len + BLOCK_SIZE - 1) / BLOCK_SIZE;
  const int* table = block_tables + (long long)seq * table_stride;
#ifdef QUANTIZED
  const CacheScales<TOKEN_SCALES> key_scales{k_scale, k_slot_stride, kv_head * k_head_stride};
  const CacheScales<TOKEN_SCALES> value_scales{v_scale, v_slot_stride, kv_head * v_head_stride};
#else
  const CacheScales<false> key_scales, value_scales;
#endif

  __shared__ alignas(16) float scaled_query[HEAD_SIZE];
  __shared__ float warp_max[NUM_WARPS], warp_sum[NUM_WARPS];
  __shared__ float partial_out[NUM_WARPS][HEAD_SIZE];
  extern __shared__ __align__(16) float logits[];  // [num_pages * BLOCK_SIZE]

  // 1. Load the query once, in fp32, with what all scores have in common folded in, and the change to base 2.
  const float factor = scale * LOG2_E * key_scales.common();
  for (int i = threadIdx.x; i < HEAD_SIZE; i += NUM_THREADS)
    scaled_query[i] = to_float(query[seq * query_stride + head * HEAD_SIZE + i]) * factor;
  __syncthreads();

  // 2. Score: thread t of a group holds key vectors t, t + THREAD_GROUP_SIZE, ... of the group's token.
  const int group = lane / THREAD_GROUP_SIZE, group_lane = lane % THREAD_GROUP_SIZE;
  float max_score = -infinity();
  for (int page = warp; page < num_pages; page += NUM_WARPS) {
    const long long block = table[page];
    const Cache* keys = key_cache + block * key_page_stride + (long long)kv_head * (HEAD_SIZE * BLOCK_SIZE);
#pragma unroll 1
    for (int i = 0; i < TOKENS_PER_GROUP; ++i) {
      const int slot = group + i * GROUPS_PER_WARP;
      const int token = page * BLOCK_SIZE + slot;
      // Past the end read the last token again: no traffic, and no NaN of an unused slot.
      const int safe_slot = min(slot, seq_len - 1 - page * BLOCK_SIZE);
      float score = 0.f;
#pragma unroll 1  // a part of the key in registers at once: enough loads in flight, and no spills
      for (int first = 0; first < KEY_VECS_PER_THREAD; first += KEY_VECS_IN_FLIGHT) {
        Key key[KEY_VECS_IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < KEY_VECS_IN_FLIGHT; ++j) {
          const int element = (group_lane + (first + j) * THREAD_GROUP_SIZE) * VEC_SIZE;
          key[j].load(keys + element / X * (BLOCK_SIZE * X) + safe_slot * X + element % X);
        }
#pragma unroll
        for (int j = 0; j < KEY_VECS_IN_FLIGHT; ++j) {
          Vector<float, VEC_SIZE> q;
          q.load(scaled_query + (group_lane + (first + j) * THREAD_GROUP_SIZE) * VEC_SIZE);
          score += dot(q, key[j]);
        }
      }
      score = sum_over_lanes<1, THREAD_GROUP_SIZE>(score);
      score = token < seq_len ? score * key_scales.of(block * BLOCK_SIZE + safe_slot) : -infinity();
      if (group_lane == 0) logits[token] = score;
      max_score = fmaxf(max_score, score);
    }
  }

  // 3. Softmax without its division: weights exp(score - max), exactly zero past the end, and their sum. What step 4
  //    multiplies V with has the token's scale in it, the sum has not.
  max_score = max_over_lanes<THREAD_GROUP_SIZE, WARP_SIZE>(max_score);
  if (lane == 0) warp_max[warp] = max_score;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < NUM_WARPS; ++i) max_score = fmaxf(max_score, warp_max[i]);
  float sum = 0.f;
  for (int token = threadIdx.x; token < num_pages * BLOCK_SIZE; token += NUM_THREADS) {
    const float weight = exp2f(logits[token] - max_score);
    const long long slot = (long long)table[token / BLOCK_SIZE] * BLOCK_SIZE + token % BLOCK_SIZE;
    logits[token] = weight * (token < seq_len ? value_scales.of(slot) : 1.f);
    sum += weight;
  }
  sum = sum_over_lanes<1, WARP_SIZE>(sum);
  if (lane == 0) warp_sum[warp] = sum;
  __syncthreads();

  // 4. Accumulate: the same pages, each thread its rows of V.
  float rows[ROWS_PER_THREAD] = {};
  for (int page = warp; page < num_pages; page += NUM_WARPS) {
    const Cache* values =
        value_cache + table[page] * value_page_stride + (long long)kv_head * (HEAD_SIZE * BLOCK_SIZE);
    const int count = seq_len - page * BLOCK_SIZE;
    accumulate_page(rows, logits + page * BLOCK_SIZE, values, lane, count);
  }

  // 5. Reduce over the lanes of a row, then over the warps; divide once per row instead of once per token.
#pragma unroll
  for (int i = 0; i < ROWS_PER_THREAD; ++i) {
    const float row_sum = sum_over_lanes<1, LANES_PER_ROW>(rows[i]);
    const int row = lane / LANES_PER_ROW + i * ROWS_PER_STEP;
    if (lane % LANES_PER_ROW == 0 && row < HEAD_SIZE) partial_out[warp][row] = row_sum;
  }
  __syncthreads();
  float total = 0.f;
#pragma unroll
  for (int i = 0; i < NUM_WARPS; ++i) total += warp_sum[i];
  const float inverse = seq_len > 0 ? value_scales.common() / total : 0.f;
  for (int row = threadIdx.x; row < HEAD_SIZE; row += NUM_THREADS) {
    float value = 0.f;
#pragma unroll
    for (int i = 0; i < NUM_WARPS; ++i) value += partial_out[i][row];
    out[((long long)seq * num_heads + head) * HEAD_SIZE + row] = from_float<SCALAR>(value * inverse);
  }
}
