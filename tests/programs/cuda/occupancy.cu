// Launches by what the device can hold: block sizes that the occupancy functions propose, limits, function
// attributes, and shared memory beyond 48 KiB for a kernel that asks for it.
#include <vector>

#include "check.h"

__global__ void negate(int* values, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) values[i] = -values[i];
}

__global__ void __launch_bounds__(128, 2) reverse(int* values, int n) {
  extern __shared__ int kept[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = values[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = kept[n - 1 - i];
}

int main() {
  const int n = 15000;
  std::vector<int> values(n);
  for (int i = 0; i < n; ++i) values[i] = i;
  int *device, grid = 0, threads = 0, blocks = 0, limit = 0;
  const std::size_t bytes = n * sizeof(int);
  CHECK(cudaMalloc(&device, bytes));
  CHECK(cudaMemcpy(device, values.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &threads, negate, 0, 256));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, negate, threads, 0));
  bool right = threads > 0 && threads <= 256 && threads % 32 == 0 && blocks >= 1;
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  right &=
      blocks * threads <= properties.maxThreadsPerMultiProcessor && grid <= blocks * properties.multiProcessorCount;
  negate<<<4, threads>>>(device, n);

  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, reverse));
  right &= attributes.maxThreadsPerBlock == 128;
  reverse<<<1, 128, bytes>>>(device, n);
  right &= cudaGetLastError() == cudaErrorInvalidValue;  // 60,000 bytes are too many unless asked for
  CHECK(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  right &= limit >= static_cast<int>(bytes);
  CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, 128, bytes));
  const std::size_t of_block = bytes + properties.reservedSharedMemPerBlock;
  right &= blocks == static_cast<int>(properties.sharedMemPerMultiprocessor / of_block);
  reverse<<<1, 128, bytes>>>(device, n);
  reverse<<<1, 256, bytes>>>(device, n);
  right &= cudaGetLastError() != cudaSuccess;  // more threads than its launch bounds
  CHECK(cudaMemcpy(values.data(), device, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  for (int i = 0; i < n; ++i) right &= values[i] == -(n - 1 - i);
  return judged("occupancy", right);
}
