// CUB inside a kernel (a sum, a scan and a radix sort of a block) and over a whole array, with its scratch memory.
#include <algorithm>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <numeric>
#include <vector>

#include "check.h"

constexpr int kThreads = 64, kItems = 4, kTile = kThreads * kItems;

__global__ void within_block(const int* in, int* sorted, int* scanned, int* total) {
  using Sort = cub::BlockRadixSort<int, kThreads, kItems>;
  using Scan = cub::BlockScan<int, kThreads>;
  using Reduce = cub::BlockReduce<int, kThreads>;
  __shared__ union {
    typename Sort::TempStorage sort;
    typename Scan::TempStorage scan;
    typename Reduce::TempStorage reduce;
  } scratch;
  int items[kItems], sums[kItems];
  for (int i = 0; i < kItems; ++i) items[i] = in[threadIdx.x * kItems + i];
  Scan(scratch.scan).InclusiveSum(items, sums);
  __syncthreads();
  const int all = Reduce(scratch.reduce).Sum(items);
  __syncthreads();
  Sort(scratch.sort).Sort(items);
  for (int i = 0; i < kItems; ++i) {
    sorted[threadIdx.x * kItems + i] = items[i];
    scanned[threadIdx.x * kItems + i] = sums[i];
  }
  if (threadIdx.x == 0) *total = all;
}

template <class Algorithm>
void run(Algorithm algorithm) {
  void* scratch = nullptr;
  std::size_t bytes = 0;
  CHECK(algorithm(scratch, bytes));
  CHECK(cudaMalloc(&scratch, bytes));
  CHECK(algorithm(scratch, bytes));
  CHECK(cudaFree(scratch));
}

int main() {
  const int n = 1500;
  std::vector<int> values(n), sorted(n), scanned(n);
  for (int i = 0; i < n; ++i) values[i] = (i * 7919 + 13) % 3001 - 1500;
  int *in, *first, *second, *total, sum;
  for (int** memory : {&in, &first, &second}) CHECK(cudaMalloc(memory, n * sizeof(int)));
  CHECK(cudaMalloc(&total, sizeof(int)));
  CHECK(cudaMemcpy(in, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  bool right = true;
  const auto compare = [&](int count) {
    std::vector<int> expected(values.begin(), values.begin() + count);
    CHECK(cudaMemcpy(sorted.data(), first, count * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(scanned.data(), second, count * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&sum, total, sizeof(int), cudaMemcpyDeviceToHost));
    std::partial_sum(expected.begin(), expected.end(), expected.begin());
    right &= std::equal(expected.begin(), expected.end(), scanned.begin()) && sum == expected.back();
    std::copy(values.begin(), values.begin() + count, expected.begin());
    std::sort(expected.begin(), expected.end());
    right &= std::equal(expected.begin(), expected.end(), sorted.begin());
  };
  within_block<<<1, kThreads>>>(in, first, second, total);
  CHECK(cudaGetLastError());
  compare(kTile);
  run([&](void* scratch, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(scratch, bytes, in, first, n);
  });
  run([&](void* scratch, std::size_t& bytes) {
    return cub::DeviceScan::InclusiveSum(scratch, bytes, in, second, n);
  });
  run([&](void* scratch, std::size_t& bytes) { return cub::DeviceReduce::Sum(scratch, bytes, in, total, n); });
  compare(n);
  for (int* memory : {in, first, second, total}) CHECK(cudaFree(memory));
  return judged("cub_blocks", right);
}
