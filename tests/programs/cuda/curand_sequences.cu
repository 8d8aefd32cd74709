// What cuRAND's host API leaves is what its device API makes lane by lane: the headers are
// NVIDIA's, and run as kernels.
// nvcc: -lcurand
// needs: curand_kernel.h
#include <curand.h>
#include <curand_kernel.h>
#include <vector>

#include "check.h"

constexpr int kLanes = 64, kTurns = 2;
constexpr unsigned long long kSeed = 1234;

__global__ void philox(uint4* out) {
  curandStatePhilox4_32_10_t state;
  curand_init(kSeed, threadIdx.x, 0, &state);
  out[threadIdx.x] = curand4(&state);
}

__global__ void xorwow(unsigned* out) {
  curandStateXORWOW_t state;
  curand_init(kSeed, threadIdx.x, 0, &state);
  for (int turn = 0; turn < kTurns; ++turn) out[turn * kLanes + threadIdx.x] = curand(&state);
}

template <class T>
bool same(curandRngType_t type, const T* made, int count, int turn) {
  curandGenerator_t generator;
  unsigned* numbers;
  if (cudaMallocManaged(&numbers, (turn + 1) * 4096 * sizeof(unsigned)) ||
      curandCreateGenerator(&generator, type) ||
      curandSetPseudoRandomGeneratorSeed(generator, kSeed) ||
      curandGenerate(generator, numbers, (turn + 1) * 4096))
    return false;
  bool right = cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < count; ++i) right &= numbers[turn * 4096 + i] == ((const unsigned*)made)[i];
  curandDestroyGenerator(generator);
  return right;
}

int main() {
  uint4* fours;
  unsigned* ones;
  CHECK(cudaMallocManaged(&fours, kLanes * sizeof(uint4)));
  CHECK(cudaMallocManaged(&ones, kLanes * kTurns * sizeof(unsigned)));
  philox<<<1, kLanes>>>(fours);
  xorwow<<<1, kLanes>>>(ones);
  CHECK(cudaDeviceSynchronize());
  bool right = same(CURAND_RNG_PSEUDO_PHILOX4_32_10, fours, 4 * kLanes, 0);
  for (int turn = 0; turn < kTurns; ++turn)
    right &= same(CURAND_RNG_PSEUDO_XORWOW, ones + turn * kLanes, kLanes, turn);
  return judged("curand_sequences", right);
}
