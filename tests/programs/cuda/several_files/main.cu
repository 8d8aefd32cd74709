// nvcc: -rdc=true polynomial.cu
// A kernel that calls a device function of another file, by its name and through a pointer.
#include <vector>

#include "../check.h"
#include "polynomial.cuh"

using Function = float (*)(float);

__device__ float derivative(float x) {
  float value = 0;
  for (int i = kTerms - 1; i > 0; --i) value = value * x + i * terms[i];
  return value;
}

__device__ Function functions[2] = {polynomial, derivative};

__global__ void evaluate(float* values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = functions[i % 2](values[i]);
}

int main() {
  const int n = 100;
  const float chosen[kTerms] = {1, -2, 0, 3};
  std::vector<float> values(n), found(n);
  for (int i = 0; i < n; ++i) values[i] = i % 9 - 4;
  set_terms(chosen);
  float* device;
  CHECK(cudaMalloc(&device, n * sizeof(float)));
  CHECK(cudaMemcpy(device, values.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  evaluate<<<(n + 31) / 32, 32>>>(device, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  bool right = evaluated() == n / 2;
  for (int i = 0; i < n; ++i) {
    const float x = values[i];
    right &= found[i] == (i % 2 ? -2 + 9 * x * x : 1 - 2 * x + 3 * x * x * x);
  }
  return judged("several_files", right);
}
