// Two rows' operations of a transformer: softmax, with a warp to a row and one pass for maximum and sum; and layer
// normalisation, with a block to a row and vectors of four.
#include <cmath>
#include <vector>

#include "check.h"

constexpr int kWarp = 32, kThreads = 64, kRows = 5, kColumns = 200;

__global__ void softmax(const float* in, float* out, int rows, int columns) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp, lane = threadIdx.x % kWarp;
  if (row >= rows) return;
  float most = -INFINITY, sum = 0;
  for (int i = lane; i < columns; i += kWarp) {
    const float value = in[row * columns + i], larger = fmaxf(most, value);
    sum = sum * expf(most - larger) + expf(value - larger);
    most = larger;
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(0xffffffff, most, mask), larger = fmaxf(most, other);
    sum = sum * expf(most - larger) + __shfl_xor_sync(0xffffffff, sum, mask) * expf(other - larger);
    most = larger;
  }
  for (int i = lane; i < columns; i += kWarp) out[row * columns + i] = expf(in[row * columns + i] - most) / sum;
}

__global__ void layer_norm(const float4* in, float4* out, int vectors) {
  __shared__ float2 of_warps[kThreads / kWarp];
  const float4* row = in + blockIdx.x * vectors;
  float sum = 0, squares = 0;
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    const float4 v = row[i];
    sum += v.x + v.y + v.z + v.w;
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, mask);
    squares += __shfl_xor_sync(0xffffffff, squares, mask);
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = {sum, squares};
  __syncthreads();
  const float mean = (of_warps[0].x + of_warps[1].x) / (4 * vectors);
  const float scale = rsqrtf((of_warps[0].y + of_warps[1].y) / (4 * vectors) - mean * mean + 1e-5f);
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    const float4 v = row[i];
    out[blockIdx.x * vectors + i] = {(v.x - mean) * scale, (v.y - mean) * scale, (v.z - mean) * scale,
                                     (v.w - mean) * scale};
  }
}

int main() {
  std::vector<float> values(kRows * kColumns), soft(values.size()), normed(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.7f * i) * (1 + i % 5);
  float *in, *soft_device, *normed_device;
  const std::size_t bytes = values.size() * sizeof(float);
  for (float** memory : {&in, &soft_device, &normed_device}) CHECK(cudaMalloc(memory, bytes));
  CHECK(cudaMemcpy(in, values.data(), bytes, cudaMemcpyHostToDevice));
  softmax<<<(kRows + 1) / 2, kThreads>>>(in, soft_device, kRows, kColumns);
  layer_norm<<<kRows, kThreads>>>(reinterpret_cast<float4*>(in), reinterpret_cast<float4*>(normed_device),
                                  kColumns / 4);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(soft.data(), soft_device, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(normed.data(), normed_device, bytes, cudaMemcpyDeviceToHost));
  double worst = 0;
  for (int row = 0; row < kRows; ++row) {
    const float* own = &values[row * kColumns];
    double sum = 0, squares = 0, exponentials = 0;
    for (int i = 0; i < kColumns; ++i) {
      sum += own[i];
      squares += double{own[i]} * own[i];
      exponentials += std::exp(double{own[i]});
    }
    const double mean = sum / kColumns, scale = 1 / std::sqrt(squares / kColumns - mean * mean + 1e-5);
    for (int i = 0; i < kColumns; ++i) {
      worst = std::fmax(worst, std::abs(soft[row * kColumns + i] - std::exp(double{own[i]}) / exponentials));
      worst = std::fmax(worst, std::abs(normed[row * kColumns + i] - (own[i] - mean) * scale));
    }
  }
  return judged("row_norms", worst < 1e-4);
}
