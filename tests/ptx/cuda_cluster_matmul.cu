// Matrix products by the blocks of a cluster, which share what each of them copied or summed up: c = a b^T.
//
//   c    [M, N] fp32
//   a, b [M, K], [N, K] fp16, as tensor maps in the 128-byte swizzle
//
// Blocks of 160 threads, four warps that multiply and one that copies; M, N and K are multiples of 64.
#include "hopper.cuh"

constexpr int TILE = 64, TILE_ELEMENTS = TILE * TILE, PRODUCER = 128, STAGES = 2;
#ifndef FAULT  // a mistake to plant: see test_cluster_matmul.py
#define FAULT 0
#endif

// What a lane has of the sums, by rows `stride` apart.
__device__ inline void write(float* tile, int stride, const float (&sums)[32]) {
  const int lane = threadIdx.x % 32;
  float* corner = tile + (threadIdx.x / 32 * 16 + lane / 4) * stride + lane % 4 * 2;
  for (int i = 0; i < 32; i += 2)
    *reinterpret_cast<float2*>(corner + i / 4 * 8 + i / 2 % 2 * 8 * stride) = make_float2(sums[i], sums[i + 1]);
}

__device__ inline void multiply_tile(float (&sums)[32], const __half* tile) {
  open_products();
  for (int part = 0; part < 4; ++part) multiply(sums, descriptor(tile) + 2 * part, descriptor(tile + TILE_ELEMENTS) + 2 * part);
  commit_products();
  wait_for_products<0>();
}

// Two blocks with 64 rows of c each and the same columns: each copies half a tile of b, to both. Clusters of 2 along x,
// the rows; boxes of a are [64, 64], of b [32, 64].
extern "C" __global__ void __launch_bounds__(160)
matmul_multicast(float* __restrict__ c, const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, int n, int k) {
  extern __shared__ __align__(1024) __half tiles[];  // [STAGES][a, b][TILE_ELEMENTS]
  __shared__ Barrier full[STAGES], empty[STAGES];
  const int row = blockIdx.x * TILE, column = blockIdx.y * TILE, steps = k / TILE;
  const unsigned rank = cluster_rank();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init(full[stage], 1), init(empty[stage], FAULT == 2 ? 1 : 2);
    if (FAULT != 7) fence_init();
  }
  if (FAULT == 1) __syncthreads();
  else cluster_barrier_relaxed();

  float sums[32] = {};
  if (threadIdx.x == PRODUCER) {
    for (int step = 0; step < steps; ++step) {
      const int stage = step % STAGES, half = TILE / 2;
      __half* tile = tiles + 2 * stage * TILE_ELEMENTS;
      wait_in_cluster(empty[stage], step / STAGES % 2 ^ 1);  // in both blocks
      arrive_and_expect(full[stage], (FAULT == 3 ? 3 : 4) * TILE_ELEMENTS);
      load_tile(tile, a, step * TILE, row, full[stage]);
      multicast_tile(tile + TILE_ELEMENTS + rank * half * TILE, b, step * TILE, column + rank * half, full[stage], 3);
    }
  } else if (threadIdx.x < PRODUCER) {
    for (int step = 0; step < steps; ++step) {
      const int stage = step % STAGES;
      wait_in_cluster(full[stage], step / STAGES % 2);
      multiply_tile(sums, tiles + 2 * stage * TILE_ELEMENTS);
      if (threadIdx.x < 2) arrive_in(empty[stage], FAULT == 2 ? rank : threadIdx.x);
    }
    write(c + row * (long long)n + column, n, sums);
  }
  __syncwarp();
  if (FAULT != 4) cluster_barrier();  // the other block still arrives here, and copies
}

// A tile of c by all blocks of a cluster along z, each with its part of K; then each block adds up some rows of all
// their sums. Boxes are [64, 64].
extern "C" __global__ void __launch_bounds__(160)
matmul_split_k(float* __restrict__ c, const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, int n, int k) {
  extern __shared__ __align__(1024) __half tiles[];  // [STAGES][a, b][TILE_ELEMENTS]
  __shared__ alignas(16) float partial[TILE_ELEMENTS];
  __shared__ Barrier full[STAGES], empty[STAGES];
  const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, blocks = gridDim.z;
  const int steps = k / TILE / blocks, first = cluster_rank() * steps;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init(full[stage], 1), init(empty[stage], 1);
    fence_init();
  }
  __syncthreads();

  if (threadIdx.x == PRODUCER) {
    for (int step = 0; step < steps; ++step) {
      const int stage = step % STAGES;
      __half* tile = tiles + 2 * stage * TILE_ELEMENTS;
      wait(empty[stage], step / STAGES % 2 ^ 1);
      arrive_and_expect(full[stage], 4 * TILE_ELEMENTS);
      load_tile(tile, a, (first + step) * TILE, row, full[stage]);
      load_tile(tile + TILE_ELEMENTS, b, (first + step) * TILE, column, full[stage]);
    }
  } else if (threadIdx.x < PRODUCER) {
    float sums[32] = {};
    for (int step = 0; step < steps; ++step) {
      const int stage = step % STAGES;
      wait(full[stage], step / STAGES % 2);
      multiply_tile(sums, tiles + 2 * stage * TILE_ELEMENTS);
      if (threadIdx.x == 0) arrive(empty[stage]);
    }
    write(partial, TILE, sums);
  }
  __syncwarp();
  if (FAULT == 5) __syncthreads();
  else cluster_barrier();

  const int rows = TILE / blocks, begin = cluster_rank() * rows;
  for (int i = threadIdx.x; i < rows * TILE / 4; i += 160) {
    const int r = begin + i / (TILE / 4), x = i % (TILE / 4) * 4;
    float4 total = make_float4(0, 0, 0, 0);
    for (int other = 0; other < blocks; ++other) {
      float4 theirs;
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(theirs.x), "=f"(theirs.y), "=f"(theirs.z), "=f"(theirs.w)
                   : "r"(in_block(shared_address(partial + r * TILE + x), other))
                   : "memory");
      total.x += theirs.x, total.y += theirs.y, total.z += theirs.z, total.w += theirs.w;
    }
    *reinterpret_cast<float4*>(c + (row + r) * (long long)n + column + x) = total;
  }
  __syncwarp();
  if (FAULT != 6) cluster_barrier();  // others still read
}
