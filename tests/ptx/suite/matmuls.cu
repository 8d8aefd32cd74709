// c [m, n] = a [m, k] times b [k, n], row by row; from one thread per element to tensor cores.
#include <cuda_fp16.h>
#include <mma.h>

constexpr int TILE = 16;

extern "C" __global__ void matmul_naive(float* c, const float* a, const float* b, int m, int n, int k) {
  int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
  if (row < m && column < n) {
    float sum = 0.f;
    for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];  // product
    c[row * n + column] = sum;
  }
}
extern "C" __global__ void matmul_tiled(float* c, const float* a, const float* b, int m, int n, int k) {
  // Each element of a tile is loaded once per block and used 16 times.
  __shared__ float left[TILE][TILE], right[TILE][TILE];
  int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
  float sum = 0.f;
  for (int start = 0; start < k; start += TILE) {
    left[y][x] = row < m && start + x < k ? a[row * k + start + x] : 0.f;
    right[y][x] = start + y < k && column < n ? b[(start + y) * n + column] : 0.f;
    __syncthreads();
    for (int i = 0; i < TILE; i++) sum += left[y][i] * right[i][x];  // product
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}
extern "C" __global__ void matmul_register_blocked(float* c, const float* a, const float* b, int m, int n, int k) {
  // 8 x 8 threads make a tile of 32 x 32; each keeps 4 x 4 sums, so that 8 loads serve 16 products.
  constexpr int STEP = 8;
  __shared__ float left[STEP][32 + 1], right[STEP][32];
  int t = threadIdx.y * 8 + threadIdx.x, row = blockIdx.y * 32, column = blockIdx.x * 32;
  float sums[4][4] = {};
  for (int start = 0; start < k; start += STEP) {
    for (int i = t; i < STEP * 32; i += 64) {
      int y = i / STEP, z = i % STEP;
      left[z][y] = row + y < m && start + z < k ? a[(row + y) * k + start + z] : 0.f;
      int w = i / 32, x = i % 32;
      right[w][x] = start + w < k && column + x < n ? b[(start + w) * n + column + x] : 0.f;
    }
    __syncthreads();
#pragma unroll 1
    for (int z = 0; z < STEP; z++) {
      float p[4], q[4];
      for (int i = 0; i < 4; i++) p[i] = left[z][threadIdx.y * 4 + i], q[i] = right[z][threadIdx.x + 8 * i];  // operands
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sums[i][j] += p[i] * q[j];
    }
    __syncthreads();
  }
#pragma unroll 1
  for (int i = 0; i < 4; i++) {
    int y = row + threadIdx.y * 4 + i;
    for (int j = 0; j < 4; j++) {
      int x = column + threadIdx.x + 8 * j;
      if (y < m && x < n) c[y * n + x] = sums[i][j];
    }
  }
}
__device__ void copy_async(float* to, const float* from, bool there) {
  // 4 bytes into shared memory; zero where there is nothing to copy.
  unsigned address = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(there ? 4 : 0) : "memory");
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
extern "C" __global__ void matmul_double_buffered(float* c, const float* a, const float* b, int m, int n, int k) {
  // While one pair of tiles is multiplied, the next one is on its way.
  __shared__ float left[2][TILE][TILE], right[2][TILE][TILE];
  int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
  auto fetch = [&](int start, int stage) {
    bool in_a = row < m && start + x < k, in_b = start + y < k && column < n;
    copy_async(&left[stage][y][x], in_a ? &a[row * k + start + x] : a, in_a);
    copy_async(&right[stage][y][x], in_b ? &b[(start + y) * n + column] : b, in_b);
  };
  fetch(0, 0);
  commit_copies();
  float sum = 0.f;
  for (int start = 0, stage = 0; start < k; start += TILE, stage = 1 - stage) {
    fetch(start + TILE, 1 - stage);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    for (int i = 0; i < TILE; i++) sum += left[stage][y][i] * right[stage][i][x];  // product
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}
extern "C" __global__ void matmul_mma(float* c, const __half* a, const __half* b, int m, int n, int k) {
  // One warp makes 16 x 8 with mma.m16n8k16. Lane l holds rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next.
  __shared__ __half left[16][16], right[16][8];
  int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 8, g = lane / 4, q = lane % 4 * 2;
  float d[4] = {};
  for (int start = 0; start < k; start += 16) {
    for (int i = lane; i < 256; i += 32) {
      int y = i / 16, z = i % 16;
      left[y][z] = row + y < m && start + z < k ? a[(row + y) * k + start + z] : __half(0.f);
    }
    for (int i = lane; i < 128; i += 32) {
      int z = i / 8, x = i % 8;
      right[z][x] = start + z < k && column + x < n ? b[(start + z) * n + column + x] : __half(0.f);
    }
    __syncwarp();
    auto pair = [](__half low, __half high) {
      return (unsigned)__half_as_ushort(high) << 16 | __half_as_ushort(low);
    };
    unsigned a0 = *(unsigned*)&left[g][q], a1 = *(unsigned*)&left[g + 8][q];
    unsigned a2 = *(unsigned*)&left[g][q + 8], a3 = *(unsigned*)&left[g + 8][q + 8];
    unsigned b0 = pair(right[q][g], right[q + 1][g]), b1 = pair(right[q + 8][g], right[q + 9][g]);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"  // product
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    __syncwarp();
  }
  for (int i = 0; i < 4; i++) {
    int y = row + g + i / 2 * 8, x = column + q + i % 2;
    if (y < m && x < n) c[y * n + x] = d[i];
  }
}
extern "C" __global__ void matmul_wmma(float* c, const __half* a, const __half* b, int m, int n, int k) {
  // One warp makes 16 x 16 through the fragments of <mma.h>, whose layout is nobody's business.
  using namespace nvcuda;
  __shared__ __align__(32) __half left[16][16], right[16][16];
  __shared__ __align__(32) float tile[16][16];
  int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> p;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> q;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.f);
  for (int start = 0; start < k; start += 16) {
    for (int i = lane; i < 256; i += 32) {
      int y = i / 16, x = i % 16;
      left[y][x] = row + y < m && start + x < k ? a[(row + y) * k + start + x] : __half(0.f);
      right[y][x] = start + y < k && column + x < n ? b[(start + y) * n + column + x] : __half(0.f);
    }
    __syncwarp();
    wmma::load_matrix_sync(p, &left[0][0], 16);
    wmma::load_matrix_sync(q, &right[0][0], 16);
    wmma::mma_sync(sum, p, q, sum);
    __syncwarp();
  }
  wmma::store_matrix_sync(&tile[0][0], sum, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = lane; i < 256; i += 32) {
    int y = row + i / 16, x = column + i % 16;
    if (y < m && x < n) c[y * n + x] = tile[i / 16][i % 16];
  }
}
