// The dequantization scales of the keys, or of the values, of one KV head: one for all of its tokens, or PER_TOKEN one
// for each slot, slot being page * BLOCK_SIZE + offset. The scale of (slot, KV head) stands at slot * slot_stride +
// head * head_stride. Without a pointer every scale is 1.
#pragma once

template <bool PER_TOKEN> struct CacheScales {
  const float* scales = nullptr;
  int slot_stride = 0;
  int of_kv_head = 0;  // head * head_stride

  // What all tokens have in common, a factor to apply once.
  __device__ __forceinline__ float common() const { return scales && !PER_TOKEN ? scales[of_kv_head] : 1.f; }

  // What is left for the token in a slot; an unused slot may hold NaN here too.
  __device__ __forceinline__ float of(long long slot) const {
    return scales && PER_TOKEN ? scales[slot * slot_stride + of_kv_head] : 1.f;
  }
};
