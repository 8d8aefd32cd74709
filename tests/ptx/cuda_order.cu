// Who comes after whom: kernels that order their threads by other means than one barrier for all, each with its fault.
// FAULT takes out what orders them.
#include "cuda_fault.cuh"

extern "C" __global__ void same_bytes(int* out, const int* in) {
  __shared__ int tile[32];
  int t = threadIdx.x, lane = t % 32;
  tile[lane] = VALUE(in[lane], in[t]);  // side
  __syncthreads();
  out[t] = tile[31 - lane];
}
extern "C" __global__ void reads_its_own(int* out, const int* in) {
  __shared__ int tile[32];
  int t = threadIdx.x, lane = t % 32;
  tile[lane] = in[lane];  // side
  asm volatile("" ::: "memory");
  out[t] = tile[VALUE(lane, lane ^ 1)];
}
extern "C" __global__ void returns_early(int* out, const int* in) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  if (VALUE(t >= 40, t >= 200)) {
    atomicAdd(&out[t], -1);
    return;
  }
  if (VALUE(1, t < 40)) __syncthreads();  // side
  out[t] = tile[t < 40 ? 39 - t : t];
}
extern "C" __global__ void spin_lock(int* out, const int* in) {
  __shared__ int lock, total;
  if (threadIdx.x == 0) lock = 0, total = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) {}
    total += in[threadIdx.x];  // side
    ORDER(__threadfence_block();)
    atomicExch(&lock, 0);
  }
  __syncthreads();
  out[threadIdx.x] = total;
}
extern "C" __global__ void lock_of_lanes(int* out, const int* in) {
  // Every lane takes the lock; NVRTC must not make the lanes of a warp wait for each other.
  __shared__ int total;
  int t = threadIdx.x;
  if (t == 0) total = 0;
  __syncthreads();
  bool done = false;
  while (!done) {
    if (atomicCAS(&out[200], 0, 1) == 0) {
      total += in[t];  // side
      ORDER(__threadfence();)
      atomicExch(&out[200], 0);
      done = true;
    }
  }
  __syncthreads();
  out[t] = total;
}
extern "C" __global__ void flag(int* out, const int* in) {
  __shared__ int data[32];
  __shared__ volatile int ready;
  int t = threadIdx.x;
  if (t == 0) ready = 0;
  __syncthreads();
  if (t < 32) {
    data[t] = in[t];  // side
    ORDER(__threadfence_block();)
    __syncwarp();
    if (t == 0) ready = 1;
  } else {
    while (ready == 0) {}
    out[t] = data[t % 32];
  }
}
extern "C" __global__ void release_acquire(int* out, const int* in) {
  __shared__ int data[4], ready;
  int t = threadIdx.x;
  if (t == 0) ready = 0;
  __syncthreads();
  unsigned to = (unsigned)__cvta_generic_to_shared(&ready);
  if (t == 0) {
    data[0] = in[0];  // side
    ORDER(asm volatile("st.release.cta.shared.u32 [%0], 1;" ::"r"(to) : "memory");)
    asm volatile("st.relaxed.cta.shared.u32 [%0], 1;" ::"r"(to) : "memory");
  }
  if (t == 96) {
    int seen = 0;
    while (seen == 0) asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(to) : "memory");
    out[0] = data[0];
  }
}
extern "C" __global__ void named_barriers(int* out, const int* in) {
  // Two pairs of warps, each with a barrier of its own.
  __shared__ int tile[128];
  int t = threadIdx.x, pair = t / 64;
  tile[t] = in[t];
  asm volatile("bar.sync %0, 64;" ::"r"(1 + pair) : "memory");
  out[t] = tile[VALUE(t ^ 32, t ^ 64)];  // side
}
extern "C" __global__ void arrive_and_wait(int* out, const int* in) {
  __shared__ int tile[32];
  int t = threadIdx.x;
  if (t < 32) {
    ORDER(tile[t] = in[t];)
    asm volatile("bar.arrive 3, 64;" ::: "memory");
#ifdef FAULT
    tile[t] = in[t];  // side
#endif
  } else if (t < 64) {
    asm volatile("bar.sync 3, 64;" ::: "memory");
    out[t] = tile[t - 32];
  }
}
extern "C" __global__ void neighbours(int* out, const int* in) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];  // side
  ORDER(__syncwarp();)
  out[t] = tile[t ^ 1];
}
extern "C" __global__ void halves_of_a_warp(int* out, const int* in) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  if (t & 16) tile[t] = in[t] * 2;  // side
  ORDER(__syncwarp();)
  if (!(t & 16)) out[t] = tile[t + 16];
}
extern "C" __global__ void one_store(int* out, const int* in) {
  __shared__ int tile[64];
  int t = threadIdx.x;
  tile[t / 2] = VALUE(in[t / 2], in[t]);  // side
  __syncthreads();
  out[t] = tile[t / 2];
}
extern "C" __global__ void merged_tail(int* out, const int* in) {
  // The compiler stores for both kinds of thread in one place, after the barrier.
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  if (VALUE(t >= 40, false)) {
    out[t] = 5;
    return;
  }
  if (VALUE(true, t < 40)) __syncthreads();  // side
  out[t] = tile[t < 40 ? 39 - t : t];
}
