// Breadth-first search: each level's nodes are a queue, which threads of the level before fill by atomic operations.
// The host reads only how long the next queue is.
#include <queue>
#include <utility>
#include <vector>

#include "check.h"

__global__ void visit(const int* starts, const int* targets, int* levels, int level, const int* queue, int count,
                      int* next, int* next_count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int node = queue[i];
  for (int edge = starts[node]; edge < starts[node + 1]; ++edge) {
    const int target = targets[edge];
    if (atomicCAS(&levels[target], -1, level) == -1) next[atomicAdd(next_count, 1)] = target;
  }
}

template <class T>
T* on_device(const std::vector<T>& values) {
  T* device;
  CHECK(cudaMalloc(&device, values.size() * sizeof(T)));
  CHECK(cudaMemcpy(device, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

int main() {
  const int n = 400;
  std::vector<int> starts{0}, targets, levels(n, -1), expected(n, -1), found(n);
  for (int node = 0; node < n; ++node) {
    for (int i = 0; i <= node % 4; ++i)
      targets.push_back((node * 17 + i * i * 29 + 5) % (n - 20));  // some are unreached
    starts.push_back(targets.size());
  }
  levels[0] = expected[0] = 0;
  std::queue<int> waiting({0});
  for (; !waiting.empty(); waiting.pop()) {
    const int node = waiting.front();
    for (int edge = starts[node]; edge < starts[node + 1]; ++edge) {
      if (expected[targets[edge]] >= 0) continue;
      expected[targets[edge]] = expected[node] + 1;
      waiting.push(targets[edge]);
    }
  }
  const int *starts_device = on_device(starts), *targets_device = on_device(targets);
  int *levels_device = on_device(levels), *queue, *next, *counter, count = 1;
  for (int** memory : {&queue, &next}) CHECK(cudaMalloc(memory, n * sizeof(int)));
  CHECK(cudaMalloc(&counter, sizeof(int)));
  CHECK(cudaMemset(queue, 0, sizeof(int)));  // the search starts at node 0
  for (int level = 1; count > 0; ++level) {
    CHECK(cudaMemset(counter, 0, sizeof(int)));
    visit<<<(count + 63) / 64, 64>>>(starts_device, targets_device, levels_device, level, queue, count, next,
                                     counter);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&count, counter, sizeof(int), cudaMemcpyDeviceToHost));
    std::swap(queue, next);
  }
  CHECK(cudaMemcpy(found.data(), levels_device, n * sizeof(int), cudaMemcpyDeviceToHost));
  return judged("breadth_first", found == expected);
}
