// One step of the gated delta rule: one block per (32 * VEC_SIZE columns of a head's state, value head, sequence). A
// column of the state meets the others nowhere: its share of the error and of the output are sums over its own rows. So
// a lane has VEC_SIZE columns, each warp a part of the rows, in registers: the state is read once and written once.
//
//   output, value       [num_seqs, heads, VALUE_SIZE]
//   query, key          [num_seqs, heads / GROUP, KEY_SIZE]; both are divided by their lengths
//   decay, beta         [num_seqs, heads, DECAYS] and [num_seqs, heads], fp32; DECAYS is KEY_SIZE or 1
//   states              [num_slots, heads, KEY_SIZE, VALUE_SIZE] fp32, slots slot_stride apart
//   slots, new_slots    [num_seqs]: where a state is, -1 for zeros, and where it goes, -1 for nowhere
//
// Tunables: NUM_THREADS, VEC_SIZE columns of a lane. Idea: Gated Delta Networks (Yang et al., 2024).
#include "common/copies.cuh"
#include "common/reductions.cuh"

#ifndef SCALAR
#define SCALAR __nv_bfloat16
#define KEY_SIZE 128
#define VALUE_SIZE 128
#define GROUP 2
#define DECAYS 1
#define NUM_THREADS 128
#define VEC_SIZE 1
#endif

using Scalar = SCALAR;
using Vec = Vector<float, VEC_SIZE>;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE, ROWS = KEY_SIZE / NUM_WARPS, COLUMNS = WARP_SIZE * VEC_SIZE;
constexpr float EPSILON = 1e-6f;

// 1 / length of a vector of KEY_SIZE elements, to every lane.
__device__ __forceinline__ float inverse_length(const float* vector) {
  float sum = 0.f;
  for (int i = threadIdx.x % WARP_SIZE; i < KEY_SIZE; i += WARP_SIZE) sum += vector[i] * vector[i];
  return rsqrtf(sum_over_lanes<1, WARP_SIZE>(sum) + EPSILON);
}

// The sums over all warps of what each has for the columns of the block.
__device__ __forceinline__ void sum_over_warps(float (&values)[VEC_SIZE], float (&parts)[NUM_WARPS][COLUMNS]) {
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
#pragma unroll
  for (int i = 0; i < VEC_SIZE; ++i) parts[warp][i * WARP_SIZE + lane] = values[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < VEC_SIZE; ++i) {
    values[i] = 0.f;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; ++w) values[i] += parts[w][i * WARP_SIZE + lane];
  }
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    gated_delta_step(Scalar* __restrict__ output, const Scalar* __restrict__ query, const Scalar* __restrict__ key,
                     const Scalar* __restrict__ value, const float* __restrict__ decay, const float* __restrict__ beta,
                     float* states, const int* __restrict__ slots, const int* __restrict__ new_slots, float scale,
                     long long slot_stride) {
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int head = blockIdx.y, slot = slots[blockIdx.z], new_slot = new_slots[blockIdx.z];
  const long long place = (long long)blockIdx.z * gridDim.y + head;
  const int column = blockIdx.x * COLUMNS + lane * VEC_SIZE, first_row = warp * ROWS;
  const bool inside = column < VALUE_SIZE;
  __shared__ float keys[KEY_SIZE], queries[KEY_SIZE], decays[DECAYS];
  __shared__ float errors[NUM_WARPS][COLUMNS], answers[NUM_WARPS][COLUMNS];

  // 1. Load query and key; sums with them are divided by their lengths.
  query += place / GROUP * KEY_SIZE, key += place / GROUP * KEY_SIZE;
  for (int i = threadIdx.x; i < KEY_SIZE; i += NUM_THREADS) queries[i] = to_float(query[i]), keys[i] = to_float(key[i]);
  for (int i = threadIdx.x; i < DECAYS; i += NUM_THREADS) decays[i] = expf(decay[place * DECAYS + i]);
  __syncthreads();
  const float of_query = inverse_length(queries) * scale, of_key = inverse_length(keys);

  // 2. Load the columns of the state, which decay, and sum what they hold for the key.
  Vec state[ROWS];
  float held[VEC_SIZE] = {};
  const long long in_head = (head * (long long)KEY_SIZE + first_row) * VALUE_SIZE + column;
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    state[i] = Vec{};
    if (inside && slot >= 0) state[i].load(states + slot * slot_stride + in_head + i * VALUE_SIZE);
#pragma unroll
    for (int e = 0; e < VEC_SIZE; ++e) {
      state[i].at[e] *= decays[DECAYS == 1 ? 0 : first_row + i];
      held[e] += state[i].at[e] * keys[first_row + i];
    }
  }
  sum_over_warps(held, errors);

  // 3. Correct them by a share of the error in the new key's value, and read them with the query.
  float sum[VEC_SIZE] = {};
#pragma unroll
  for (int e = 0; e < VEC_SIZE; ++e) {
    const float wanted = inside ? to_float(value[place * VALUE_SIZE + column + e]) : 0.f;
    const float correction = (wanted - held[e] * of_key) * (beta[place] * of_key);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      state[i].at[e] += keys[first_row + i] * correction;
      sum[e] += state[i].at[e] * queries[first_row + i];
    }
  }

  // 4. Store the state, and the output.
  if (inside && new_slot >= 0) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
      store_global(states + new_slot * slot_stride + in_head + i * VALUE_SIZE, state[i]);
  }
  sum_over_warps(sum, answers);
  if (!inside || warp) return;
#pragma unroll
  for (int e = 0; e < VEC_SIZE; ++e) output[place * VALUE_SIZE + column + e] = from_float<Scalar>(sum[e] * of_query);
}
