// Copy pages of the caches of all layers at once: one block per (pair of pages, cache, chunk of the page).
// A page is bytes to this kernel, whatever its layout and dtype. Each thread has all its loads in flight, then stores.
//
//   sources, targets  two addresses, the same for copies inside the caches; all distances from them are in steps of 16
//                     bytes, on which every page starts
//   source_places, target_places  [num_caches]: where each cache starts, counted from there
//   pairs   [num_pairs, 2]: source page, destination page; no byte that is written is read by another pair
//
// Tunables: NUM_THREADS per block, VEC_BYTES per access, VECS_PER_THREAD loads in flight. Idea: vLLM, cache_kernels.cu.
#include "common/copies.cuh"

#ifndef VEC_BYTES
#define NUM_THREADS 128
#define VEC_BYTES 16
#define VECS_PER_THREAD 4
#endif

using Byte = unsigned char;
using Vec = Vector<Byte, VEC_BYTES>;
constexpr int STEP = 16;
constexpr int CHUNK = NUM_THREADS * VECS_PER_THREAD * VEC_BYTES;

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
copy_blocks_vectors(const Byte* sources, Byte* targets, const long long* __restrict__ source_places,
                    const long long* __restrict__ target_places, const long long* __restrict__ pairs,
                    long long source_page_steps, long long target_page_steps, int page_bytes) {
  // 1. Find the two pages: 64-bit arithmetic, as caches are larger than 2^31 bytes.
  const long long source = pairs[2 * (long long)blockIdx.x], destination = pairs[2 * (long long)blockIdx.x + 1];
  const Byte* __restrict__ from = sources + (source_places[blockIdx.y] + source * source_page_steps) * STEP;
  Byte* __restrict__ to = targets + (target_places[blockIdx.y] + destination * target_page_steps) * STEP;

  // 2. Load: neighbouring lanes take neighbouring vectors.
  const int first = blockIdx.z * CHUNK + threadIdx.x * VEC_BYTES;
  Vec vecs[VECS_PER_THREAD];
#pragma unroll
  for (int i = 0; i < VECS_PER_THREAD; ++i) {
    const int offset = first + i * (NUM_THREADS * VEC_BYTES);
    if (offset < page_bytes) vecs[i].load(from + offset);
  }

  // 3. Store.
#pragma unroll
  for (int i = 0; i < VECS_PER_THREAD; ++i) {
    const int offset = first + i * (NUM_THREADS * VEC_BYTES);
    if (offset < page_bytes) store_global(to + offset, vecs[i]);
  }
}
