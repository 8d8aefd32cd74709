// A product of block-scaled matrices as Blackwell's are written: one thread copies tiles and scales (TMA), one asks for
// products (tcgen05), four warps store what is in tensor memory then; and what quantizes a matrix for it.
//
//   c        [M, N] fp32, by its row stride N: c = (a scales) (b scales)^T
//   a, b     [M, K], [N, K] of codes, as tensor maps of bytes with boxes of [128, 128] in the 128-byte swizzle
//   a_scales, b_scales  for each 128 rows and then for each four scales along K 512 bytes: row r of the 128 has bytes
//            16 (r % 32) + 4 (r / 32) and the next three
//
//   mxfp8    elements e4m3, a scale 2^(code - 127) for 32 of them (OCP Microscaling Formats, 2023); K a multiple of 128
//   nvfp4    elements e2m1, two in a byte, the first in its lower half; a scale in e4m3 for 16; K a multiple of 256
//
// One block of 192 threads for each 128 x 128 of c; M and N are multiples of 128. STAGES: pairs of tiles that are under
// way or in use; dynamic shared memory: STAGES * (32768 + scales) bytes, of scales 1024 or 4096.
#include "common/blackwell.cuh"

#include <cuda_fp8.h>

#ifndef STAGES
#define STAGES 3
#endif

constexpr int TILE = 128, TILE_BYTES = TILE * 128, SCALES = 512, PRODUCTS_PER_TILE = 4;
constexpr int COPIES = 4, PRODUCTS = 5;  // warps
constexpr int TENSOR_COLUMNS = 256;      // sums, then scales of a, then scales of b

// GROUPS: 512 bytes of scales for 128 bytes of 128 rows.
template <bool FP4, int GROUPS>
__device__ __forceinline__ void matmul(float* c, const TensorMap& a, const TensorMap& b, const unsigned char* a_scales,
                                       const unsigned char* b_scales, int n, int row_bytes) {
  extern __shared__ __align__(1024) unsigned char tiles[];  // [STAGES][a, b][TILE_BYTES]
  unsigned char* scales = tiles + STAGES * 2 * TILE_BYTES;  // [STAGES][a, b][GROUPS][SCALES]
  __shared__ Barrier full[STAGES], empty[STAGES], done;
  __shared__ unsigned tensor_memory;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = row_bytes / 128;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init(full[stage], 1), init(empty[stage], 1);
    init(done, 1);
    fence_init();
  }
  if (warp == PRODUCTS) allocate_columns<TENSOR_COLUMNS>(tensor_memory);
  __syncthreads();
  const unsigned sums = tensor_memory, scales_of_a = sums + TILE, scales_of_b = scales_of_a + 4 * GROUPS;

  if (warp == COPIES && lane == 0) {
    int stage = 0, parity = 0;
    for (int step = 0; step < steps; ++step) {
      unsigned char *tile = tiles + 2 * stage * TILE_BYTES, *own = scales + 2 * stage * GROUPS * SCALES;
      wait(empty[stage], parity ^ 1);
      arrive_and_expect(full[stage], 2 * (TILE_BYTES + GROUPS * SCALES));
      load_tile(tile, a, step * 128, blockIdx.y * TILE, full[stage]);
      load_tile(tile + TILE_BYTES, b, step * 128, blockIdx.x * TILE, full[stage]);
      const auto from = [&](unsigned tile) { return ((long long)tile * steps + step) * GROUPS * SCALES; };
      load_bytes(own, a_scales + from(blockIdx.y), GROUPS * SCALES, full[stage]);
      load_bytes(own + GROUPS * SCALES, b_scales + from(blockIdx.x), GROUPS * SCALES, full[stage]);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }
  if (warp == PRODUCTS && lane == 0) {
    int stage = 0, parity = 0;
    for (int step = 0; step < steps; ++step) {
      unsigned char *tile = tiles + 2 * stage * TILE_BYTES, *own = scales + 2 * stage * GROUPS * SCALES;
      wait(full[stage], parity);
      for (int group = 0; group < GROUPS; ++group) {
        copy_scales(scales_of_a + 4 * group, own + group * SCALES);
        copy_scales(scales_of_b + 4 * group, own + (GROUPS + group) * SCALES);
      }
#pragma unroll
      for (int part = 0; part < PRODUCTS_PER_TILE; ++part) {
        const unsigned long long of_a = tile_of(tile) + 2 * part, of_b = tile_of(tile + TILE_BYTES) + 2 * part;
        if constexpr (FP4)
          multiply_nvfp4(sums, of_a, of_b, scaled_shape(TILE, TILE, true), scales_of_a + 4 * part,
                         scales_of_b + 4 * part, step + part > 0);
        else
          multiply_mxfp8(sums, of_a, of_b, scaled_shape(TILE, TILE, false, part), scales_of_a, scales_of_b,
                         step + part > 0);
      }
      arrive_after_products(empty[stage]);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    arrive_after_products(done);
  }
  __syncwarp();
  if (warp < COPIES) {
    float* row = c + (blockIdx.y * TILE + threadIdx.x) * (long long)n + blockIdx.x * TILE;
    wait(done, 0);
    fence_after_sync();
    for (int i = 0; i < TILE; i += 32) {
      float sum[32];
      load_columns(sum, sums + (warp * 32 << 16) + i);
      wait_for_loads(sum);
#pragma unroll
      for (int j = 0; j < 32; j += 4)
        *reinterpret_cast<float4*>(row + i + j) = make_float4(sum[j], sum[j + 1], sum[j + 2], sum[j + 3]);
    }
    fence_before_sync();
  }
  __syncthreads();
  if (warp == PRODUCTS) free_columns<TENSOR_COLUMNS>(sums);
}

extern "C" __global__ void __launch_bounds__(192)
matmul_mxfp8(float* __restrict__ c, const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
             const unsigned char* __restrict__ a_scales, const unsigned char* __restrict__ b_scales, int n, int k) {
  matmul<false, 1>(c, a, b, a_scales, b_scales, n, k);
}
extern "C" __global__ void __launch_bounds__(192)
matmul_nvfp4(float* __restrict__ c, const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
             const unsigned char* __restrict__ a_scales, const unsigned char* __restrict__ b_scales, int n, int k) {
  matmul<true, 4>(c, a, b, a_scales, b_scales, n, k / 2);
}

// ---- quantization: x [rows, K] fp32, a thread for each scale ----

// Where a scale lies: number `part` of a row that has so many.
__device__ __forceinline__ long long scale_place(int row, int part, int parts) {
  return ((long long)(row / 128) * (parts / 4) + part / 4) * SCALES + row % 32 * 16 + row % 128 / 32 * 4 + part % 4;
}
// The magnitude of the largest of N elements.
template <int N> __device__ __forceinline__ float largest_of(const float* x) {
  float largest = 0.f;
#pragma unroll
  for (int i = 0; i < N; ++i) largest = fmaxf(largest, fabsf(x[i]));
  return largest;
}
__device__ __forceinline__ unsigned char e4m3_of(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}
// To the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, of two the one with an even code.
__device__ __forceinline__ unsigned e2m1_of(float x) {
  const float size = fabsf(x);
  const unsigned code = (size > 0.25f) + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) + (size > 2.5f) +
                        (size >= 3.5f) + (size > 5.f);
  return code | __float_as_uint(x) >> 28 & 8;
}

