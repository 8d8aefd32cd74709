// Write the keys and values of new tokens into a paged cache: one block per (tile of tokens, KV head).
// Layouts "nhd" and "hnd" keep a token's elements side by side and are copied as they are. Layout "x" turns them: a
// value's elements lie BLOCK_SIZE apart, so that a token alone writes 2 bytes into each sector of 32. There the tile
// goes through shared memory, and neighbouring lanes write neighbouring *tokens*: those of one page fill its sectors.
//
//   key, value   [num_tokens, num_kv_heads, HEAD_SIZE]                    tokens key_stride, value_stride apart
//   key_cache    "x": [num_blocks, num_kv_heads, HEAD_SIZE / X, BLOCK_SIZE, X]    pages key_page_stride apart
//   value_cache  "x": [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]           pages value_page_stride apart
//   slot_mapping [num_tokens]: page * BLOCK_SIZE + offset, below 0 to skip the token
//   k_scale, v_scale of a one-byte CACHE: that of (slot, head) stands at slot * slot_stride + head * head_stride
//
// A quantized cache holds codes of element / scale; the tile in shared memory does so already.
// Tunables: NUM_THREADS per block, TILE_TOKENS per block, VEC_SIZE elements per access, V_VEC_SIZE tokens of a value
// row per store where their slots follow each other ("x" only). Idea: vLLM, csrc/cache_kernels.cu, plus the tile.
#include "common/copies.cuh"
#ifdef QUANTIZED  // SCALAR is a floating-point type and CACHE has one byte; else both are words that are only moved
#include "common/quantize.cuh"
#endif

#ifndef SCALAR  // fp16 in layout "x"
#define SCALAR unsigned short
#define CACHE unsigned short
#define HEAD_SIZE 128
#define BLOCK_SIZE 16
#define LAYOUT_X 1
#define HEAD_STRIDE (HEAD_SIZE * BLOCK_SIZE)
#define TOKEN_STRIDE 0
#define NUM_THREADS 128
#define TILE_TOKENS 16
#define VEC_SIZE 8
#define V_VEC_SIZE 8
#endif

using Element = SCALAR;
using Cache = CACHE;
using Vec = Vector<Element, VEC_SIZE>;

constexpr int X = 16 / sizeof(Cache);          // elements of one 16-byte step of the key layout
constexpr int VECS = HEAD_SIZE / VEC_SIZE;     // of one token
constexpr int STEPS = HEAD_SIZE / X;           // 16-byte steps of one key in the cache
constexpr int ROW = HEAD_SIZE + X;             // of a tile in shared memory: 16 bytes more, against bank conflicts
constexpr int RUNS = TILE_TOKENS / V_VEC_SIZE; // groups of tokens that one store may cover

