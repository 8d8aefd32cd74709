// Output of host and device in one order, an assertion that holds, and destructors that run after main.
#include <cassert>
#include <cstring>
#include <iostream>

#include "check.h"

__global__ void greet(int from) {
  assert(blockDim.x == 2);
  printf("thread %d says %s %.2f\n", from + threadIdx.x, "hello", 0.5 * threadIdx.x);
}

struct Farewell {
  int* device = nullptr;
  ~Farewell() { std::printf("freed: %s\n", cudaGetErrorName(cudaFree(device))); }
} farewell;

int main(int argc, char** argv) {
  CHECK(cudaMalloc(&farewell.device, 4));
  std::printf("first\n");
  greet<<<1, 2>>>(0);
  CHECK(cudaDeviceSynchronize());
  std::cout << "between\n";
  greet<<<1, 2>>>(2);
  CHECK(cudaDeviceSynchronize());
  std::printf("last\n");
  if (argc > 1 && !std::strcmp(argv[1], "exit")) std::exit(7);
  if (argc > 1 && !std::strcmp(argv[1], "abort")) std::abort();
  if (argc > 1 && !std::strcmp(argv[1], "touch")) *farewell.device = 1;
  return argc > 2 ? 3 : 0;
}
