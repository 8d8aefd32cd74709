// Choose the positions of the k highest scores of a sequence, in ascending order: one block per sequence. Scores become
// unsigned keys in the same order. The k-th highest key is found digit by digit, eight bits at a time: a histogram of
// the keys that share the digits found so far says which digit comes next. Then each thread knows of its score whether
// it is chosen, and a count over the block says where its position goes.
//
//   out       [num_seqs, k]: positions, then -1
//   scores    [num_seqs, max_seq_len], rows scores_stride apart; what lies past seq_lens is not read
//   seq_lens  [num_seqs]
//
// Tunables: NUM_THREADS. Idea: radix selection, as in vLLM's top_k_per_row.
#ifndef NUM_THREADS
#define NUM_THREADS 512
#endif

constexpr int WARP_SIZE = 32, NUM_WARPS = NUM_THREADS / WARP_SIZE, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS;

// Zeros of both signs are one key. A negative number's bits are turned over, so that larger ones come first.
__device__ __forceinline__ unsigned key_of(float score) {
  const unsigned bits = score == 0.f ? 0u : __float_as_uint(score);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Numbers of threads before this one for which `holds`, and in the whole block.
__device__ __forceinline__ int2 count_before(bool holds, int* of_warps) {
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const unsigned votes = __ballot_sync(~0u, holds);
  if (lane == 0) of_warps[warp] = __popc(votes);
  __syncthreads();
  int before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < NUM_WARPS; ++w) {
    before += w < warp ? of_warps[w] : 0;
    all += of_warps[w];
  }
  __syncthreads();  // the counts are read before the next ones are written
  return make_int2(before + __popc(votes & ((1u << lane) - 1)), all);
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    top_k_positions(int* __restrict__ out, const float* __restrict__ scores, const int* __restrict__ seq_lens, int k,
                    long long scores_stride) {
  const int seq_len = seq_lens[blockIdx.x];
  scores += blockIdx.x * scores_stride;
  out += (long long)blockIdx.x * k;
  __shared__ int histogram[DIGITS], of_warps[NUM_WARPS];
  __shared__ unsigned next_digit;
  __shared__ int next_wanted;

  // 1. Find the k-th highest key. `wanted` keys are to be chosen among those that share its digits so far.
  unsigned threshold = 0;
  int wanted = k;
#pragma unroll
  for (int shift = 32 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
    for (int i = threadIdx.x; i < DIGITS; i += NUM_THREADS) histogram[i] = 0;
    __syncthreads();
    for (int position = threadIdx.x; position < seq_len; position += NUM_THREADS) {
      const unsigned key = key_of(scores[position]);
      // Shifted twice, because a shift by 32 is undefined.
      if ((key >> shift >> DIGIT_BITS) == (threshold >> shift >> DIGIT_BITS))
        atomicAdd(&histogram[key >> shift & (DIGITS - 1)], 1);
    }
    __syncthreads();
    // One warp sums the histogram from the top: each lane takes eight digits.
    if (threadIdx.x < WARP_SIZE) {
      constexpr int OWN = DIGITS / WARP_SIZE;
      const int highest = DIGITS - 1 - (int)threadIdx.x * OWN;
      int own = 0;
#pragma unroll
      for (int i = 0; i < OWN; ++i) own += histogram[highest - i];
      int above = own;  // of this lane and the ones before
#pragma unroll
      for (int step = 1; step < WARP_SIZE; step *= 2) {
        const int more = __shfl_up_sync(~0u, above, step);
        above += (int)threadIdx.x >= step ? more : 0;
      }
      above -= own;
      if (threadIdx.x == 0) next_digit = 0, next_wanted = wanted;  // fewer keys than wanted: all of them
      __syncwarp();
#pragma unroll
      for (int i = 0; i < OWN; ++i) {
        const int count = histogram[highest - i];
        if (above < wanted && above + count >= wanted) next_digit = highest - i, next_wanted = wanted - above;
        above += count;
      }
    }
    __syncthreads();
    threshold |= next_digit << shift, wanted = next_wanted;
  }

  // 2. Store in order: keys above the threshold, and the first `wanted` of those that equal it.
  int equal_before = 0, stored = 0;
  for (int start = 0; start < seq_len; start += NUM_THREADS) {
    const int position = start + threadIdx.x;
    const bool inside = position < seq_len;
    const unsigned key = inside ? key_of(scores[position]) : 0u;
    const bool equal = inside && key == threshold;
    const int2 equals = count_before(equal, of_warps);
    const bool taken = inside && (key > threshold || (equal && equal_before + equals.x < wanted));
    const int2 takes = count_before(taken, of_warps);
    if (taken) out[stored + takes.x] = position;
    equal_before += equals.y, stored += takes.y;
  }
  for (int i = stored + threadIdx.x; i < k; i += NUM_THREADS) out[i] = -1;
}
