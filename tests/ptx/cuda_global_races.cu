// Global memory between the warps of one block and between blocks: who comes after whom, each kernel with its fault.
#include "cuda_fault.cuh"

// ---- warps of one block ----

extern "C" __global__ void write_then_read(int* out, const int* in) {
  int t = threadIdx.x, block = blockIdx.x * blockDim.x;
  out[block + t] = in[t] + 1;  // side
  ORDER(__syncthreads();)
  out[1024 + block + t] = out[block + (t + 32) % blockDim.x];
}
extern "C" __global__ void read_then_write(int* out, const int* in) {
  int t = threadIdx.x, block = blockIdx.x * blockDim.x;
  out[1024 + block + t] = out[block + (t + 32) % blockDim.x];  // side
  ORDER(__syncthreads();)
  out[block + t] = in[t] + 1;
}
extern "C" __global__ void write_then_write(int* out, const int* in) {
  int t = threadIdx.x, block = blockIdx.x * blockDim.x;
  out[block + t] = in[t] + 1;  // side
  ORDER(__syncthreads();)
  out[block + (t + 32) % blockDim.x] = in[t] + 5;
}
extern "C" __global__ void columns_in_place(int* out, const int* in) {
  // Every warp owns words of the same sectors: it reads and writes its own without a barrier.
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int* own = out + 8 * lane + warp;
  *own = *own + in[lane] + 1;
  *own = *own * 2;
  if (VALUE(false, warp == 0)) own[1] = own[1] + 7;  // side
}
extern "C" __global__ void many_readers(int* out, const int* in) {
  int t = threadIdx.x;
  int sum = in[t] + out[1000];  // side
  ORDER(__syncthreads();)
  if (t == 0) out[1000] = 77;
  out[2000 + blockIdx.x * blockDim.x + t] = sum;
}
extern "C" __global__ void named_pairs(int* out, const int* in) {
  int t = threadIdx.x, pair = t / 64;
  out[t] = in[t] + 1;
  asm volatile("bar.sync %0, 64;" ::"r"(1 + pair) : "memory");
  out[1024 + t] = out[VALUE(t ^ 32, t ^ 64)];  // side
}
extern "C" __global__ void flag_in_block(int* out, const int* in) {
  int t = threadIdx.x;
  if (t == 0) {
    out[0] = in[0];  // side
    ORDER(__threadfence();)
    atomicExch(&out[512], 1);
  }
  if (t == 96) {
    while (atomicAdd(&out[512], 0) == 0) {}
    out[1] = out[0];
  }
}

// ---- blocks ----

extern "C" __global__ void blocks_write_and_read(int* out, const int* in) {
  int t = threadIdx.x;
  if (blockIdx.x == 0) out[t] = in[t] + 1;  // side
  else out[1024 + blockIdx.x * blockDim.x + t] = out[VALUE(4096, 0) + t];
}
extern "C" __global__ void blocks_read_and_write(int* out, const int* in) {
  int t = threadIdx.x;
  if (blockIdx.x + 1 < gridDim.x) out[1024 + blockIdx.x * blockDim.x + t] = out[t];  // side
  else out[VALUE(4096, 0) + t] = in[t] + 1;
}
extern "C" __global__ void blocks_write_and_write(int* out, const int* in) {
  int t = threadIdx.x;
  if (t < 20) out[20 * blockIdx.x + t + VALUE(0, -3 * (blockIdx.x % 2))] = in[t] + 1 + blockIdx.x;  // side
}
extern "C" __global__ void last_block_done(int* out, const int* in) {
  // All threads of a block leave partial sums; the last block adds up those of all.
  __shared__ bool last;
  int t = threadIdx.x;
  out[16 + blockIdx.x * blockDim.x + t] = in[t] + blockIdx.x;  // side
  ORDER(__threadfence();)
  __syncthreads();
  if (t == 0) last = atomicAdd(&out[1], 1) == gridDim.x - 1;
  __syncthreads();
  if (last) {
    int total = 0;
    for (int b = 0; b < gridDim.x; b++) total += out[16 + b * blockDim.x + t];
    atomicAdd(&out[0], total);
  }
}
extern "C" __global__ void last_block_hurries(int* out, const int* in) {
  // As above, with the fence, but without the barrier that makes the other warps' sums part of what is published.
  __shared__ bool last;
  int t = threadIdx.x;
  out[16 + blockIdx.x * blockDim.x + t] = in[t] + blockIdx.x;  // side
  ORDER(__syncthreads();)
  if (t == 0) {
    __threadfence();
    last = atomicAdd(&out[1], 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    int total = 0;
    for (int b = 0; b < gridDim.x; b++) total += out[16 + b * blockDim.x + t];
    atomicAdd(&out[0], total);
  }
}
extern "C" __global__ void lock_between_blocks(int* out, const int* in) {
  if (threadIdx.x != 0) return;
  while (atomicCAS(&out[512], 0, 1) != 0) {}
  out[0] = out[0] + in[blockIdx.x];  // side
  ORDER(__threadfence();)
  atomicExch(&out[512], 0);
}
extern "C" __global__ void producer_consumer(int* out, const int* in) {
  // Block b hands its value on to block b + 1.
  int b = blockIdx.x;
  if (threadIdx.x != 0) return;
  int value = in[b];
  if (b > 0) {
    while (((volatile int*)out)[512 + b - 1] == 0) {}
    __threadfence();
    value += out[b - 1];
  }
  out[b] = value;  // side
  ORDER(__threadfence();)
  ((volatile int*)out)[512 + b] = 1;
}
extern "C" __global__ void other_flag(int* out, const int* in) {
  // Block 1 must look at the flag that block 0 raised after its data, not at an earlier one.
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    __threadfence();
    atomicExch(&out[511], 1);
    out[0] = in[0];  // side
    __threadfence();
    atomicExch(&out[512], 1);
  } else if (blockIdx.x == 1) {
    while (atomicAdd(&out[VALUE(512, 513)], 0) == VALUE(0, 9)) {}
    out[1] = out[0];
  }
}
extern "C" __global__ void after_the_flag(int* out, const int* in) {
  // What is written after the flag was raised is not part of what it publishes.
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    ORDER(out[0] = in[0];)
    __threadfence();
    atomicExch(&out[512], 1);
#ifdef FAULT
    out[0] = in[0];  // side
#endif
  } else if (blockIdx.x == 1) {
    while (atomicAdd(&out[512], 0) == 0) {}
    out[1] = out[0];
  }
}
extern "C" __global__ void release_and_acquire(int* out, const int* in) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    out[0] = in[0];  // side
    ORDER(asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(out + 512) : "memory");)
    asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" ::"l"(out + 512) : "memory");
  } else if (blockIdx.x == 1) {
    int seen = 0;
    while (seen == 0) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(out + 512) : "memory");
    out[1] = out[0];
  }
}
