// Gather the keys and values of sequences side by side from a paged cache of NVFP4: a thread per group of 16 elements,
// of the keys and of the values, which it dequantizes in registers.
//
//   keys, values  [num_tokens, num_kv_heads, HEAD_SIZE]; sequence i begins at starts[i]
//   key_cache     [num_blocks, bytes of a page]                               pages key_page_stride apart; in a page the
//                 groups of a head lie head_groups apart, those of a token token_groups: common/four_bits.cuh
//   value_cache   as key_cache                                                pages value_page_stride apart
//   block_tables  [num_seqs, max_blocks], seq_lens [num_seqs]
//   k_scale, v_scale: that of a head stands at head * head_stride; null is 1
//
// Tunables: NUM_THREADS per block.
#include "common/copies.cuh"
#include "common/four_bits.cuh"

#ifndef SCALAR
#define SCALAR __half
#define HEAD_SIZE 128
#define BLOCK_SIZE 16
#define NUM_THREADS 128
#endif

constexpr int GROUPS = HEAD_SIZE / GROUP_SIZE;  // of a head
constexpr int WIDTH = 16 / sizeof(SCALAR);      // elements of a store

__device__ __forceinline__ void load_group(SCALAR* out, const unsigned char* page, int page_groups, int group,
                                           float scale) {
  float values[GROUP_SIZE];
  widen(reinterpret_cast<const uint2*>(page)[group], values);
  const float own = scale_of(page[8 * page_groups + group]) * E2M1_UNIT;  // products so far are exact
#pragma unroll
  for (int i = 0; i < GROUP_SIZE; i += WIDTH) {
    Vector<SCALAR, WIDTH> vec;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) vec.at[j] = from_float<SCALAR>(values[i + j] * own * scale);
    store_global(out + i, vec);
  }
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
gather_cache_scaled_groups(SCALAR* __restrict__ keys, SCALAR* __restrict__ values,
                           const unsigned char* __restrict__ key_cache, const unsigned char* __restrict__ value_cache,
                           const int* __restrict__ block_tables, const int* __restrict__ seq_lens,
                           const long long* __restrict__ starts, const float* __restrict__ k_scale,
                           const float* __restrict__ v_scale, int k_head_stride, int v_head_stride, int num_tokens,
                           int num_kv_heads, int head_groups, int token_groups, int page_groups, int table_stride,
                           long long key_page_stride, long long value_page_stride) {
  // 1. Find the group. Never past the end of the result, whatever the lengths say.
  const int seq = blockIdx.y;
  const long long index = (long long)blockIdx.x * NUM_THREADS + threadIdx.x;
  const long long token = index / (num_kv_heads * GROUPS);
  if (token >= min((long long)seq_lens[seq], num_tokens - starts[seq])) return;
  const int in_token = index % (num_kv_heads * GROUPS), head = in_token / GROUPS;
  const long long page = block_tables[seq * (long long)table_stride + token / BLOCK_SIZE];
  const int group = head * head_groups + (int)(token % BLOCK_SIZE) * token_groups + in_token % GROUPS;

  // 2. Load, dequantize and store the keys, then the values.
  const long long place = ((starts[seq] + token) * num_kv_heads * GROUPS + in_token) * GROUP_SIZE;
  load_group(keys + place, key_cache + page * key_page_stride, page_groups, group,
             k_scale ? k_scale[head * k_head_stride] : 1.f);
  load_group(values + place, value_cache + page * value_page_stride, page_groups, group,
             v_scale ? v_scale[head * v_head_stride] : 1.f);
}
