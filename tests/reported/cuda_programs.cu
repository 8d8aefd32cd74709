// Faults that others have reported in kernels of theirs, rebuilt small, and rules of memory and barriers by themselves.
// A line that a finding has to name is marked with its program and what it does.
#include "forms.cuh"

// The last block to come sums what all have left. 1: no release fence, 2: no acquire fence, 3: a fence for the block only.
// https://github.com/pytorch/pytorch/pull/128455, https://github.com/NVIDIA/Fuser/pull/2391
template <int FORM> __global__ void last_block(float* out, float* partial, unsigned* count, const float* x) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = x[blockIdx.x];  // last_block: store
    if (FORM == 3) __threadfence_block();
    else if (FORM != 1) __threadfence();
    last = atomicAdd(count, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  if (FORM != 2) __threadfence();
  float sum = partial[threadIdx.x];  // last_block: load
  for (int o = 4; o; o >>= 1) sum += __shfl_xor_sync(0xff, sum, o);
  if (threadIdx.x == 0) *out = sum;
}
FORMS_4(last_block)

// Blocks count into one histogram, wait for each other, and read it: all have to choose the same bin. 1: the barrier is
// missing before a thread announces its block, whose other warps may still have to count. It reads with plain loads what
// others change by atomics, in global memory, which compute-sanitizer's racecheck does not watch.
// https://github.com/flashinfer-ai/flashinfer/issues/4126, https://github.com/flashinfer-ai/flashinfer/pull/5251
template <int FORM> __global__ void agreed_bin(int* bins, unsigned* counts, unsigned* arrived, const float* x) {
  const int i = x[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(counts + (i & 32 ? 7 : i % 32 == 0), 1u);  // agreed_bin: count
  if (FORM == 0) __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*(volatile unsigned*)arrived < gridDim.x) {}  // agreed_bin: wait
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const unsigned count = counts[threadIdx.x];  // agreed_bin: read
  const unsigned most = __reduce_max_sync(0xffffffff, count);
  const unsigned full = __ballot_sync(0xffffffff, count == most);
  if (threadIdx.x == 0) bins[blockIdx.x] = __ffs(full) - 1;
}
FORMS_2(agreed_bin)

// A sum in a loop with compare-and-swap. Its first, plain load races with the others' swaps; an old value only costs a
// turn. 1: a block stores what it has computed, and no swap asks whether the value was old.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#atomic-functions
template <int FORM> __global__ void swapped_sum(float* total, const float* x) {
  auto* word = (unsigned*)total;
  unsigned seen = *word, old;  // swapped_sum: first load
  if (FORM == 1 && blockIdx.x == 1) {
    *total = __uint_as_float(seen) + x[threadIdx.x];  // swapped_sum: store
    return;
  }
  do {
    old = seen;
    seen = atomicCAS(word, old, __float_as_uint(__uint_as_float(old) + x[threadIdx.x]));  // swapped_sum: swap
  } while (seen != old);
}
FORMS_2(swapped_sum)

// One warp sums 64 values in shared memory. 1: volatile in the place of __syncwarp(), 2: nothing in its place.
// https://github.com/CanReader/FastNN/issues/8, https://github.com/NVIDIA/Fuser/pull/489,
// https://github.com/kaldi-asr/kaldi/pull/3211
template <int FORM, class Values> __device__ inline void add(Values values, int apart) {
  if (FORM == 0) {
    const float other = values[threadIdx.x + apart];
    __syncwarp();
    values[threadIdx.x] += other;
    __syncwarp();
  } else {
    values[threadIdx.x] += values[threadIdx.x + apart];  // warp_sum: add
  }
}
template <int FORM> __global__ void warp_sum(float* out, const float* x) {
  __shared__ float values[64];
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x >= 32) return;
  if constexpr (FORM == 1) {
    volatile float* seen = values;
    add<FORM>(seen, 32);
    for (int apart = 16; apart; apart >>= 1) add<FORM>(seen, apart);
  } else {
    add<FORM>(values, 32);
    for (int apart = 16; apart; apart >>= 1) add<FORM>(values, apart);
  }
  if (threadIdx.x == 0) *out = values[0];
}
FORMS_3(warp_sum)

