// One step of a causal convolution with SiLU: one block per (chunk of channels, sequence), one thread per VEC_SIZE
// channels. A channel needs its own last WIDTH inputs, and stores the newest WIDTH - 1 of them one place earlier.
//
//   output, inputs     [num_seqs, CHANNELS]
//   weight             [WIDTH, CHANNELS], for the oldest input first
//   states             [num_slots, WIDTH - 1, CHANNELS], slots slot_stride apart
//   slots, new_slots   [num_seqs]: where a state is, -1 for zeros, and where it goes, -1 for nowhere
//
// Tunables: NUM_THREADS, VEC_SIZE channels of a thread. Idea: causal_conv1d_update of Mamba's causal-conv1d.
#include "common/copies.cuh"

#ifndef SCALAR
#define SCALAR __nv_bfloat16
#define CHANNELS 8192
#define WIDTH 4
#define NUM_THREADS 128
#define VEC_SIZE 4
#endif

using Scalar = SCALAR;
using Vec = Vector<Scalar, VEC_SIZE>;

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    conv_step(Scalar* __restrict__ output, const Scalar* __restrict__ inputs, const Scalar* __restrict__ weight,
              Scalar* states, const int* __restrict__ slots, const int* __restrict__ new_slots, long long slot_stride) {
  const int channel = (blockIdx.x * NUM_THREADS + threadIdx.x) * VEC_SIZE, seq = blockIdx.y;
  const int slot = slots[seq], new_slot = new_slots[seq];
  if (channel >= CHANNELS) return;

  // 1. Load the inputs, from the oldest on: all loads are in flight before the first store.
  Vec window[WIDTH];
#pragma unroll
  for (int place = 0; place < WIDTH - 1; ++place) {
    window[place] = Vec{};
    if (slot >= 0) window[place].load(states + slot * slot_stride + place * CHANNELS + channel);
  }
  window[WIDTH - 1].load(inputs + (long long)seq * CHANNELS + channel);

  // 2. Sum.
  float sum[VEC_SIZE] = {};
#pragma unroll
  for (int place = 0; place < WIDTH; ++place) {
    Vec factors;
    factors.load(weight + place * CHANNELS + channel);
#pragma unroll
    for (int i = 0; i < VEC_SIZE; ++i) sum[i] += to_float(window[place].at[i]) * to_float(factors.at[i]);
  }

  // 3. Store all but the oldest one place earlier.
  if (new_slot >= 0) {
#pragma unroll
    for (int place = 1; place < WIDTH; ++place)
      store_global(states + new_slot * slot_stride + (place - 1) * CHANNELS + channel, window[place]);
  }

  // 4. Apply SiLU, and store the output.
  Vec answer;
#pragma unroll
  for (int i = 0; i < VEC_SIZE; ++i) answer.at[i] = from_float<Scalar>(sum[i] / (1.f + __expf(-sum[i])));
  store_global(output + (long long)seq * CHANNELS + channel, answer);
}
