// A matrix transposed by tiles in shared memory, padded by a column so that a tile's columns lie in different banks.
#include <vector>

#include "check.h"

constexpr int kTile = 32, kRows = 8;

__global__ void transpose(const float* in, float* out, int rows, int columns) {
  __shared__ float tile[kTile][kTile + 1];
  int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += kRows) {
    if (x < columns && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * columns + x];
  }
  __syncthreads();
  x = blockIdx.y * kTile + threadIdx.x;
  y = blockIdx.x * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += kRows) {
    if (x < rows && y + j < columns) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
  }
}

bool right_for(int rows, int columns) {
  std::vector<float> matrix(rows * columns), found(rows * columns);
  for (int i = 0; i < rows * columns; ++i) matrix[i] = i;
  float *in, *out;
  const std::size_t bytes = matrix.size() * sizeof(float);
  CHECK(cudaMalloc(&in, bytes));
  CHECK(cudaMalloc(&out, bytes));
  CHECK(cudaMemcpy(in, matrix.data(), bytes, cudaMemcpyHostToDevice));
  const dim3 grid((columns + kTile - 1) / kTile, (rows + kTile - 1) / kTile), block(kTile, kRows);
  transpose<<<grid, block>>>(in, out, rows, columns);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found.data(), out, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
  bool right = true;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column)
      right &= found[column * rows + row] == matrix[row * columns + column];
  return right;
}

int main() { return judged("transpose", right_for(64, 64) && right_for(45, 70) && right_for(1, 33)); }
