// Writes for which architecture it was compiled, one element too far.
#include <cstdio>
__global__ void architecture(int* value) {
#ifdef __CUDA_ARCH__
  value[threadIdx.x] = __CUDA_ARCH__;
#endif
}
int main() {
  int *device, host = 0;
  cudaMalloc(&device, sizeof host);
  architecture<<<1, 2>>>(device);
  cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost);
  std::printf("architecture %d\n", host);
  return cudaFree(device);
}
