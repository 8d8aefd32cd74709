// Write the keys and values of new tokens into a paged cache of NVFP4: a thread per group of 16 elements, of the keys
// and of the values. It finds the group's largest magnitude in registers, so that nobody waits for anybody, and stores 8
// bytes of elements and one of scale: common/four_bits.cuh.
//
//   key, value    [num_tokens, num_kv_heads, HEAD_SIZE]                       tokens key_stride, value_stride apart
//   key_cache     [num_blocks, bytes of a page]                               pages key_page_stride apart; in a page the
//                 groups of a head lie head_groups apart, those of a token token_groups
//   value_cache   as key_cache                                                pages value_page_stride apart
//   slot_mapping  [num_tokens]: page * BLOCK_SIZE + offset, below 0 to skip the token
//   k_scale, v_scale: that of a head stands at head * head_stride; null is 1
//
// Tunables: NUM_THREADS per block, VEC_SIZE elements per load. Idea: vLLM, csrc/nvfp4_kv_cache_kernels.cu.
#include "common/four_bits.cuh"
#include "common/vectors.cuh"

#ifndef SCALAR
#define SCALAR __half
#define HEAD_SIZE 128
#define BLOCK_SIZE 16
#define NUM_THREADS 128
#define VEC_SIZE 8
#endif

using Vec = Vector<SCALAR, VEC_SIZE>;

constexpr int GROUPS = HEAD_SIZE / GROUP_SIZE;  // of a head

__device__ __forceinline__ void store_group(unsigned char* page, int page_groups, int group,
                                            const SCALAR* elements, float factor) {
  float values[GROUP_SIZE];
#pragma unroll
  for (int i = 0; i < GROUP_SIZE; i += VEC_SIZE) {
    Vec vec;
    vec.load(elements + i);
#pragma unroll
    for (int j = 0; j < VEC_SIZE; ++j) values[i + j] = to_float(vec.at[j]) * factor;
  }
  const Group stored = group_of(values);
  reinterpret_cast<uint2*>(page)[group] = stored.elements;
  page[8 * page_groups + group] = stored.scale;
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS) reshape_and_cache_scaled_groups(
    const SCALAR* __restrict__ key, const SCALAR* __restrict__ value,
    unsigned char* __restrict__ key_cache, unsigned char* __restrict__ value_cache,
    const long long* __restrict__ slot_mapping, const float* __restrict__ k_scale,
    const float* __restrict__ v_scale, int k_head_stride, int v_head_stride, int num_tokens,
    int num_kv_heads, int head_groups, int token_groups, int page_groups, long long key_stride,
    long long value_stride, long long key_page_stride, long long value_page_stride) {
  // 1. Find the group: neighbouring threads take neighbouring groups of a token.
  const long long index = (long long)blockIdx.x * NUM_THREADS + threadIdx.x;
  const long long token = index / (num_kv_heads * GROUPS);
  if (token >= num_tokens) return;
  const int in_token = index % (num_kv_heads * GROUPS), head = in_token / GROUPS;
  const long long slot = slot_mapping[token];
  if (slot < 0) return;
  const long long page = slot / BLOCK_SIZE;
  const int group =
      head * head_groups + (int)(slot % BLOCK_SIZE) * token_groups + in_token % GROUPS;

  // 2. Load, quantize and store the keys, then the values.
  const float key_factor = k_scale ? 1.f / k_scale[head * k_head_stride] : 1.f;
  const float value_factor = v_scale ? 1.f / v_scale[head * v_head_stride] : 1.f;
  store_group(key_cache + page * key_page_stride, page_groups, group,
              key + token * key_stride + in_token * GROUP_SIZE, key_factor);
  store_group(value_cache + page * value_page_stride, page_groups, group,
              value + token * value_stride + in_token * GROUP_SIZE, value_factor);
}
