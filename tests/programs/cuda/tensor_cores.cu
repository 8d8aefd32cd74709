// A product of half-precision matrices on tensor cores: a warp owns 16 x 16 of C and walks along K by fragments.
#include <cuda_fp16.h>
#include <mma.h>

#include <vector>

#include "check.h"

namespace wmma = nvcuda::wmma;

constexpr int kTile = 16, kWarps = 2;

__global__ void multiply(const half* a, const half* b, float* c, int n, int k) {
  const int row = blockIdx.y * kTile, column = (blockIdx.x * kWarps + threadIdx.y) * kTile;
  if (column >= n) return;
  wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major> a_part;
  wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::col_major> b_part;
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int start = 0; start < k; start += kTile) {
    wmma::load_matrix_sync(a_part, a + row * k + start, k);
    wmma::load_matrix_sync(b_part, b + column * k + start, k);
    wmma::mma_sync(sum, a_part, b_part, sum);
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= 0.5f;
  wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

int main() {
  const int m = 32, n = 48, k = 64;
  std::vector<half> a(m * k), b(n * k);  // b is kept by columns
  std::vector<float> found(m * n);
  for (int i = 0; i < m * k; ++i) a[i] = __float2half(i % 9 - 4);
  for (int i = 0; i < n * k; ++i) b[i] = __float2half(0.25f * (i % 5));
  half *a_device, *b_device;
  float* c_device;
  CHECK(cudaMalloc(&a_device, a.size() * sizeof(half)));
  CHECK(cudaMalloc(&b_device, b.size() * sizeof(half)));
  CHECK(cudaMalloc(&c_device, found.size() * sizeof(float)));
  CHECK(cudaMemcpy(a_device, a.data(), a.size() * sizeof(half), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b_device, b.data(), b.size() * sizeof(half), cudaMemcpyHostToDevice));
  const dim3 grid((n / kTile + kWarps - 1) / kWarps, m / kTile), block(32, kWarps);
  multiply<<<grid, block>>>(a_device, b_device, c_device, n, k);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found.data(), c_device, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(a_device));
  CHECK(cudaFree(b_device));
  CHECK(cudaFree(c_device));
  bool right = true;
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0;  // of quarters, which floats add exactly
      for (int i = 0; i < k; ++i) sum += __half2float(a[row * k + i]) * __half2float(b[column * k + i]);
      right &= found[row * n + column] == 0.5f * sum;
    }
  }
  return judged("tensor_cores", right);
}
