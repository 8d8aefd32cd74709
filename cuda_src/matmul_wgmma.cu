// A matrix product as Hopper's are written: one warp copies tiles (TMA), four warps multiply them (wgmma).
//
//   c    [M, N] fp32, by its row stride N
//   a, b [M, K], [N, K] fp16, as tensor maps with boxes of [64, 64] in the 128-byte swizzle: c = a b^T
//
// One block of 160 threads for each 64 x 64 of c; M, N and K are multiples of 64. STAGES: pairs of tiles that are under
// way or in use; dynamic shared memory: STAGES * 16 KiB.
#include "common/hopper.cuh"

#ifndef STAGES
#define STAGES 4
#endif

constexpr int TILE = 64, TILE_ELEMENTS = TILE * TILE, PRODUCER = 128;

extern "C" __global__ void __launch_bounds__(160)
matmul_wgmma(float* __restrict__ c, const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, int n,
             int k) {
  extern __shared__ __align__(1024) __half tiles[];  // [STAGES][a, b][TILE_ELEMENTS]
  __shared__ Barrier full[STAGES], empty[STAGES];
  const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, steps = k / TILE;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init(full[stage], 1), init(empty[stage], 1);
    fence_init();
  }
  __syncthreads();

  int stage = 0, parity = 0;
  if (threadIdx.x >= PRODUCER) {
    if (threadIdx.x > PRODUCER) return;
    for (int step = 0; step < steps; ++step) {
      __half* tile = tiles + 2 * stage * TILE_ELEMENTS;
      wait(empty[stage], parity ^ 1);
      arrive_and_expect(full[stage], 2 * TILE_ELEMENTS * sizeof(__half));
      load_tile(tile, a, step * TILE, row, full[stage]);
      load_tile(tile + TILE_ELEMENTS, b, step * TILE, column, full[stage]);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    return;
  }

  float sums[32] = {};
  int before = 0;  // the stage of the step before, which the products under way no longer read
  for (int step = 0; step < steps; ++step) {
    const __half* tile = tiles + 2 * stage * TILE_ELEMENTS;
    wait(full[stage], parity);
    open_products();
    for (int part = 0; part < 4; ++part)
      multiply(sums, descriptor(tile) + 2 * part, descriptor(tile + TILE_ELEMENTS) + 2 * part);
    commit_products();
    wait_for_products<1>();
    if (threadIdx.x == 0 && step) arrive(empty[before]);
    before = stage;
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  wait_for_products<0>();

  const int lane = threadIdx.x % 32;
  float* corner = c + (row + threadIdx.x / 32 * 16 + lane / 4) * (long long)n + column + lane % 4 * 2;
  for (int i = 0; i < 32; i += 2) {
    float2 pair = make_float2(sums[i], sums[i + 1]);
    *reinterpret_cast<float2*>(corner + i / 4 * 8 + i / 2 % 2 * 8 * (long long)n) = pair;
  }
}
