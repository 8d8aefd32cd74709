// Tiles of ROWS tokens, or heads, for products of warp groups: parts of 64 elements side by side, [ROWS][64] each in the
// 128-byte swizzle. A warp copies tokens out of pages; all THREADS threads of a block make them ready for products.
#pragma once

#include "common/hopper.cuh"
#include "common/latent_rows.cuh"

// Where 16 bytes of a row lie in a tile, in bytes.
template <int ROWS> __device__ __forceinline__ int in_tile(int row, int chunk) {
  return (chunk / 8 * ROWS + row) * 128 + (chunk % 8 ^ row % 8) * 16;
}

// The tokens from `token` on, `count` of at most ROWS, in PARTS parts of 64 elements, by boxes of tokens of one page with
// rows of BYTES. A warp of each block of a cluster asks, a lane for a box, for its half of them, and both get all. They
// count at `full`, and so do `more` bytes.
template <int BLOCKS, int PAGE, int ROWS, int PARTS, int BYTES>
__device__ __forceinline__ void copy_tokens(unsigned char* tile, const TensorMap& cache, const int* table, int token,
                                            int count, Barrier& full, int more) {
  constexpr int SHARE = ROWS / BLOCKS, BOX = PAGE < SHARE ? PAGE : SHARE;
  const int boxes = (count + BOX - 1) / BOX, rank = BLOCKS > 1 ? cluster_rank() : 0, lane = threadIdx.x % 32;
  if (lane == 0) arrive_and_expect(full, boxes * BOX * PARTS * BYTES + more);
  __syncwarp();
  for (int i = lane * BLOCKS + rank; i < boxes * PARTS; i += 32 * BLOCKS) {
    const int part = i % PARTS, row = i / PARTS * BOX, page = table[(token + row) / PAGE];
    unsigned char* to = tile + (part * ROWS + row) * BYTES;
    if (BLOCKS > 1)
      multicast_tile(to, cache, part * 64, (token + row) % PAGE, page, full, (1 << BLOCKS) - 1);
    else
      load_tile(to, cache, part * 64, (token + row) % PAGE, page, full);
  }
}

// Zeros from row `first` on.
template <int ROWS, int PARTS, int THREADS> __device__ __forceinline__ void clear_rows(void* tile, int first) {
  for (int i = threadIdx.x; i < (ROWS - first) * PARTS * 8; i += THREADS)
    static_cast<uint4*>(tile)[(i % PARTS * ROWS + first) * 8 + i / PARTS] = make_uint4(0, 0, 0, 0);
  fence_async();
  __syncthreads();
}

// The values of stored rows of KEY elements, of which LATENT are codes; zeros from row `end` on.
template <typename Scalar, int LATENT, int KEY, int ROWS, int THREADS>
__device__ __forceinline__ void widen_rows(void* tile, const unsigned char* stored, int end) {
  constexpr int CHUNKS = KEY / 8;
  for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
    const int row = i / CHUNKS, chunk = i % CHUNKS;
    *reinterpret_cast<uint4*>(static_cast<unsigned char*>(tile) + in_tile<ROWS>(row, chunk)) =
        row < end ? values_of<Scalar, LATENT>(stored + row * row_of_codes(LATENT, KEY), chunk) : make_uint4(0, 0, 0, 0);
  }
  fence_async();
  __syncthreads();
}
