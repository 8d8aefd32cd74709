// A grid whose blocks wait for each other: each round reads what all blocks wrote in the one before.
#include <cooperative_groups.h>

#include <utility>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void smooth(float* from, float* to, int n, int rounds) {
  const cg::grid_group grid = cg::this_grid();
  for (int round = 0; round < rounds; ++round) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
      to[i] = (from[(i + n - 1) % n] + from[i] + from[(i + 1) % n]) / 2;
    }
    grid.sync();
    float* other = from;
    from = to, to = other;
  }
}

int main() {
  int n = 300, rounds = 4, blocks = 0, cooperative = 0;
  CHECK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, smooth, 64, 0));
  std::vector<float> values(n), next(n);
  for (int i = 0; i < n; ++i) values[i] = i % 5;
  float *a, *b;
  CHECK(cudaMalloc(&a, n * sizeof(float)));
  CHECK(cudaMalloc(&b, n * sizeof(float)));
  CHECK(cudaMemcpy(a, values.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  void* arguments[] = {&a, &b, &n, &rounds};
  CHECK(cudaLaunchCooperativeKernel(smooth, 3, 64, arguments));
  CHECK(cudaDeviceSynchronize());
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < n; ++i) next[i] = (values[(i + n - 1) % n] + values[i] + values[(i + 1) % n]) / 2;
    std::swap(values, next);
  }
  std::vector<float> found(n);
  CHECK(cudaMemcpy(found.data(), a, n * sizeof(float), cudaMemcpyDeviceToHost));
  return judged("cooperative", cooperative && blocks > 0 && found == values);
}
