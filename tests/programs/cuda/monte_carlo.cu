// Pi from random points in a square. Each thread has its own part of one linear congruential sequence, to which it
// jumps ahead; so the host can count the very points that the device does. Warps vote, and one lane adds for all.
#include <cmath>

#include "check.h"

constexpr unsigned kFactor = 1664525, kAddend = 1013904223;
constexpr int kThreads = 64, kBlocks = 4, kPoints = 100;

__host__ __device__ unsigned jumped(unsigned state, unsigned steps) {
  unsigned factor = kFactor, addend = kAddend;
  for (; steps > 0; steps /= 2) {  // by squares of one step: x -> factor x + addend
    if (steps % 2 == 1) state = factor * state + addend;
    addend = (factor + 1) * addend;
    factor *= factor;
  }
  return state;
}

__host__ __device__ bool inside(unsigned& state) {
  state = kFactor * state + kAddend;
  const float x = (state >> 8) * (1.0f / (1 << 24));
  state = kFactor * state + kAddend;
  const float y = (state >> 8) * (1.0f / (1 << 24));
  return x * x + y * y < 1;
}

__global__ void throw_points(unsigned seed, unsigned long long* hits) {
  unsigned state = jumped(seed, 2u * kPoints * (blockIdx.x * blockDim.x + threadIdx.x));
  unsigned count = 0;
  for (int i = 0; i < kPoints; ++i) count += __popc(__ballot_sync(0xffffffff, inside(state)));
  if (threadIdx.x % 32 == 0) atomicAdd(hits, count);
}

int main() {
  const unsigned seed = 12345, points = kThreads * kBlocks * kPoints;
  unsigned long long expected = 0, found = 0, *hits;
  unsigned state = seed;
  for (unsigned i = 0; i < points; ++i) expected += inside(state);
  CHECK(cudaMalloc(&hits, sizeof *hits));
  CHECK(cudaMemset(hits, 0, sizeof *hits));
  throw_points<<<kBlocks, kThreads>>>(seed, hits);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&found, hits, sizeof found, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(hits));
  const double pi = 4.0 * found / points;
  std::printf("pi is near %.3f\n", pi);
  return judged("monte_carlo", found == expected && std::abs(pi - 3.14159265) < 0.03);
}
