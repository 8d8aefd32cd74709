// Bulk copies, products of warp groups and clusters as they are written; FAULT n plants a mistake.
#include "hopper.cuh"
#ifndef FAULT
#define FAULT 0
#endif

// y = 2 x by 1,024-byte copies through shared memory.
extern "C" __global__ void doubled(float* y, const float* x) {
  __shared__ alignas(16) float tile[256];
  __shared__ Barrier full;
  const int at = blockIdx.x * 256;
  if (threadIdx.x == 0) init(full, 1), fence_init();
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_and_expect(full, FAULT == 1 ? 2048 : 1024);
    load(tile, x + at, 1024, full);
  }
  if (FAULT != 2) wait(full, FAULT == 3 ? 1 : 0);
  tile[threadIdx.x] = 2 * tile[threadIdx.x];
  if (FAULT != 4) fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(y + at, tile, 1024);
    if (FAULT != 5 && FAULT != 6) wait_for_reads();
  }
  __syncthreads();
  if (FAULT == 6) tile[threadIdx.x] = 0;
  if (FAULT == 6 && threadIdx.x == 0) wait_for_reads();
}

// out[64][8] = A[64][16 * steps] B[8][16 * steps]^T: a producer warp keeps two stages full, a warp group multiplies.
extern "C" __global__ void pipeline(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* out, int steps) {
  __shared__ alignas(1024) char stage_a[2][64 * 128];
  __shared__ alignas(1024) char stage_b[2][8 * 128];
  __shared__ Barrier full[2], empty[2];
  const bool produces = threadIdx.x >= 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) init(full[s], 1), init(empty[s], 1);
    fence_init();
  }
  __syncthreads();
  if (produces) {
    if (threadIdx.x == 128) {
      for (int i = 0; i < steps; ++i) {
        const int s = i % 2;
        if (FAULT != 7) wait(empty[s], (i / 2 + 1) % 2);
        arrive_and_expect(full[s], 64 * 128 + 8 * 128);
        load_tile(stage_a[s], a, 64 * i, 0, full[s]);
        load_tile(stage_b[s], b, 64 * i, 0, full[s]);
      }
    }
    return;
  }
  float d[4] = {};
  for (int i = 0; i < steps; ++i) {
    const int s = i % 2;
    wait(full[s], i / 2 % 2);
    if (FAULT == 11) d[0] = i ? d[0] : 0;
    if (FAULT != 11) open_products();
    for (int k = 0; k < 4; ++k) multiply(d, descriptor(stage_a[s]) + 2 * k, descriptor(stage_b[s]) + 2 * k, i + k);
    commit_products();
    if (FAULT == 8 && threadIdx.x == 0) arrive(empty[s]);
    if (FAULT == 8 && i + 1 < steps) wait(full[(i + 1) % 2], (i + 1) / 2 % 2);
    if (FAULT == 12) d[1] *= 2;
    wait_for_products<0>();
    if (FAULT != 8 && threadIdx.x == 0) arrive(empty[s]);
  }
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int i = 0; i < 4; ++i) out[(row + i / 2 * 8) * 8 + column + i % 2] = d[i];
}

// The sum of a row by the blocks of a cluster: each adds up its part, the first one all of theirs.
extern "C" __global__ void __cluster_dims__(4, 1, 1) row_sums(float* sums, const float* x, int columns) {
  __shared__ float part;
  const unsigned rank = cluster_rank();
  const int row = blockIdx.x / 4, begin = rank * columns / 4;
  float sum = 0;
  for (int i = begin + threadIdx.x; i < begin + columns / 4; i += 32) sum += x[row * columns + i];
  for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x == 0) part = sum;
  if (FAULT != 9) cluster_barrier();
  if (rank == 0 && threadIdx.x == 0) {
    float total = 0;
    for (unsigned other = 0; other < 4; ++other) {
      float theirs;
      asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(theirs) : "r"(in_block(shared_address(&part), other)) : "memory");
      total += theirs;
    }
    sums[row] = total;
  }
  if (FAULT != 10) cluster_barrier();
}
