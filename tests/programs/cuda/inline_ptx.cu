// PTX between the lines of C++: special registers, a carry over two words, predicates, byte permutation, and accesses
// that name their cache and their order.
#include <cstdint>

#include "check.h"

struct Wide {
  std::uint32_t low, high;
};

__device__ Wide add(Wide a, Wide b) {
  Wide sum;
  asm("add.cc.u32 %0, %2, %4;\n\taddc.u32 %1, %3, %5;"
      : "=r"(sum.low), "=r"(sum.high)
      : "r"(a.low), "r"(a.high), "r"(b.low), "r"(b.high));
  return sum;
}

__device__ std::uint32_t lane() {
  std::uint32_t value;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(value));
  return value;
}

__global__ void compute(const Wide* in, Wide* sums, std::uint32_t* out, std::uint32_t* ready) {
  const Wide own = in[threadIdx.x];
  sums[threadIdx.x] = add(own, own);
  std::uint32_t swapped, smaller, fused;
  asm("prmt.b32 %0, %1, 0, 0x0123;" : "=r"(swapped) : "r"(own.low));
  asm("{\n\t.reg .pred p;\n\tsetp.lt.u32 p, %1, %2;\n\tselp.u32 %0, %1, %2, p;\n\t}"
      : "=r"(smaller)
      : "r"(own.low), "r"(own.high));
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(fused) : "r"(swapped), "r"(smaller), "r"(lane()));
  asm volatile("st.global.cg.u32 [%0], %1;" ::"l"(out + threadIdx.x), "r"(fused) : "memory");
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(ready) : "memory");
}

int main() {
  constexpr int n = 64;
  Wide in[n], sums[n], *in_device, *sums_device;
  std::uint32_t out[n], *out_device, ready, *ready_device;
  for (std::uint32_t i = 0; i < n; ++i) in[i] = {0x9e3779b9u * i, 0x7f4a7c15u + 77 * i};
  CHECK(cudaMalloc(&in_device, sizeof in));
  CHECK(cudaMalloc(&sums_device, sizeof sums));
  CHECK(cudaMalloc(&out_device, sizeof out));
  CHECK(cudaMalloc(&ready_device, sizeof ready));
  CHECK(cudaMemcpy(in_device, in, sizeof in, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(ready_device, 0, sizeof ready));
  compute<<<1, n>>>(in_device, sums_device, out_device, ready_device);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(sums, sums_device, sizeof sums, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(out, out_device, sizeof out, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(&ready, ready_device, sizeof ready, cudaMemcpyDeviceToHost));
  bool right = ready == n;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint64_t value = std::uint64_t{in[i].high} << 32 | in[i].low, twice = value + value;
    right &= sums[i].low == static_cast<std::uint32_t>(twice) && sums[i].high == twice >> 32;
    const std::uint32_t smaller = in[i].low < in[i].high ? in[i].low : in[i].high;
    right &= out[i] == (__builtin_bswap32(in[i].low) ^ smaller ^ i % 32);
  }
  return judged("inline_ptx", right);
}
