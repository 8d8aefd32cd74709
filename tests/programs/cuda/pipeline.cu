// Copies into shared memory that run beside the arithmetic: two stages of cuda::pipeline, then the same sum with a
// whole block's memcpy_async.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cuda/pipeline>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int kThreads = 64, kStages = 2;

__global__ void sum_pipelined(const float4* in, float* out, int tiles) {
  __shared__ float4 stages[kStages][kThreads];
  auto pipe = cuda::make_pipeline();  // of each thread, which reads only what it copied
  const float4* own = in + blockIdx.x * tiles * kThreads + threadIdx.x;
  float sum = 0;
  for (int tile = 0, copied = 0; tile < tiles; ++tile) {
    for (; copied < tiles && copied < tile + kStages; ++copied) {
      pipe.producer_acquire();
      float4* stage = &stages[copied % kStages][threadIdx.x];
      cuda::memcpy_async(stage, own + copied * kThreads, cuda::aligned_size_t<16>(sizeof(float4)), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    const float4 part = stages[tile % kStages][threadIdx.x];
    sum += part.x + part.y + part.z + part.w;
    pipe.consumer_release();
  }
  atomicAdd(&out[blockIdx.x], sum);
}

__global__ void sum_by_block(const float4* in, float* out, int tiles) {
  __shared__ float4 values[kThreads];
  const cg::thread_block block = cg::this_thread_block();
  float sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    cg::memcpy_async(block, values, in + (blockIdx.x * tiles + tile) * kThreads, sizeof values);
    cg::wait(block);
    const float4 part = values[kThreads - 1 - threadIdx.x];  // which another thread copied
    sum += part.x + part.y + part.z + part.w;
    block.sync();
  }
  atomicAdd(&out[blockIdx.x], sum);
}

int main() {
  const int blocks = 3, tiles = 5, n = blocks * tiles * kThreads * 4;
  std::vector<float> values(n), expected(blocks), found(2 * blocks);
  for (int i = 0; i < n; ++i) {
    values[i] = i % 19;
    expected[i / (n / blocks)] += values[i];
  }
  float4* in;
  float* out;
  CHECK(cudaMalloc(&in, n * sizeof(float)));
  CHECK(cudaMalloc(&out, found.size() * sizeof(float)));
  CHECK(cudaMemcpy(in, values.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(out, 0, found.size() * sizeof(float)));
  sum_pipelined<<<blocks, kThreads>>>(in, out, tiles);
  sum_by_block<<<blocks, kThreads>>>(in, out + blocks, tiles);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found.data(), out, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
  bool right = true;
  for (int i = 0; i < 2 * blocks; ++i) right &= found[i] == expected[i % blocks];
  return judged("pipeline", right);
}
