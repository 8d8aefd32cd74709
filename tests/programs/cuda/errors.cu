// Errors as the runtime reports them: those of a call, those of <<<>>>, and a kernel's own, which stays.
#include <cstring>

#include "check.h"

__global__ void touch(int* where) { *where = 1; }
__global__ void fill(int* values) { values[threadIdx.x] = threadIdx.x; }

bool expect(const char* what, cudaError_t found, cudaError_t wanted) {
  if (found == wanted) return true;
  std::printf("%s: %s, not %s\n", what, cudaGetErrorName(found), cudaGetErrorName(wanted));
  return false;
}

int main() {
  int *device, host[4] = {};
  bool right = true;
  right &= expect("no such device", cudaSetDevice(99), cudaErrorInvalidDevice);
  right &= expect("it is kept", cudaPeekAtLastError(), cudaErrorInvalidDevice);
  right &= expect("and told once", cudaGetLastError(), cudaErrorInvalidDevice);
  right &= expect("then gone", cudaGetLastError(), cudaSuccess);
  right &= expect("memory", cudaMalloc(&device, std::size_t{1} << 60), cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&device, sizeof host));
  right &= expect("kind", cudaMemcpy(host, device, sizeof host, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  right &= expect("past the end", cudaMemcpy(host, device + 1, sizeof host, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  cudaGetLastError();
  fill<<<1, 2048>>>(device);
  right &= expect("block", cudaGetLastError(), cudaErrorInvalidValue);
  fill<<<0, 4>>>(device);
  right &= expect("grid", cudaGetLastError(), cudaErrorInvalidValue);
  fill<<<1, 4, 1 << 20>>>(device);
  right &= expect("shared memory", cudaGetLastError(), cudaErrorInvalidValue);
  fill<<<1, 4>>>(device);
  CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
  right &= host[3] == 3;

  touch<<<1, 1>>>(nullptr);  // workbench run says so at the end, whatever the program makes of it
  right &= expect("known at once", cudaGetLastError(), cudaErrorIllegalAddress);
  right &= expect("the kernel", cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  right &= expect("sticky", cudaGetLastError(), cudaErrorIllegalAddress);
  right &= expect("every call", cudaMalloc(&device, 4), cudaErrorIllegalAddress);
  right &= expect("still", cudaGetLastError(), cudaErrorIllegalAddress);
  right &= std::strstr(cudaGetErrorString(cudaErrorIllegalAddress), "illegal memory access") != nullptr;
  right &= std::strcmp(cudaGetErrorName(cudaErrorInvalidDeviceFunction), "cudaErrorInvalidDeviceFunction") == 0;
  return judged("errors", right);
}