// What the cache holds of some elements: their bits, or their codes.
__device__ __forceinline__ Vector<Cache, VEC_SIZE> stored(const Vec& elements, float factor) {
#ifdef QUANTIZED
  return quantize<Cache>(elements, factor);
#else
  return elements;
#endif
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
reshape_and_cache_tiled(const Element* __restrict__ key, const Element* __restrict__ value,
                        Cache* __restrict__ key_cache, Cache* __restrict__ value_cache,
                        const long long* __restrict__ slot_mapping, const float* __restrict__ k_scale,
                        const float* __restrict__ v_scale, int k_slot_stride, int k_head_stride, int v_slot_stride,
                        int v_head_stride, int num_tokens, long long key_stride, long long value_stride,
                        long long key_page_stride, long long value_page_stride) {
  const int first = blockIdx.x * TILE_TOKENS, head = blockIdx.y;
  const int count = min(TILE_TOKENS, num_tokens - first);
  key += first * key_stride + head * HEAD_SIZE;
  value += first * value_stride + head * HEAD_SIZE;
  key_cache += (long long)head * HEAD_STRIDE;
  value_cache += (long long)head * HEAD_STRIDE;

  // 1. Load the slots, and of a quantized cache the scales, as what to multiply by.
  __shared__ long long slots[TILE_TOKENS];
  __shared__ float key_factors[TILE_TOKENS], value_factors[TILE_TOKENS];
  for (int i = threadIdx.x; i < TILE_TOKENS; i += NUM_THREADS) {
    const long long slot = i < count ? slot_mapping[first + i] : -1;
    slots[i] = slot;
#ifdef QUANTIZED
    key_factors[i] = slot >= 0 && k_scale ? 1.f / k_scale[slot * k_slot_stride + head * k_head_stride] : 1.f;
    value_factors[i] = slot >= 0 && v_scale ? 1.f / v_scale[slot * v_slot_stride + head * v_head_stride] : 1.f;
#endif
  }
  __syncthreads();

#if !LAYOUT_X
  // 2. Copy: neighbouring lanes take neighbouring vectors of a token, on both sides.
  for (int i = threadIdx.x; i < count * VECS; i += NUM_THREADS) {
    const int token = i / VECS, element = i % VECS * VEC_SIZE;
    const long long slot = slots[token];
    if (slot < 0) continue;
    const long long page = slot / BLOCK_SIZE, inside = slot % BLOCK_SIZE * TOKEN_STRIDE + element;
    Vec k, v;
    k.load(key + token * key_stride + element);
    v.load(value + token * value_stride + element);
    store_global(key_cache + page * key_page_stride + inside, stored(k, key_factors[token]));
    store_global(value_cache + page * value_page_stride + inside, stored(v, value_factors[token]));
  }
#else
  // 2. Load the tile, neighbouring lanes neighbouring vectors of a token; find the runs of slots that one store covers.
  __shared__ alignas(16) Cache keys[TILE_TOKENS * ROW], values[TILE_TOKENS * ROW];
  __shared__ long long run_start[RUNS];
  for (int i = threadIdx.x; i < count * VECS; i += NUM_THREADS) {
    const int token = i / VECS, element = i % VECS * VEC_SIZE;
    Vec k, v;
    k.load(key + token * key_stride + element);
    v.load(value + token * value_stride + element);
    store_shared(keys + token * ROW + element, stored(k, key_factors[token]));
    store_shared(values + token * ROW + element, stored(v, value_factors[token]));
  }
  bool loose = false;  // whether some token has a slot and is not part of a run
  for (int run = threadIdx.x; run < RUNS; run += NUM_THREADS) {
    const long long start = slots[run * V_VEC_SIZE];
    bool together = start >= 0 && start % V_VEC_SIZE == 0, any = start >= 0;
#pragma unroll
    for (int j = 1; j < V_VEC_SIZE; ++j) {
      together = together && slots[run * V_VEC_SIZE + j] == start + j;
      any = any || slots[run * V_VEC_SIZE + j] >= 0;
    }
    run_start[run] = together ? start : -1;
    loose = loose || (any && !together);
  }
  loose = __syncthreads_or(loose);

  // 3. Store the keys in steps of 16 bytes, neighbouring lanes neighbouring tokens: in a page these lie side by side.
  for (int i = threadIdx.x; i < TILE_TOKENS * STEPS; i += NUM_THREADS) {
    const int token = i % TILE_TOKENS, step = i / TILE_TOKENS;
    const long long slot = slots[token];
    if (slot < 0) continue;
    Vector<Cache, X> k;
    k.load(keys + token * ROW + step * X);
    store_global(key_cache + slot / BLOCK_SIZE * key_page_stride + (step * BLOCK_SIZE + slot % BLOCK_SIZE) * X, k);
  }

  // 4. Store the values: first the runs, V_VEC_SIZE tokens of a row at once.
  for (int i = threadIdx.x; i < RUNS * HEAD_SIZE; i += NUM_THREADS) {
    const int run = i % RUNS, element = i / RUNS;
    const long long start = run_start[run];
    if (start < 0) continue;
    Vector<Cache, V_VEC_SIZE> row;
#pragma unroll
    for (int j = 0; j < V_VEC_SIZE; ++j) row.at[j] = values[(run * V_VEC_SIZE + j) * ROW + element];
    store_global(value_cache + start / BLOCK_SIZE * value_page_stride + element * BLOCK_SIZE + start % BLOCK_SIZE, row);
  }
  if (!loose) return;

  // 5. Then the tokens that are part of no run, neighbouring lanes neighbouring tokens.
  for (int i = threadIdx.x; i < TILE_TOKENS * HEAD_SIZE; i += NUM_THREADS) {
    const int token = i % TILE_TOKENS, element = i / TILE_TOKENS;
    const long long slot = slots[token];
    if (slot < 0 || run_start[token / V_VEC_SIZE] >= 0) continue;
    value_cache[slot / BLOCK_SIZE * value_page_stride + element * BLOCK_SIZE + slot % BLOCK_SIZE] =
        values[token * ROW + element];
  }
#endif
}
