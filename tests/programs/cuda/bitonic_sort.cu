// A bitonic sort: steps that stay within a block run in shared memory, wider ones in kernels of their own.
#include <algorithm>
#include <vector>

#include "check.h"

constexpr int kThreads = 64, kBlock = 2 * kThreads;

__device__ void order(unsigned& low, unsigned& high, bool rising) {
  if ((low > high) != rising) return;
  const unsigned kept = low;
  low = high;
  high = kept;
}

__global__ void sort_shared(unsigned* values, int from, int to) {
  __shared__ unsigned own[kBlock];
  const int first = blockIdx.x * kBlock;
  own[threadIdx.x] = values[first + threadIdx.x];
  own[threadIdx.x + kThreads] = values[first + threadIdx.x + kThreads];
  for (int size = from; size <= to; size *= 2) {
    for (int distance = min(size, kBlock) / 2; distance > 0; distance /= 2) {
      __syncthreads();
      const int low = 2 * threadIdx.x - threadIdx.x % distance;
      order(own[low], own[low + distance], ((first + low) & size) == 0);
    }
  }
  __syncthreads();
  values[first + threadIdx.x] = own[threadIdx.x];
  values[first + threadIdx.x + kThreads] = own[threadIdx.x + kThreads];
}

__global__ void merge_step(unsigned* values, int size, int distance) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int low = 2 * i - i % distance;
  order(values[low], values[low + distance], (low & size) == 0);
}

int main() {
  const int n = 1024;
  std::vector<unsigned> values(n), found(n);
  for (int i = 0; i < n; ++i) values[i] = 2654435761u * (i + 1) >> 8;
  unsigned* device;
  CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
  CHECK(cudaMemcpy(device, values.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
  sort_shared<<<n / kBlock, kThreads>>>(device, 2, kBlock);
  for (int size = 2 * kBlock; size <= n; size *= 2) {
    for (int distance = size / 2; distance >= kBlock; distance /= 2) {
      merge_step<<<n / kBlock, kThreads>>>(device, size, distance);
    }
    sort_shared<<<n / kBlock, kThreads>>>(device, size, size);
  }
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  std::sort(values.begin(), values.end());
  return judged("bitonic_sort", found == values);
}
