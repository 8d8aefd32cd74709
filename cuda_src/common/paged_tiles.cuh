// Tiles of tokens of a paged cache on their way into shared memory.
#pragma once

#include "common/reductions.cuh"
#include "common/tensor_cores.cuh"

// TOKENS rows of one KV head, of K or of V. A row is whole steps of 16 elements, in exchanged chunks of 16 bytes.
template <typename Cache, int SIZE, int PAGE_TOKENS, int TOKENS> struct PagedTile {
  static constexpr int ROW = SIZE * sizeof(Cache), CHUNKS = (SIZE + 15) / 16 * sizeof(Cache);
  static constexpr int BYTES = TOKENS * CHUNKS * 16;
  static constexpr int COPY = ROW % 16 ? 8 : 16, COPIES = CHUNKS * 16 / COPY;  // bytes of a copy, copies of a row
  static constexpr int RUN_TOKENS = TOKENS < PAGE_TOKENS ? TOKENS : PAGE_TOKENS;  // in one page
  static constexpr int RUN_COPIES = RUN_TOKENS * COPIES;

  // Start copying tokens [start, start + TOKENS) by a warp; tokens outside [begin, end) become zeros, because an
  // unused slot may hold NaN, and 0 * NaN is NaN. Token 0 is the first one of page pages[0].
  static __device__ __forceinline__ void copy(unsigned tile, const Cache* cache, const int* pages,
                                              long long page_stride, int token_stride, int start, int begin, int end) {
    const int lane = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int run = 0; run < TOKENS; run += RUN_TOKENS) {
      const unsigned token = start + run;
      const Cache* rows = cache + pages[token / PAGE_TOKENS] * page_stride + token % PAGE_TOKENS * token_stride;
#pragma unroll
      for (int i = 0; i < RUN_COPIES; i += WARP_SIZE) {
        const int row = (i + lane) / COPIES, at = (i + lane) % COPIES * COPY;
        if (RUN_COPIES % WARP_SIZE && i + lane >= RUN_COPIES) break;
        const bool inside = token + row - begin < (unsigned)(end - begin) && at < ROW;
        copy_async<COPY>(tile + swizzled<CHUNKS>(run + row, at / 16) + at % 16,
                         rows + row * token_stride + at / (int)sizeof(Cache), inside ? COPY : 0);
      }
    }
  }

  // The same for TOKENS scales, of which a page holds one per token.
  static __device__ __forceinline__ void copy_scales(unsigned to, const float* scales, const int* pages,
                                                     long long page_stride, int token_stride, int start, int begin,
                                                     int end) {
    const int lane = threadIdx.x % WARP_SIZE;
    const unsigned token = start + lane;
    if (lane >= TOKENS) return;
    copy_async<4>(to + 4 * lane, scales + pages[token / PAGE_TOKENS] * page_stride + token % PAGE_TOKENS * token_stride,
                  token - begin < (unsigned)(end - begin) ? 4 : 0);
  }
};