// A barrier that not all threads reach alike. 1: half of each warp ends without it, 2: a warp goes on to the next one,
// 3: each half of a warp has one of its own, 4: threads leave a loop with barriers at different turns, 5: an early return.
// https://github.com/tile-ai/tilelang/issues/1026, https://github.com/pytorch/FBGEMM/pull/5857
template <int FORM> __global__ void divergent(float* y, const float* x, int n) {
  __shared__ float tile[64];
  const int t = threadIdx.x;
  if constexpr (FORM == 4) {
    for (int i = t; i < n + 40; i += 64) {
      tile[t] = x[i % 64];
      __syncthreads();  // divergent: in the loop
      y[t] = tile[63 - t];
      __syncthreads();  // divergent: at the loop's end
    }
    return;
  }
  if (FORM == 5 && t >= n - 14) return;
  tile[t] = x[t];  // divergent: store
  if constexpr (FORM == 1) {
    if (t % 2 == 0) {
      __syncthreads();  // divergent: in half a warp
      y[t] = tile[63 - t];
    }
  } else if constexpr (FORM == 2) {
    if (t < 32) __syncthreads();  // divergent: first
    y[t] = tile[t ^ 1];  // divergent: load
    __syncthreads();  // divergent: second
  } else if constexpr (FORM == 3) {
    if (t % 2) {
      __syncthreads();  // divergent: odd
      y[t] = tile[63 - t];
    } else {
      __syncthreads();  // divergent: even
      y[t] = 2 * tile[63 - t];
    }
  } else {
    __syncthreads();  // divergent: after the return
    if (FORM == 0 || t < 32) y[t] = tile[FORM == 0 ? 63 - t : t];
  }
}
FORMS_6(divergent)

// A sum over the first n lanes. 1: the others go on to another function of the warp, 2: they end, 3: the mask lacks half
// of the lanes that call, 4: is right, as nobody adds what an absent lane would have sent; 5 and 6: as 2 and 4, with an
// atomic for the result.
// https://github.com/brucefan1983/CUDA-Programming/pull/51, https://github.com/NVIDIA/cccl/issues/854,
// https://github.com/PaddlePaddle/Paddle/issues/10332
template <int FORM> __global__ void tail_sum(float* y, const float* x, int n, int first) {
  const int lane = threadIdx.x;
  if (FORM == 0 || FORM == 3) {
    float v = lane < n ? x[lane] : 0.f;
    for (int o = first; o; o >>= 1) v += __shfl_down_sync(FORM == 3 ? 0x0000ffff : 0xffffffff, v, o);  // tail_sum: own mask
    if (lane == 0) *y = v;
    return;
  }
  if (lane < n) {
    float v = x[lane];
    for (int o = first; o; o >>= 1) {
      const float other = __shfl_down_sync(0xffffffff, v, o);  // tail_sum: shuffle
      if ((FORM != 4 && FORM != 6) || lane + o < n) v += other;
    }
    if (lane == 0 && FORM < 5) *y = v;
    if (lane == 0 && FORM >= 5) atomicAdd(y, v);
  }
  if constexpr (FORM == 1) {
    const unsigned odd = __ballot_sync(0xffffffff, lane & 1);  // tail_sum: ballot
    if (lane == 31) y[1] = odd;
  }
}
FORMS_7(tail_sum)

// Every block reads a value and stores it back. 1: one of them stores another one.
template <int FORM> __global__ void put_back(float* x) {
  float value = x[threadIdx.x];  // put_back: load
  asm volatile("" : "+f"(value));  // or nvcc leaves the store out
  x[threadIdx.x] = FORM == 1 && blockIdx.x == 1 ? value + 1 : value;  // put_back: store
}
FORMS_2(put_back)

// Threads that wait for one barrier at two places. 1: warps for that of the block, which is legal PTX and seldom meant,
// 2: warps for a named one with a count, as pipelines do, 3: halves of a warp, which .aligned forbids.
template <int FORM> __global__ void two_places(float* y, const float* x) {
  __shared__ float tile[64];
  const int t = threadIdx.x;
  tile[t] = x[t];
  const bool first = FORM == 3 ? t % 2 : t < 32;
  if constexpr (FORM == 1) {
    if (first) asm volatile("bar.sync 0;" ::: "memory");  // two_places: one
    else asm volatile("bar.sync 0; " ::: "memory");  // two_places: other
  } else if constexpr (FORM >= 2) {
    if (first) asm volatile("bar.sync 1, 64;" ::: "memory");  // two_places: one, counted
    else asm volatile("bar.sync 1, 64; " ::: "memory");  // two_places: other, counted
  } else {
    __syncthreads();
  }
  y[t] = tile[63 - t];
}
FORMS_4(two_places)
