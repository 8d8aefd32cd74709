// C = A B by tiles in shared memory: each thread owns one element of C and each tile is read once by its block.
#include <cmath>
#include <vector>

#include "check.h"

constexpr int kTile = 16;

__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int start = 0; start < k; start += kTile) {
    const int a_column = start + threadIdx.x, b_row = start + threadIdx.y;
    a_tile[threadIdx.y][threadIdx.x] = row < m && a_column < k ? a[row * k + a_column] : 0;
    b_tile[threadIdx.y][threadIdx.x] = b_row < k && column < n ? b[b_row * n + column] : 0;
    __syncthreads();  // the tiles are whole
    for (int i = 0; i < kTile; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
    __syncthreads();  // and may be replaced
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

bool right_for(int m, int n, int k) {
  std::vector<float> a(m * k), b(k * n), c(m * n);
  for (int i = 0; i < m * k; ++i) a[i] = i % 13 - 6;
  for (int i = 0; i < k * n; ++i) b[i] = i % 7 - 3;
  float *a_device, *b_device, *c_device;
  CHECK(cudaMalloc(&a_device, a.size() * sizeof(float)));
  CHECK(cudaMalloc(&b_device, b.size() * sizeof(float)));
  CHECK(cudaMalloc(&c_device, c.size() * sizeof(float)));
  CHECK(cudaMemcpy(a_device, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b_device, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice));
  const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile), block(kTile, kTile);
  matmul<<<grid, block>>>(a_device, b_device, c_device, m, n, k);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(c.data(), c_device, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
  for (float* memory : {a_device, b_device, c_device}) CHECK(cudaFree(memory));
  bool right = true;
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0;  // of small integers, which floats add exactly
      for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
      right &= c[row * n + column] == sum;
    }
  }
  return right;
}

int main() { return judged("matmul", right_for(32, 32, 32) && right_for(19, 37, 50) && right_for(1, 1, 1)); }
