// Bodies that attract each other: each block reads them by tiles of float4 into shared memory; a few steps of
// leapfrog.
#include <cmath>
#include <utility>
#include <vector>

#include "check.h"

constexpr int kThreads = 64, kBodies = 150, kSteps = 3;
constexpr float kSoftening = 0.05f, kTime = 0.01f;

__host__ __device__ void attract(float3& force, float4 own, float4 other) {
  const float x = other.x - own.x, y = other.y - own.y, z = other.z - own.z;
  const float squared = x * x + y * y + z * z + kSoftening;
  const float weight = other.w / (squared * sqrtf(squared));
  force.x += weight * x;
  force.y += weight * y;
  force.z += weight * z;
}

__host__ __device__ float4 moved(float4 body, float3& velocity, float3 force) {
  velocity.x += kTime * force.x;
  velocity.y += kTime * force.y;
  velocity.z += kTime * force.z;
  return {body.x + kTime * velocity.x, body.y + kTime * velocity.y, body.z + kTime * velocity.z, body.w};
}

__global__ void step(const float4* from, float4* to, float3* velocities, int n) {
  __shared__ float4 tile[kThreads];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const float4 own = i < n ? from[i] : float4{};
  float3 force{};
  for (int start = 0; start < n; start += kThreads) {
    if (start + threadIdx.x < n) tile[threadIdx.x] = from[start + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < kThreads && start + j < n; ++j) attract(force, own, tile[j]);
    __syncthreads();
  }
  if (i < n) to[i] = moved(own, velocities[i], force);
}

int main() {
  std::vector<float4> bodies(kBodies), next(kBodies), found(kBodies);
  std::vector<float3> velocities(kBodies, float3{});
  for (int i = 0; i < kBodies; ++i) {
    const float angle = 2.4f * i, radius = std::sqrt(i + 0.5f);
    bodies[i] = {radius * std::cos(angle), radius * std::sin(angle), 0.1f * (i % 7), 1 + i % 3 * 0.5f};
  }
  float4 *from, *to;
  float3* speeds;
  const std::size_t bytes = kBodies * sizeof(float4);
  CHECK(cudaMalloc(&from, bytes));
  CHECK(cudaMalloc(&to, bytes));
  CHECK(cudaMalloc(&speeds, kBodies * sizeof(float3)));
  CHECK(cudaMemcpy(from, bodies.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(speeds, 0, kBodies * sizeof(float3)));
  for (int t = 0; t < kSteps; ++t) {
    step<<<(kBodies + kThreads - 1) / kThreads, kThreads>>>(from, to, speeds, kBodies);
    CHECK(cudaGetLastError());
    std::swap(from, to);
    for (int i = 0; i < kBodies; ++i) {
      float3 force{};
      for (const float4& other : bodies) attract(force, bodies[i], other);
      next[i] = moved(bodies[i], velocities[i], force);
    }
    std::swap(bodies, next);
  }
  CHECK(cudaMemcpy(found.data(), from, bytes, cudaMemcpyDeviceToHost));
  for (void* memory : {static_cast<void*>(from), static_cast<void*>(to), static_cast<void*>(speeds)}) {
    CHECK(cudaFree(memory));
  }
  float worst = 0;
  for (int i = 0; i < kBodies; ++i) {
    worst = std::fmax(worst, std::fabs(found[i].x - bodies[i].x) + std::fabs(found[i].y - bodies[i].y));
    worst = std::fmax(worst, std::fabs(found[i].z - bodies[i].z));
  }
  return judged("nbody", worst < 1e-4f);
}
