// Copy pages inside the caches of all layers at once: one block per (pair of pages, cache, chunk of the page).
// A page is bytes to this kernel, whatever its layout and dtype. Each thread has all its loads in flight, then stores.
//
//   base    an address; all distances from it are in steps of 16 bytes, on which every page starts
//   places  [num_caches]: where each cache starts, counted from base
//   pairs   [num_pairs, 2]: source page, destination page; no destination is another pair's source or destination
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
copy_blocks_vectors(Byte* __restrict__ base, const long long* __restrict__ places, const long long* __restrict__ pairs,
                    long long page_steps, int page_bytes) {
  // 1. Find the two pages: 64-bit arithmetic, as caches are larger than 2^31 bytes.
  const long long source = pairs[2 * (long long)blockIdx.x], destination = pairs[2 * (long long)blockIdx.x + 1];
  Byte* cache = base + places[blockIdx.y] * STEP;
  const Byte* from = cache + source * page_steps * STEP;
  Byte* to = cache + destination * page_steps * STEP;

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
