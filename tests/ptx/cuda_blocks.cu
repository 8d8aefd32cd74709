// Blocks of one launch against each other on global memory, each with its fault.
#include "cuda_fault.cuh"

extern "C" __global__ void own_elements(int* out, const int* in) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[VALUE(i, i % 100)] = in[i];  // side
}
extern "C" __global__ void same_flag(int* out, const int* in) {
  if (in[blockIdx.x * blockDim.x + threadIdx.x] > 10) out[0] = VALUE(1, blockIdx.x + 1);  // side
}
extern "C" __global__ void neighbour(int* out, const int* in) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i] + 1;
  __syncthreads();
  if (threadIdx.x == 0) out[512 + blockIdx.x] = out[VALUE(i, (i + 64) % 256)];  // side
}
extern "C" __global__ void bytes_of_a_word(unsigned char* out, const int* in) {
  // Blocks own every second byte.
  out[2 * threadIdx.x + VALUE(blockIdx.x % 2, 0) + 128 * (blockIdx.x / 2)] = blockIdx.x + 1;  // side
}
extern "C" __global__ void counter(int* out, const int* in) {
  int x = in[blockIdx.x * blockDim.x + threadIdx.x];
#ifdef FAULT
  if (threadIdx.x == 0) out[0] = out[0] + x;  // side
#else
  atomicAdd(out, x);
#endif
}
extern "C" __global__ void last_block(int* out, const int* in) {
  // Every block leaves its sum; the one that comes last adds them up.
  __shared__ bool last;
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int i = 0; i < blockDim.x; i++) sum += in[blockIdx.x * blockDim.x + i];
    out[16 + blockIdx.x] = sum;  // side
    ORDER(__threadfence();)
    last = atomicAdd(&out[1], 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    int total = 0;
    for (int b = 0; b < gridDim.x; b++) total += out[16 + b];
    out[0] = total;
  }
}
extern "C" __global__ void half_written(int* out, const int* in, int* scratch) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (VALUE(true, threadIdx.x < 60)) scratch[i] = in[i];
  out[i] = scratch[i];  // side
}
