// Read tokens out of a paged cache, sequence after sequence: one block per (tile of tokens, KV head, sequence).
// Layouts "nhd" and "hnd" keep a token's elements side by side. Layout "x" turned them, so there the tile goes through
// shared memory: neighbouring lanes read neighbouring tokens, then write neighbouring elements.
//
//   keys, values [num_tokens, num_kv_heads, HEAD_SIZE]; sequence i begins at starts[i]
//   key_cache    "x": [num_blocks, num_kv_heads, HEAD_SIZE / X, BLOCK_SIZE, X]    pages key_page_stride apart
//   value_cache  "x": [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]           pages value_page_stride apart
//   block_tables [num_seqs, max_blocks], seq_lens, starts [num_seqs]
//   k_scale, v_scale of a one-byte CACHE: that of (slot, head) stands at slot * slot_stride + head * head_stride
//
// Tunables: NUM_THREADS per block, TILE_TOKENS per block, VEC_SIZE elements per store, V_VEC_SIZE tokens of a value row
// per load ("x" only). It is reshape_and_cache_tiled.cu the other way round.
#include "common/copies.cuh"
#ifdef QUANTIZED  // SCALAR is a floating-point type and CACHE has one byte; else both are words that are only moved
#include "common/quantized.cuh"
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
using Vec = Vector<Cache, VEC_SIZE>;

constexpr int X = 16 / sizeof(Cache);           // elements of one 16-byte step of the key layout
constexpr int VECS = HEAD_SIZE / VEC_SIZE;      // of one token
constexpr int STEPS = HEAD_SIZE / X;            // 16-byte steps of one key in the cache
constexpr int ROW = HEAD_SIZE + X;              // of a tile in shared memory: 16 bytes more, against bank conflicts
constexpr int RUNS = TILE_TOKENS / V_VEC_SIZE;  // groups of tokens that one load covers

// What elements of the cache stand for: their bits, or code * scale.
__device__ __forceinline__ Vector<Element, VEC_SIZE> read(const Vec& elements, float scale) {
#ifdef QUANTIZED
  Vector<Element, VEC_SIZE> values;
#pragma unroll
  for (int i = 0; i < VEC_SIZE; ++i) values.at[i] = from_float<Element>(to_float(elements.at[i]) * scale);
  return values;
#else
  return elements;
#endif
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
gather_cache_tiled(Element* __restrict__ keys, Element* __restrict__ values, const Cache* __restrict__ key_cache,
                   const Cache* __restrict__ value_cache, const int* __restrict__ block_tables,
                   const int* __restrict__ seq_lens, const long long* __restrict__ starts,
                   const float* __restrict__ k_scale, const float* __restrict__ v_scale, int k_slot_stride,
                   int k_head_stride, int v_slot_stride, int v_head_stride, long long table_stride, int num_tokens,
                   long long key_page_stride, long long value_page_stride) {
  const int head = blockIdx.y, seq = blockIdx.z, first = blockIdx.x * TILE_TOKENS;
  const long long start = starts[seq] + first;
  // Never past the end of the result, whatever the lengths say.
  const int count = (int)min((long long)min(TILE_TOKENS, seq_lens[seq] - first), num_tokens - start);
  if (count <= 0) return;
  const int* table = block_tables + seq * table_stride;
  keys += (start * gridDim.y + head) * HEAD_SIZE;
  values += (start * gridDim.y + head) * HEAD_SIZE;
  key_cache += (long long)head * HEAD_STRIDE;
  value_cache += (long long)head * HEAD_STRIDE;

  // 1. Find the slots, and of a quantized cache the scales.
  __shared__ long long slots[TILE_TOKENS];
  __shared__ float key_scales[TILE_TOKENS], value_scales[TILE_TOKENS];
  for (int i = threadIdx.x; i < count; i += NUM_THREADS) {
    const long long slot = (long long)table[(first + i) / BLOCK_SIZE] * BLOCK_SIZE + (first + i) % BLOCK_SIZE;
    slots[i] = slot;
#ifdef QUANTIZED
    key_scales[i] = k_scale ? k_scale[slot * k_slot_stride + head * k_head_stride] : 1.f;
    value_scales[i] = v_scale ? v_scale[slot * v_slot_stride + head * v_head_stride] : 1.f;
#endif
  }
  __syncthreads();

#if LAYOUT_X
  // 2. Load the tile: keys in steps of 16 bytes, neighbouring lanes neighbouring tokens; values V_VEC_SIZE tokens of a
  //    row at once, which all lie in one page. Slots past the end may be read and are not written.
  __shared__ alignas(16) Cache key_tile[TILE_TOKENS * ROW], value_tile[TILE_TOKENS * ROW];
  for (int i = threadIdx.x; i < TILE_TOKENS * STEPS; i += NUM_THREADS) {
    const int token = i % TILE_TOKENS, step = i / TILE_TOKENS;
    if (token >= count) continue;
    const long long slot = slots[token];
    Vector<Cache, X> k;
    k.load(key_cache + slot / BLOCK_SIZE * key_page_stride + (step * BLOCK_SIZE + slot % BLOCK_SIZE) * X);
    store_shared(key_tile + token * ROW + step * X, k);
  }
  for (int i = threadIdx.x; i < RUNS * HEAD_SIZE; i += NUM_THREADS) {
    const int token = i % RUNS * V_VEC_SIZE, element = i / RUNS;
    if (token >= count) continue;
    const long long slot = slots[token];
    Vector<Cache, V_VEC_SIZE> row;
    row.load(value_cache + slot / BLOCK_SIZE * value_page_stride + element * BLOCK_SIZE + slot % BLOCK_SIZE);
#pragma unroll
    for (int j = 0; j < V_VEC_SIZE; ++j) value_tile[(token + j) * ROW + element] = row.at[j];
  }
  __syncthreads();
#endif

  // 3. Store: neighbouring lanes take neighbouring vectors of a token.
  for (int i = threadIdx.x; i < count * VECS; i += NUM_THREADS) {
    const int token = i / VECS, element = i % VECS * VEC_SIZE;
    Vec k, v;
#if LAYOUT_X
    k.load(key_tile + token * ROW + element);
    v.load(value_tile + token * ROW + element);
#else
    const long long page = slots[token] / BLOCK_SIZE, inside = slots[token] % BLOCK_SIZE * TOKEN_STRIDE + element;
    k.load(key_cache + page * key_page_stride + inside);
    v.load(value_cache + page * value_page_stride + inside);
#endif
    const long long place = (long long)token * gridDim.y * HEAD_SIZE + element;
    store_global(keys + place, read(k, key_scales[token]));
    store_global(values + place, read(v, value_scales[token]));
  }
}
