// A sum in shared memory, then in one atomic addition per block; static and dynamic shared memory, as templates.
#include <vector>

#include "check.h"

template <class T>
__device__ T sum_of_block(T* shared) {
  for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
    __syncthreads();
    if (threadIdx.x < stride) shared[threadIdx.x] += shared[threadIdx.x + stride];
  }
  return shared[0];
}

template <class T, int kThreads>
__global__ void sum_static(const T* in, T* out, int n) {
  __shared__ T shared[kThreads];
  T own = 0;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) own += in[i];
  shared[threadIdx.x] = own;
  const T all = sum_of_block(shared);
  if (threadIdx.x == 0) atomicAdd(out, all);
}

template <class T>
__global__ void sum_dynamic(const T* in, T* out, int n) {
  extern __shared__ unsigned char bytes[];
  T* shared = reinterpret_cast<T*>(bytes);
  T own = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) own += in[i];
  shared[threadIdx.x] = own;
  const T all = sum_of_block(shared);
  if (threadIdx.x == 0) atomicAdd(out, all);
}

template <class T>
bool right_for(int n) {
  std::vector<T> values(n);
  T expected = 0, found[2] = {};
  for (int i = 0; i < n; ++i) expected += values[i] = i % 7;
  T *in, *out;
  CHECK(cudaMalloc(&in, n * sizeof(T)));
  CHECK(cudaMalloc(&out, sizeof found));
  CHECK(cudaMemcpy(in, values.data(), n * sizeof(T), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(out, 0, sizeof found));
  sum_static<T, 128><<<4, 128>>>(in, out, n);
  sum_dynamic<T><<<3, 64, 64 * sizeof(T)>>>(in, out + 1, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
  return found[0] == expected && found[1] == expected;
}

int main() { return judged("reduction", right_for<int>(1000) && right_for<float>(777) && right_for<double>(1)); }
