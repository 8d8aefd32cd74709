// How the last block of a sequence and a tile of heads adds up what the blocks of its partitions left (partitions.cuh).
#pragma once

#include "common/exponentials.cuh"
#include "common/packing.cuh"
#include "common/partitions.cuh"

// The answers of `heads` heads. A thread takes two columns of a head, and rescales as the maximum grows. Pointers are to
// the first of the heads, gridDim.z partitions apart; `sinks` may be null.
template <int SIZE, int THREADS, typename Scalar>
__device__ __forceinline__ void reduce_partitions(Scalar* output, const float* partial_out, const float2* partial_stats,
                                                  const float* sinks, int heads, int partitions) {
  for (int i = threadIdx.x; i < heads * (SIZE / 2); i += THREADS) {
    const int row = i / (SIZE / 2), column = i % (SIZE / 2) * 2;
    const long long place = (long long)row * gridDim.z;
    float max = -infinity(), of_weights = 0.f;
    float2 sums = make_float2(0.f, 0.f);
    for (int partition = 0; partition < partitions; ++partition) {
      const float2 stats = partial_stats[place + partition];
      const float2 more = *reinterpret_cast<const float2*>(partial_out + (place + partition) * SIZE + column);
      const float new_max = fmaxf(max, stats.x), shrink = exp2_or_zero(max - new_max);
      const float unit = exp2_or_zero(stats.x - new_max);
      max = new_max, of_weights = of_weights * shrink + stats.y * unit;
      sums.x = sums.x * shrink + more.x * unit, sums.y = sums.y * shrink + more.y * unit;
    }
    if (sinks) of_weights += exp2_or_zero(sinks[row] * LOG2_E - max);
    *reinterpret_cast<unsigned*>(output + row * SIZE + column) =
        pack<Scalar>(sums.x / of_weights, sums.y / of_weights);
  }
}
