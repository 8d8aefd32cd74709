// A sparse matrix in compressed rows times a vector: a thread to a row, and a warp to a row with a sum by shuffles.
#include <cmath>
#include <vector>

#include "check.h"

constexpr int kWarp = 32;

struct Rows {
  const int *starts, *columns;
  const float* values;
  int count;
};

__global__ void multiply_by_threads(Rows rows, const float* x, float* y) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows.count) return;
  float sum = 0;
  for (int i = rows.starts[row]; i < rows.starts[row + 1]; ++i) sum += rows.values[i] * x[rows.columns[i]];
  y[row] = sum;
}

__global__ void multiply_by_warps(Rows rows, const float* x, float* y) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp, lane = threadIdx.x % kWarp;
  if (row >= rows.count) return;  // the whole warp does
  float sum = 0;
  for (int i = rows.starts[row] + lane; i < rows.starts[row + 1]; i += kWarp)
    sum += rows.values[i] * x[rows.columns[i]];
  for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffff, sum, half);
  if (lane == 0) y[row] = sum;
}

template <class T>
T* on_device(const std::vector<T>& values) {
  T* device;
  CHECK(cudaMalloc(&device, values.size() * sizeof(T)));
  CHECK(cudaMemcpy(device, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

int main() {
  const int n = 150;
  std::vector<int> starts{0}, columns;
  std::vector<float> values, x(n), expected(n), y(n);
  for (int i = 0; i < n; ++i) x[i] = i % 6 - 2;
  for (int row = 0; row < n; ++row) {
    for (int column = row % 3; column < n; column += 1 + (row * 7 + column * column) % 11) {
      if (row % 10 == 9) break;  // some rows are empty
      columns.push_back(column);
      values.push_back(row % 4 + column % 3);
      expected[row] += values.back() * x[column];
    }
    starts.push_back(columns.size());
  }
  const Rows rows{on_device(starts), on_device(columns), on_device(values), n};
  float *x_device = on_device(x), *y_device = on_device(y);
  bool right = true;
  for (bool by_warps : {false, true}) {
    CHECK(cudaMemset(y_device, 0xff, n * sizeof(float)));
    if (by_warps) multiply_by_warps<<<(n + 3) / 4, 4 * kWarp>>>(rows, x_device, y_device);
    if (!by_warps) multiply_by_threads<<<(n + 63) / 64, 64>>>(rows, x_device, y_device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(y.data(), y_device, n * sizeof(float), cudaMemcpyDeviceToHost));
    right &= y == expected;
  }
  return judged("sparse", right);
}