extern "C" __global__ void quantize_mxfp8(unsigned char* __restrict__ codes, unsigned char* __restrict__ scales,
                                          const float* __restrict__ x, int rows, int k) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x, parts = k / 32, row = index / parts, part = index % parts;
  if (row >= rows) return;
  const float* from = x + (long long)row * k + part * 32;
  // Rounded up to a power of two, so that no element is past e4m3's largest.
  const unsigned quotient = __float_as_uint(largest_of<32>(from) / 448.f);
  const unsigned scale = (quotient >> 23) + ((quotient & 0x7fffff) != 0);
  scales[scale_place(row, part, parts)] = scale;
  const float factor = exp2f(127.f - scale);
  for (int i = 0; i < 32; ++i) codes[(long long)row * k + part * 32 + i] = e4m3_of(from[i] * factor);
}

extern "C" __global__ void quantize_nvfp4(unsigned char* __restrict__ codes, unsigned char* __restrict__ scales,
                                          const float* __restrict__ x, int rows, int k) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x, parts = k / 16, row = index / parts, part = index % parts;
  if (row >= rows) return;
  const float* from = x + (long long)row * k + part * 16;
  const unsigned char scale = e4m3_of(largest_of<16>(from) / 6.f);
  scales[scale_place(row, part, parts)] = scale;
  const float size = __half2float(__half(__nv_cvt_fp8_to_halfraw(scale, __NV_E4M3)));
  const float factor = size > 0.f ? 1.f / size : 0.f;
  for (int i = 0; i < 16; i += 2)
    codes[((long long)row * k + part * 16 + i) / 2] = e2m1_of(from[i] * factor) | e2m1_of(from[i + 1] * factor) << 4;
}
