// What the blocks of one sequence, a partition each, leave for the one that is done last, and how it adds that up.
//
//   partial_out   [num_seqs, num_heads, num_partitions, SIZE] fp32       sum of exp2(score - max) * V
//   partial_stats [num_seqs, num_heads, num_partitions] (max, sum) fp32  scores in base 2
//   counters      [num_seqs, blocks per partition] uint32                zeros before a launch, and after it again
//
// Other blocks write all three meanwhile: a kernel must not call them __restrict__.
#pragma once

#include "common/reductions.cuh"
#include "common/vectors.cuh"

constexpr float LOG2_E = 1.4426950408889634f;

// Whether this block is the last of `count` to come here. If so, its threads see from here on what the threads of all
// of them wrote before. The counter is back at 0 then. Method: threadFenceReduction of NVIDIA's CUDA samples.
__device__ __forceinline__ bool last_to_arrive(unsigned* counter, unsigned count) {
  __shared__ unsigned before;
  __syncthreads();  // every thread has written, and is done with shared memory
  if (threadIdx.x == 0)  // atomicInc, which releases what the block wrote and acquires what the others did
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter)), "r"(count - 1)
                 : "memory");
  __syncthreads();
  return before == count - 1;
}

// Sums under a maximum: of weights, and of weighted values.
struct Sums {
  float max, of_weights, of_values;

  // The values' average. A sink, a score in base 2, takes its share of the weight and gives no value; minus infinity is
  // none.
  __device__ __forceinline__ float average(float sink) const { return of_values / (of_weights + exp2f(sink - max)); }
};

// The sums of all warps on a common maximum, in the order of the warps. One that saw nothing has minus infinity as its
// maximum, zeros as its sums, and counts for nothing. Maxima and sums of weights of two warps are `apart` floats apart,
// their sums of values `values_apart`.
template <int WARPS>
__device__ __forceinline__ Sums over_warps(const float* max, const float* weights, int apart, const float* values,
                                           int values_apart) {
  Sums all{max[0], 0.f, 0.f};
#pragma unroll
  for (int w = 1; w < WARPS; ++w) all.max = fmaxf(all.max, max[w * apart]);
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    const float rescale = exp2f(max[w * apart] - all.max);
    all.of_weights += weights[w * apart] * rescale;
    all.of_values += values[w * values_apart] * rescale;
  }
  return all;
}

// A warp's share of the partitions of HEADS heads side by side: every WARPS-th of [begin, end), as sums in its own
// shared memory, those of values [HEADS] rows of SIZE, VALUES_APART apart. A lane takes pieces of four elements, in up
// to four rows at once, and asks for eight of them, with maxima and sums of weights, before it waits for any.
template <int HEADS, int SIZE, int WARPS, int VALUES_APART>
__device__ __forceinline__ void add_partitions(float* max, float* weights, float* values, const float* partial_out,
                                               const float2* partial_stats, int begin, int end, int num_partitions) {
  constexpr int STEPS = SIZE / 4, PIECES = HEADS * STEPS, ROUNDS = (PIECES + WARP_SIZE - 1) / WARP_SIZE;
  constexpr int ROWS = ROUNDS < 4 ? ROUNDS : 4, IN_FLIGHT = 8 / ROWS;  // more would take more registers
#pragma unroll 1
  for (int piece = threadIdx.x % WARP_SIZE; piece < PIECES; piece += ROWS * WARP_SIZE) {
    float max_so_far[ROWS], sum[ROWS] = {};
    Vector<float, 4> total[ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) max_so_far[r] = -infinity();
#pragma unroll 1
    for (int first = begin; first < end; first += IN_FLIGHT * WARPS) {
      float2 stat[ROWS][IN_FLIGHT];
      Vector<float, 4> row[ROWS][IN_FLIGHT];
#pragma unroll
      for (int i = 0; i < ROWS * IN_FLIGHT; ++i) {
        const int r = i / IN_FLIGHT, j = i % IN_FLIGHT, at = piece + r * WARP_SIZE, partition = first + j * WARPS;
        stat[r][j] = make_float2(-infinity(), 0.f), row[r][j] = {};
        if (at >= PIECES || partition >= end) continue;
        const long long place = (long long)(at / STEPS) * num_partitions + partition;
        stat[r][j] = partial_stats[place];
        row[r][j].load(partial_out + place * SIZE + at % STEPS * 4);
      }
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        float new_max = max_so_far[r];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j) new_max = fmaxf(new_max, stat[r][j].x);
        const float rescale = exp2f(max_so_far[r] - new_max);
        max_so_far[r] = new_max, sum[r] *= rescale;
#pragma unroll
        for (int e = 0; e < 4; ++e) total[r].at[e] *= rescale;
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j) {
          const float weight = exp2f(stat[r][j].x - new_max);
          sum[r] += stat[r][j].y * weight;
#pragma unroll
          for (int e = 0; e < 4; ++e) total[r].at[e] += row[r][j].at[e] * weight;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int at = piece + r * WARP_SIZE, head = at / STEPS, element = at % STEPS * 4;
      if (at >= PIECES) break;
      if (element == 0) max[head] = max_so_far[r], weights[head] = sum[r];
      *reinterpret_cast<Vector<float, 4>*>(values + head * VALUES_APART + element) = total[r];
    }
  }
}
