#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
int main() {
  CUdevice device;
  cudaDeviceProp properties;
  if (cuInit(0) || cuDeviceGet(&device, 0) || cudaGetDeviceProperties(&properties, device))
    return 1;
  std::printf("device %s\n", properties.name);
}
