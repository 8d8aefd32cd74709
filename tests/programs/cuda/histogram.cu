// A histogram of bytes: each block counts in shared memory by atomic additions, then adds its counts to all.
#include <vector>

#include "check.h"

constexpr int kBins = 64, kThreads = 128;

__global__ void count(const unsigned char* bytes, int n, unsigned* counts) {
  __shared__ unsigned own[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) own[bin] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const int bin = bytes[i] * kBins / 256;
    atomicAdd(&own[bin], 1u);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    if (own[bin] != 0) atomicAdd(&counts[bin], own[bin]);
  }
}

int main() {
  const int n = 3001;
  std::vector<unsigned char> bytes(n);
  std::vector<unsigned> expected(kBins), found(kBins);
  unsigned state = 1;
  for (unsigned char& byte : bytes) {
    state = 1664525u * state + 1013904223u;
    byte = static_cast<unsigned char>((state >> 24) * (state >> 24 & 255) / 256);  // small ones are frequent
    ++expected[byte * kBins / 256];
  }
  unsigned char* device;
  unsigned* counts;
  CHECK(cudaMalloc(&device, n));
  CHECK(cudaMalloc(&counts, kBins * sizeof(unsigned)));
  CHECK(cudaMemcpy(device, bytes.data(), n, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(counts, 0, kBins * sizeof(unsigned)));
  count<<<5, kThreads>>>(device, n, counts);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found.data(), counts, kBins * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  CHECK(cudaFree(counts));
  return judged("histogram", found == expected);
}
