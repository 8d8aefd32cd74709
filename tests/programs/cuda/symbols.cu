// Constant, device and managed variables, by name; pitched rows, copies in two dimensions, page-locked memory.
#include "check.h"

constexpr int kRows = 5, kColumns = 37;

__constant__ float coefficients[3];
__device__ int rows_done;
__managed__ float total;

__global__ void filter(float* rows, std::size_t pitch) {
  float* row = reinterpret_cast<float*>(reinterpret_cast<char*>(rows) + blockIdx.x * pitch);
  float value = 0;
  for (int i = 0; i < 3; ++i) value += coefficients[i] * row[threadIdx.x];
  row[threadIdx.x] = value;
  atomicAdd(&total, value);
  if (threadIdx.x == 0) atomicAdd(&rows_done, 1);
}

__global__ void raise_by(float* value, float by) { *value += by; }

int main() {
  const float chosen[3] = {0.5f, 1.0f, 2.5f};
  CHECK(cudaMemcpyToSymbol(coefficients, chosen, sizeof chosen));
  float *host, *device;
  std::size_t pitch;
  CHECK(cudaMallocHost(&host, kRows * kColumns * sizeof(float)));
  for (int i = 0; i < kRows * kColumns; ++i) host[i] = i % 4;
  CHECK(cudaMallocPitch(&device, &pitch, kColumns * sizeof(float), kRows));
  const std::size_t width = kColumns * sizeof(float);
  CHECK(cudaMemcpy2D(device, pitch, host, width, width, kRows, cudaMemcpyHostToDevice));
  total = 10;  // host code writes it before the first launch
  filter<<<kRows, kColumns>>>(device, pitch);
  CHECK(cudaDeviceSynchronize());
  float expected = 10;
  for (int i = 0; i < kRows * kColumns; ++i) expected += 4 * host[i];
  bool right = total == expected;
  raise_by<<<1, 1>>>(&total, 2);  // its address is one for both sides
  CHECK(cudaDeviceSynchronize());
  right &= total == expected + 2;
  CHECK(cudaMemcpy2D(host, width, device, pitch, width, kRows, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kRows * kColumns; ++i) right &= host[i] == 4.0f * (i % 4);
  int done = 0;
  CHECK(cudaMemcpyFromSymbol(&done, rows_done, sizeof done));
  std::size_t bytes;
  CHECK(cudaGetSymbolSize(&bytes, coefficients));
  right &= done == kRows && bytes == sizeof chosen;
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(host));
  return judged("symbols", right);
}
