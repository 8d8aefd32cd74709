// nvcc: --extended-lambda
// Kernels as templates: a map and a tree of combinations over any type, by functors and by lambdas written on the
// host.
#include <cuda/std/limits>
#include <vector>

#include "check.h"

struct Complex {
  float real, imaginary;
  __host__ __device__ bool operator==(const Complex& other) const {
    return real == other.real && imaginary == other.imaginary;
  }
};

struct Multiply {
  __host__ __device__ Complex operator()(Complex a, Complex b) const {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
};

struct Larger {
  template <class T>
  __host__ __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

template <class T, class Map>
__global__ void transform(T* values, int n, Map map) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = map(values[i], i);
}

template <int kThreads, class T, class Combine>
__global__ void combine(const T* values, int n, T start, T* out, Combine combine) {
  __shared__ T kept[kThreads];
  T own = start;
  for (int i = threadIdx.x; i < n; i += kThreads) own = combine(own, values[i]);
  kept[threadIdx.x] = own;
  if constexpr (kThreads > 1) {
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) kept[threadIdx.x] = combine(kept[threadIdx.x], kept[threadIdx.x + half]);
    }
  }
  if (threadIdx.x == 0) *out = kept[0];
}

template <int kThreads, class T, class Map, class Combine>
bool right_for(int n, T start, Map map, Combine operation) {
  std::vector<T> values(n, start);
  T expected = start, found, *device, *out;
  for (int i = 0; i < n; ++i) expected = operation(expected, map(values[i], i));
  CHECK(cudaMalloc(&device, n * sizeof(T)));
  CHECK(cudaMalloc(&out, sizeof(T)));
  CHECK(cudaMemcpy(device, values.data(), n * sizeof(T), cudaMemcpyHostToDevice));
  transform<<<(n + 63) / 64, 64>>>(device, n, map);
  combine<kThreads><<<1, kThreads>>>(device, n, start, out, operation);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&found, out, sizeof(T), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  CHECK(cudaFree(out));
  return found == expected;
}

int main() {
  const int factor = 3;
  const auto scaled = [factor] __host__ __device__(int value, int i) { return value + factor * i % 101; };
  const auto turn = [] __host__ __device__(Complex, int i) {
    return Complex{i % 2 ? 0.0f : 1.0f, i % 2 ? 1.0f : 0.0f};
  };
  const auto rising = [] __host__ __device__(double, int i) { return 0.5 * i - 20; };
  const auto sum = [] __host__ __device__(int a, int b) { return a + b; };
  bool right = right_for<64>(1000, 0, scaled, sum) && right_for<1>(10, 0, scaled, Larger{});
  right &= right_for<32>(99, Complex{1, 0}, turn, Multiply{});
  right &= right_for<128>(300, cuda::std::numeric_limits<double>::lowest(), rising, Larger{});
  return judged("functors", right);
}
