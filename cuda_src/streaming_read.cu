// Read memory once, in a stream, and do next to nothing with it: how fast this GPU can read at all. Neighbouring lanes
// load neighbouring 16 bytes; every thread has UNROLL such loads under way before it uses the first.
//
//   data  [count] of 16 bytes, count a multiple of UNROLL * NUM_THREADS
//   out   [1] the sum of all 32-bit words modulo 2^32: so that no load can be left out, and the result be checked
//
// Tunables: NUM_THREADS per block, UNROLL, and the number of blocks, which take the chunks in turn.
#include "common/reductions.cuh"

#ifndef UNROLL
#define UNROLL 8
#define NUM_THREADS 256
#endif

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
streaming_read(unsigned* __restrict__ out, const uint4* __restrict__ data, long long count) {
  constexpr int CHUNK = UNROLL * NUM_THREADS;
  unsigned sum = 0;
  for (long long start = (long long)blockIdx.x * CHUNK; start < count; start += (long long)gridDim.x * CHUNK) {
    // 1. Load: all before the first use.
    uint4 loaded[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) loaded[i] = __ldcs(data + start + i * NUM_THREADS + threadIdx.x);
    // 2. Accumulate.
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) sum += loaded[i].x + loaded[i].y + loaded[i].z + loaded[i].w;
  }
  // 3. Reduce: over the lanes, then one addition per warp.
#pragma unroll
  for (int lane = WARP_SIZE / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, lane);
  if (threadIdx.x % WARP_SIZE == 0) atomicAdd(out, sum);
}
