// Plain accesses beside atomics, in the ways in which kernels order them, each with its fault. FAULT takes out what orders
// them. A block has two warps.
#include "cuda_fault.cuh"

// The last block to come reads what all have counted, and clears the counter for the next launch.
extern "C" __global__ void last_block_reads(int* out, const int* in) {
  __shared__ bool last;
  int t = threadIdx.x;
  atomicAdd(&out[in[t] % 16], 1);  // side
  ORDER(__syncthreads();)
  if (t == 0) {
    __threadfence();
    last = atomicInc((unsigned*)&out[100], gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (t < 16) out[200 + t] = out[t];
  if (t == 0) out[100] = 0;
}
// The counter itself is cleared: by the block that has seen all others, and by one that has not.
extern "C" __global__ void clears_the_counter(int* out, const int* in) {
  if (threadIdx.x) return;
  if (atomicAdd(&out[100], 1) == VALUE(gridDim.x - 1, 1)) out[100] = 0;  // side
}
extern "C" __global__ void adds_then_reads(int* out, const int* in) {
  int t = threadIdx.x, *bins = out + 16 * blockIdx.x;
  if (t < 16) bins[t] = 5;
  __syncthreads();
  atomicAdd(&bins[in[t] % 16], 1);  // side
  ORDER(__syncthreads();)
  if (t < 16) out[200 + 16 * blockIdx.x + t] = bins[t];
}
extern "C" __global__ void clears_then_adds(int* out, const int* in) {
  int t = threadIdx.x, *bins = out + 16 * blockIdx.x;
  if (t < 16) bins[t] = 7;  // side
  ORDER(__syncthreads();)
  atomicAdd(&bins[in[t] % 16], 1);
}
extern "C" __global__ void reads_then_adds(int* out, const int* in) {
  __shared__ int counts[16];
  int t = threadIdx.x;
  if (t < 16) counts[t] = 0;
  __syncthreads();
  out[200 + 64 * blockIdx.x + t] = counts[t % 16];  // side
  ORDER(__syncthreads();)
  atomicAdd(&counts[in[t] % 16], 1);
  __syncthreads();
  out[600 + 64 * blockIdx.x + t] = counts[t % 16];
}
// One lane takes places for its warp.
extern "C" __global__ void lanes_take_places(int* out, const int* in) {
  int t = threadIdx.x, *length = out + 8 * blockIdx.x + t / 32;
  if (t % 32 == 3) atomicAdd(length, 32);  // side
  ORDER(__syncwarp();)
  out[200 + 64 * blockIdx.x + t] = *length;
}
// A queue in shared memory: one thread takes, all read, and nobody takes again before all have read.
extern "C" __global__ void takes_work(int* out, const int* in) {
  __shared__ int next;
  int t = threadIdx.x;
  while (true) {
    if (t == 0) next = atomicAdd(&out[100], 1);
    __syncthreads();
    int at = next;  // side
    ORDER(__syncthreads();)
    if (at >= 8) break;
    out[200 + 64 * at + t] = in[t] + at;
  }
}
// The semaphore of CUTLASS' split K: blocks add their parts to one tile by plain accesses, one after the other.
extern "C" __global__ void split_k(int* out, const int* in) {
  int t = threadIdx.x, *lock = out + 100;
  if (t == 0) {
    int state = -1;
    while (state != (int)blockIdx.x) asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(state) : "l"(lock) : "memory");
  }
  __syncthreads();
  out[t] += in[t];  // side
  ORDER(__syncthreads();)
  if (t == 0) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(lock) : "memory");
}
// Blocks wait until all have added, by a volatile load of one thread, and read the sums. Then they clear what is next.
extern "C" __global__ void waits_for_all(int* out, const int* in) {
  int t = threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    int *sums = out + 16 * (round % 2), *later = out + 16 * ((round + 1) % 2);
    atomicAdd(&sums[in[t] % 16], 1);  // side
    if (blockIdx.x == 0 && t < 16) later[t] = 0;
    ORDER(__syncthreads();)
    if (t == 0) {
      __threadfence();
      atomicAdd(&out[100], 1);
      while (((volatile int*)out)[100] < (round + 1) * gridDim.x) {}
      __threadfence();
    }
    __syncthreads();
    out[200 + 64 * (4 * round + blockIdx.x) + t] = sums[t % 16];
    __syncthreads();
    if (t == 0) {
      __threadfence();
      atomicAdd(&out[101], 1);
      while (((volatile int*)out)[101] < (round + 1) * gridDim.x) {}
      __threadfence();
    }
    __syncthreads();
  }
}
// A flag that one block raises by a strong store, and all threads of the others wait for by strong loads.
extern "C" __global__ void all_wait(int* out, const int* in) {
  int t = threadIdx.x;
  if (blockIdx.x == 0) {
    atomicAdd(&out[t % 16], in[t]);  // side
    ORDER(__syncthreads();)
    if (t == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(out + 100) : "memory");
    return;
  }
  int seen = 0;
  while (!seen) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(out + 100) : "memory");
  out[200 + 64 * blockIdx.x + t] = out[t % 16];
}
// A spin lock around plain accesses, and a sum of all by an atomic after it.
extern "C" __global__ void locks(int* out, const int* in) {
  if (threadIdx.x) return;
  while (atomicCAS(&out[100], 0, 1)) {}
  __threadfence();
  out[0] += in[blockIdx.x];  // side
  __threadfence();
  atomicExch(&out[100], 0);
  ORDER(return;)
  atomicAdd(&out[0], 1);
}
// Decoupled look-back: states by strong accesses, partial sums by plain ones behind them.
extern "C" __global__ void looks_back(int* out, const int* in) {
  if (threadIdx.x) return;
  int b = blockIdx.x, sum = in[b];
  volatile int* states = out + 100;
  out[b] = sum;
  __threadfence();
  if (b) states[b] = 1;
  for (int i = b - 1; i >= 0; --i) {
    int state;
    while ((state = states[i]) == 0) {}
    __threadfence();
    sum += state == 2 ? out[50 + i] : out[i];
    if (state == 2) break;
  }
  out[50 + b] = sum;  // side
  ORDER(__threadfence();)
  states[b] = 2;
}
// Sums of floats by a loop of swaps in shared memory, read behind a barrier.
extern "C" __global__ void swaps(int* out, const int* in) {
  __shared__ float total;
  int t = threadIdx.x;
  if (t == 0) total = 0;
  __syncthreads();
  auto* word = (unsigned*)&total;
  unsigned seen = *(volatile unsigned*)word, old;
  do seen = atomicCAS(word, old = seen, __float_as_uint(__uint_as_float(old) + in[t]));  // side
  while (seen != old);
  ORDER(__syncthreads();)
  out[64 * blockIdx.x + t] = total;
}
// A block reads the sum by an atomic, which sees all that others have added before, and then plainly.
extern "C" __global__ void sees_then_reads(int* out, const int* in) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) atomicAdd(&out[0], in[0]);  // side
  if (blockIdx.x != 1) return;
  ORDER(while (atomicAdd(&out[0], 0) == 0) {})
  out[1] = out[0];
}
