// One fault per kernel. The line where it shows ends with its mark, and so does the other side of a race. FAULT is 0 for
// the kernel without its fault, which must be clean.
#define EITHER(right, wrong) (FAULT ? (wrong) : (right))

extern "C" __global__ void global_overrun(int* out, const int* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[EITHER(i, i + 1)];  // fault: global_overrun
}
extern "C" __global__ void global_underrun(int* out, const int* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = in[EITHER(max(i - 1, 0), i - 1)];  // fault: global_underrun
}
extern "C" __global__ void shared_overrun(int* out, const int* in, int n) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  if (t >= 124) tile[EITHER(t, t + 4)] = 7;  // fault: shared_overrun
  __syncthreads();
  out[t] = tile[t];
}
extern "C" __global__ void local_overrun(int* out, const int* in, int n) {
  int own[8];
  for (int i = 0; i < 8; i++) own[i] = in[i] + threadIdx.x;
  out[threadIdx.x] = own[in[threadIdx.x] & EITHER(7, 15)];  // fault: local_overrun
}
extern "C" __global__ void null_pointer(int* out, const int* in, int n) {
  const int* from = EITHER(in, (const int*)(size_t)(n - 256));  // n is 256
  out[threadIdx.x] = from[threadIdx.x];  // fault: null_pointer
}
extern "C" __global__ void global_misaligned(int* out, const int* in, int n) {
  int4 x = *(const int4*)(in + EITHER(4, 1) * (threadIdx.x % 8));  // fault: global_misaligned
  out[threadIdx.x] = x.x + x.y + x.z + x.w;
}
extern "C" __global__ void shared_misaligned(int* out, const int* in, int n) {
  __shared__ __align__(16) int tile[132];
  int t = threadIdx.x;
  tile[t] = in[t];
  if (t < 4) tile[128 + t] = 0;
  __syncthreads();
  int2 x = *(const int2*)(tile + EITHER(2 * (t / 2), t));  // fault: shared_misaligned
  out[t] = x.x - x.y;
}
extern "C" __global__ void uninitialised_shared(int* out, const int* in, int n) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  if (t < EITHER(128, 100)) tile[t] = in[t];
  __syncthreads();
  out[t] = tile[127 - t];  // fault: uninitialised_shared
}
extern "C" __global__ void uninitialised_global(int* out, const int* in, int n) {
  // Sums on top of what is there, which nobody has written.
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (EITHER(true, false)) out[i] = 0;
  out[i] += in[i];  // fault: uninitialised_global
}
extern "C" __global__ void race_of_warps(int* out, const int* in, int n) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = 0;
  __syncthreads();
  tile[t] = in[t];  // fault: race_of_warps write
  if (!FAULT) __syncthreads();
  out[t] = tile[t ^ 32];  // fault: race_of_warps read
}
extern "C" __global__ void write_after_read(int* out, const int* in, int n) {
  // The second barrier of a tile loop, forgotten: a fast warp overwrites what a slow one still reads.
  __shared__ int tile[128];
  int t = threadIdx.x, sum = 0;
  for (int round = 0; round < 2; round++) {
    tile[t] = in[round * 128 + t];  // fault: write_after_read write
    __syncthreads();
    sum += tile[127 - t];  // fault: write_after_read read
    if (!FAULT) __syncthreads();
  }
  out[t] = sum;
}
extern "C" __global__ void race_of_lanes(int* out, const int* in, int n) {
  // Right on a GPU whose warps run in lockstep, which none does since Volta.
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];  // fault: race_of_lanes write
  if (!FAULT) __syncwarp();
  out[t] = tile[t ^ 1];  // fault: race_of_lanes read
}
extern "C" __global__ void unsafe_unrolled_warp(int* out, const int* in, int n) {
  // The last steps of a sum as if the lanes of a warp still went in step.
  __shared__ int tile[64];
  int t = threadIdx.x;
  if (t >= 32) return;
  tile[t] = in[t], tile[t + 32] = 0;
  __syncwarp();
  for (int s = 16; s > 0; s /= 2) {
    int other = tile[t + s];  // fault: unsafe_unrolled_warp read
    if (!FAULT) __syncwarp();
    tile[t] = tile[t] + other;  // fault: unsafe_unrolled_warp write
    if (!FAULT) __syncwarp();
  }
  if (t == 0) out[0] = tile[0];
}
extern "C" __global__ void race_of_blocks(int* out, const int* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[EITHER(i, i % 100)] = in[i];  // fault: race_of_blocks write
}
extern "C" __global__ void block_reads_neighbour(int* out, const int* in, int n) {
  // __syncthreads orders one block; that the neighbour is done, nobody has said.
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i];  // fault: block_reads_neighbour write
  __syncthreads();
  if (threadIdx.x == 0) out[n + blockIdx.x] = out[EITHER(i, (i + 128) % 256)];  // fault: block_reads_neighbour read
}
extern "C" __global__ void race_in_global(int* out, const int* in, int n) {
  // Like race_of_warps, but in global memory.
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  out[i] = in[i];  // fault: race_in_global write
  if (!FAULT) __syncthreads();
  atomicAdd(&out[n + i], out[i ^ 32]);  // fault: race_in_global read
}
extern "C" __global__ void lost_updates(int* out, const int* in, int n) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (FAULT) {
    if (t == 0) out[0] = out[0] + in[i];  // fault: lost_updates write
  } else if (t == 0) {
    atomicAdd(out, in[i]);
  }
}
extern "C" __global__ void published_without_fence(int* out, const int* in, int n) {
  // The last block adds up what the others left.
  int last = 0;
  if (threadIdx.x == 0) {
    out[2 + blockIdx.x] = in[blockIdx.x];  // fault: published_without_fence write
    if (!FAULT) __threadfence();
    last = atomicAdd(out + 1, 1) == gridDim.x - 1;
  }
  if (last)
    for (int b = 0; b < gridDim.x; b++) out[0] += out[2 + b];  // fault: published_without_fence read
}
extern "C" __global__ void divergent_barrier(int* out, const int* in, int n) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  if (t < EITHER(128, 48)) __syncthreads();  // fault: divergent_barrier
  out[t] = *(volatile int*)(tile + t);  // what is left of the way is shared: no early return
}
extern "C" __global__ void different_barriers(int* out, const int* in, int n) {
  // Both halves reach a barrier, but not the same one.
  int t = threadIdx.x;
  if (t < EITHER(128, 64)) {
    out[t] = in[t];
    __syncthreads();  // fault: different_barriers
  } else {
    __syncthreads();  // fault: different_barriers other
    out[t] = in[t];
  }
}
extern "C" __global__ void unequal_rounds(int* out, const int* in, int n) {
  // Half of the warps go round the barrier once more than the others, who wait at the next one.
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, rounds = EITHER(3, t < 64 ? 3 : 2);
  for (int round = 0; round < rounds; round++) {
    out[i] = in[i] + round;
    __syncthreads();  // fault: unequal_rounds
  }
  out[i] += 1;
  __syncthreads();  // fault: unequal_rounds other
  out[i] += 1;
}
extern "C" __global__ void absent_lanes(int* out, const int* in, int n) {
  // Inside the branch the upper half of the warp never comes.
  int t = threadIdx.x, x = in[t];
  if (t % 32 < EITHER(32, 16)) x += __shfl_xor_sync(0xffffffff, x, 1);  // fault: absent_lanes
  __syncwarp();
  atomicAdd(&out[t], x);
}
extern "C" __global__ void absent_source(int* out, const int* in, int n) {
  // The mask names only those who come, but they ask one who does not.
  int t = threadIdx.x, x = in[t];
  if (t % 32 < 16) x += __shfl_xor_sync(0xffff, x, EITHER(8, 16));  // fault: absent_source
  atomicAdd(&out[t], x);
}
extern "C" __global__ void waits_for_nobody(int* out, const int* in, int n) {
  // A named barrier that expects one warp more than ever comes.
  int t = threadIdx.x;
  if (t < 64) asm volatile("bar.sync 1, %0;" ::"r"(EITHER(64, 96)) : "memory");  // fault: waits_for_nobody
  out[t] = in[t];
}
extern "C" __global__ void locked_twice(int* out, const int* in, int n) {
  // The lock is never given back, so the second block spins for ever.
  if (threadIdx.x == 0) {
    while (atomicCAS(out, 0, 1) != 0) {}  // fault: locked_twice
    out[1] += in[0];
    __threadfence();
    if (!FAULT) atomicExch(out, 0);
  }
}
extern "C" __global__ void flag_never_set(int* out, const int* in, int n) {
  // Blocks wait for a flag that only a later block sets; no GPU promises that both run at once.
  volatile int* flag = out;
  if (threadIdx.x == 0) {
    if (blockIdx.x == EITHER(0, 1)) *flag = 1;
    while (*flag == 0) {}  // fault: flag_never_set
  }
  out[1 + blockIdx.x * 128 + threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void copy_not_awaited(int* out, const int* in, int n) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  unsigned to = (unsigned)__cvta_generic_to_shared(&tile[t]);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group;" ::"r"(to), "l"(in + t) : "memory");  // fault: copy_not_awaited copy
  if (!FAULT) asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  out[t] = tile[127 - t];  // fault: copy_not_awaited read
}
extern "C" __global__ void ordered_by_shuffle(int* out, const int* in, int n) {
  // A shuffle brings the lanes together, but says nothing about what they did to memory.
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];  // fault: ordered_by_shuffle write
  if (!FAULT) __syncwarp();
  int x = __shfl_xor_sync(0xffffffff, in[t], 1);
  out[t] = x + tile[t ^ 1];  // fault: ordered_by_shuffle read
}
extern "C" __global__ void overwritten_after_shuffle(int* out, const int* in, int n) {
  // Every lane has what it read before any of them goes on; by the memory model the store may still come first.
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  __syncwarp();
  int x = tile[t ^ 1];  // fault: overwritten_after_shuffle read
  x += __shfl_xor_sync(0xffffffff, x, 1);
  if (!FAULT) __syncwarp();
  tile[t] = x + 1;  // fault: overwritten_after_shuffle write
  out[t] = tile[t];
}
extern "C" __global__ void own_mask_without_me(int* out, const int* in, int n) {
  // The last lane calls with a mask that does not name it.
  int t = threadIdx.x;
  unsigned votes = __ballot_sync(EITHER(0xffffffff, 0x7fffffff), in[t] > 9);  // fault: own_mask_without_me
  atomicAdd(&out[t], votes);
}
extern "C" __global__ void mismatched_masks(int* out, const int* in, int n) {
  // Each half of the warp names itself, and the lower one the upper one, too.
  int t = threadIdx.x;
  unsigned mask = t % 32 < 16 ? EITHER(0xffffu, 0xffffffffu) : 0xffff0000u;
  atomicAdd(&out[t], __ballot_sync(mask, in[t] > 9));  // fault: mismatched_masks
}
extern "C" __global__ void sum_of_nobody(int* out, const int* in, int n) {
  // Without the fault lanes 2 and 3 read from lanes that are not there; as nobody uses what they get, that is harmless.
  int t = threadIdx.x;
  if (t < 4) {
    int x = in[t];
    x += __shfl_down_sync(0xf, x, EITHER(2, 4));  // fault: sum_of_nobody
    x += __shfl_down_sync(0xf, x, 1);
    if (t == 0) out[blockIdx.x] = x;
  }
}
extern "C" __global__ void unequal_counts(int* out, const int* in, int n) {
  // A barrier for 64 threads and the same one for 96 at the same time.
  int t = threadIdx.x;
  if (t < 64) asm volatile("bar.sync 1, %0;" ::"r"(EITHER(128, 64)) : "memory");  // fault: unequal_counts other
  else asm volatile("bar.sync 1, %0;" ::"r"(EITHER(128, 96)) : "memory");  // fault: unequal_counts
  out[t] = in[t];
}
extern "C" __global__ void arrival_unawaited(int* out, const int* in, int n) {
  // Somebody arrives once more than anybody waits.
  int t = threadIdx.x;
  if (t < 32) asm volatile("bar.arrive 1, 64;" ::: "memory");
  else if (t < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
  out[t] = in[t];
  if (FAULT && t < 32) asm volatile("bar.arrive 2, 64;" ::: "memory");  // fault: arrival_unawaited
}
extern "C" __global__ void past_the_last_array(int* out, const int* in, int n) {
  // Shared memory ends with the last variable.
  __shared__ int three[3];
  int t = threadIdx.x;
  if (t < EITHER(3, 4)) three[t] = in[t];  // fault: past_the_last_array
  __syncthreads();
  out[t] = three[t % 3];
}

// ---- what looks like a fault and is none ----

extern "C" __global__ void rounds_and_exit(int* out, const int* in, int n) {
  // Like unequal_rounds, but the others have nothing left to do.
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, rounds = EITHER(3, t < 64 ? 3 : 2);
  for (int round = 0; round < rounds; round++) {
    out[i] = in[i] + round;
    __syncthreads();
  }
}
extern "C" __global__ void absent_and_exit(int* out, const int* in, int n) {
  // Like absent_lanes, but the others have nothing left to do.
  int t = threadIdx.x, x = in[t];
  if (t % 32 < EITHER(32, 16)) x += __shfl_xor_sync(0xffffffff, x, 1);
  atomicAdd(&out[t], x);
}

// ---- faults that the checks cannot see yet ----

extern "C" __global__ void volatile_unrolled_warp(int* out, const int* in, int n) {
  // The last steps of a sum as they were written before Volta: volatile, and no __syncwarp.
  __shared__ volatile int tile[64];
  int t = threadIdx.x;
  if (t >= 32) return;
  tile[t] = in[t], tile[t + 32] = 0;
  __syncwarp();
  for (int s = 16; s > 0; s /= 2) {
    int other = tile[t + s];  // fault: volatile_unrolled_warp read
    if (!FAULT) __syncwarp();
    tile[t] = tile[t] + other;  // fault: volatile_unrolled_warp write
    if (!FAULT) __syncwarp();
  }
  if (t == 0) out[0] = tile[0];
}
extern "C" __global__ void past_one_array(int* out, const int* in, int n) {
  // Beyond one shared array lies the next one.
  __shared__ int first[128], second[128];
  int t = threadIdx.x;
  first[t] = in[t], second[t] = 0;
  __syncthreads();
  out[t] = first[EITHER(t, t + 100)] + second[t];  // fault: past_one_array
}
