// Thrust's and CUB's algorithms, which are headers: a sort, a scan, a reduction by key.
#include <cub/device/device_reduce.cuh>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

#include <algorithm>

#include "check.h"

int main() {
  thrust::host_vector<int> host(700);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = i * 7919 % 1009;
  thrust::device_vector<int> values = host, sums(host.size());
  thrust::sort(values.begin(), values.end());
  thrust::inclusive_scan(values.begin(), values.end(), sums.begin());
  const int total = thrust::reduce(values.begin(), values.end());
  thrust::device_vector<int> most(1);
  void* room = nullptr;
  std::size_t bytes = 0;
  CHECK(cub::DeviceReduce::Max(room, bytes, values.data().get(), most.data().get(), 700));
  CHECK(cudaMalloc(&room, bytes));
  CHECK(cub::DeviceReduce::Max(room, bytes, values.data().get(), most.data().get(), 700));
  thrust::host_vector<int> sorted = values;
  std::sort(host.begin(), host.end());
  const bool right = sorted == host && sums.back() == total && most[0] == host.back();
  return judged("thrust_sort", right);
}
