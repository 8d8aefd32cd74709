// nvcc: -Xcompiler -fopenmp
// Host threads of OpenMP, each with its stream and its part of the work, beside a loop that the host computes itself.
#include <omp.h>

#include <vector>

#include "check.h"

constexpr int kThreads = 3, kPart = 250;

__global__ void square(int* values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] *= values[i];
}

int main() {
  std::vector<int> values(kThreads * kPart);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 100;
  long expected = 0, found = 0;
  int most = 0;
#pragma omp parallel for reduction(+ : expected)
  for (std::size_t i = 0; i < values.size(); ++i) expected += values[i] * values[i];
#pragma omp parallel num_threads(kThreads) reduction(+ : found) reduction(max : most)
  {
    most = omp_get_num_threads();
    for (int part = omp_get_thread_num(); part < kThreads; part += most) {
      std::vector<int> own(values.begin() + part * kPart, values.begin() + (part + 1) * kPart);
      cudaStream_t stream;
      int* device;
      CHECK(cudaStreamCreate(&stream));
      CHECK(cudaMallocAsync(&device, kPart * sizeof(int), stream));
      CHECK(cudaMemcpyAsync(device, own.data(), kPart * sizeof(int), cudaMemcpyHostToDevice, stream));
      square<<<(kPart + 63) / 64, 64, 0, stream>>>(device, kPart);
      CHECK(cudaGetLastError());
      CHECK(cudaMemcpyAsync(own.data(), device, kPart * sizeof(int), cudaMemcpyDeviceToHost, stream));
      CHECK(cudaFreeAsync(device, stream));
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaStreamDestroy(stream));
      for (int value : own) found += value;
    }
  }
  return judged("openmp", found == expected && most == kThreads);
}
