// Rows of new tokens over a paged cache: which sequence a tile of them is of, what they see, and
// the keys and values that a block of threads copies for them.
#pragma once

#include "common/reductions.cuh"
#include "common/tensor_cores.cuh"

constexpr int MOST_DRAFTS = 64;  // the bits of a mask

// The sequence of a tile of BLOCK_Q tokens: those of sequence i begin with number cu_seqlens_q[i] /
// BLOCK_Q + i.
template <int BLOCK_Q>
__device__ __forceinline__ int sequence_of(const int* cu_seqlens_q, int num_seqs, int tile) {
  int low = 0, high = num_seqs;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (cu_seqlens_q[middle] / BLOCK_Q + middle <= tile)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// A new token after `context` tokens, and what it sees: the tokens up to its position, or with
// MASKED (whose mask is null for a causal sequence) of the drafts those in its mask. Its position
// is that in its own continuation.
template <bool MASKED>
struct NewToken {
  int position;
  unsigned long long drafts;
  bool in_tree;

  // Token `at` of the new ones; `masks` are those of its sequence.
  __device__ __forceinline__ void place(int context, int at, const long long* masks) {
    position = context + at, in_tree = MASKED && masks;
    if (!in_tree) return;
    drafts = masks[at] & ((2ull << at) - 1);
    position = context + __popcll(drafts) - 1;
  }

  __device__ __forceinline__ bool sees(int token, int context, int window) const {
    const int draft = token - context;
    if (!in_tree || draft < 0) return token <= position && token > position - window;
    return draft < MOST_DRAFTS && (drafts >> draft & 1) && __popcll(drafts >> draft) <= window;
  }
};

// TOKENS rows of one KV head, of K and after them of V, each of whole steps of 16 elements in
// exchanged chunks.
template <typename Scalar, int SIZE, int PAGE_TOKENS, int TOKENS, int THREADS>
struct PagedPair {
  static constexpr int CHUNKS = (SIZE + 15) / 16 * 2, BYTES = TOKENS * CHUNKS * 16;
  static constexpr int COPIES = (TOKENS * CHUNKS + THREADS - 1) / THREADS;  // of a thread, of keys or of values
  static constexpr int AT_ONCE = COPIES < 4 ? COPIES : 4;                   // whose pages are looked up together

  const Scalar *keys, *values;
  const int* table;
  long long key_page_stride, value_page_stride;
  int token_stride, begin, end;

  // Start copying tokens [start, start + TOKENS) by all threads. Those outside [begin, end) become
  // zeros, because an unused slot may hold NaN, and 0 * NaN is NaN.
  __device__ __forceinline__ void copy(unsigned tile, int start) const {
#pragma unroll 1
    for (int first = 0; first < COPIES; first += AT_ONCE) {
      int page[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const int place = (first + i) * THREADS + threadIdx.x, token = start + place / CHUNKS;
        const bool inside = place < TOKENS * CHUNKS && token >= begin && token < end;
        page[i] = inside && place % CHUNKS * 8 < SIZE ? table[token / PAGE_TOKENS] : -1;
      }
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const int place = (first + i) * THREADS + threadIdx.x, row = place / CHUNKS, chunk = place % CHUNKS;
        if (place >= TOKENS * CHUNKS) break;
        const int in_page = (start + row) % PAGE_TOKENS * token_stride + chunk * 8, bytes = page[i] < 0 ? 0 : 16;
        const unsigned to = tile + swizzled<CHUNKS>(row, chunk);
        copy_async<16>(to, keys + (bytes ? page[i] * key_page_stride + in_page : 0), bytes);
        copy_async<16>(to + BYTES, values + (bytes ? page[i] * value_page_stride + in_page : 0), bytes);
      }
    }
  }
};
