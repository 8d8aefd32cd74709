// nvcc: --extended-lambda
// Values grouped by key with Thrust: a sort by key, counts and sums of each key, iterators that compute what they
// give.
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <map>

#include "check.h"

int main() {
  const int n = 600;
  thrust::host_vector<int> keys(n), worth(n);
  std::map<int, std::pair<int, int>> expected;  // of each key: how many, and the sum of their values
  for (int i = 0; i < n; ++i) {
    keys[i] = i * i % 29;
    worth[i] = i % 5;
    expected[keys[i]].first += 1;
    expected[keys[i]].second += worth[i];
  }
  thrust::device_vector<int> sorted = keys, values = worth, unique(n), counts(n), sums(n);
  thrust::stable_sort_by_key(sorted.begin(), sorted.end(), values.begin());
  const auto one = thrust::make_constant_iterator(1);
  auto ends = thrust::reduce_by_key(sorted.begin(), sorted.end(), one, unique.begin(), counts.begin());
  const std::size_t found = ends.first - unique.begin();
  thrust::reduce_by_key(sorted.begin(), sorted.end(), values.begin(), unique.begin(), sums.begin());
  bool right = found == expected.size();
  std::size_t place = 0;
  for (const auto& [key, entry] : expected) {
    right &= unique[place] == key && counts[place] == entry.first && sums[place] == entry.second;
    ++place;
  }
  thrust::device_vector<int> starts(found);
  thrust::exclusive_scan(counts.begin(), counts.begin() + found, starts.begin());
  right &= starts[0] == 0 && starts[found - 1] + counts[found - 1] == n;

  const auto first = thrust::make_counting_iterator(0);
  const auto odd = [] __device__(int value) { return value % 2 == 1; };
  thrust::device_vector<int> kept(n);
  right &= thrust::copy_if(first, first + n, kept.begin(), odd) - kept.begin() == n / 2 && kept[n / 2 - 1] == n - 1;
  const int squares = thrust::inner_product(thrust::device, first, first + 10, first, 0);
  return judged("thrust_keys", right && squares == 285);
}
