// Threads that wait for each other by other means than one barrier for all.
constexpr int BLOCK = 128;

extern "C" __global__ void spin_lock(int* total, const int* in, int n, int* lock) {
  // One thread of each block adds to total, which is no atomic, under a lock of all blocks.
  __shared__ int sum;
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  if (t == 0) sum = 0;
  __syncthreads();
  if (i < n) atomicAdd(&sum, in[i]);  // sum
  __syncthreads();
  if (t == 0) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    *total += sum;  // under the lock
    __threadfence();
    atomicExch(lock, 0);
  }
}
extern "C" __global__ void warps_lock(int* total, const int* in, int n) {
  // The same within one block: the first lane of each warp takes a lock in shared memory.
  __shared__ int lock, sum;
  int t = threadIdx.x;
  if (t == 0) lock = 0, sum = 0;
  __syncthreads();
  int x = 0;
  for (int i = t; i < n; i += BLOCK) x += in[i];  // load
  for (int s = 16; s > 0; s /= 2) x += __shfl_down_sync(0xffffffff, x, s);
  if (t % 32 == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) {}
    sum += x;  // under the lock
    __threadfence_block();
    atomicExch(&lock, 0);
  }
  __syncthreads();
  if (t == 0) *total = sum;
}
__device__ void copy_async(float* to, const float* from) {
  unsigned address = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");  // copy
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
extern "C" __global__ void stream_async(float* out, const float* in, int n) {
  // One block reverses each run of 128 elements, three stages of copies ahead. n is a multiple of 128.
  __shared__ float stage[3][BLOCK];
  int t = threadIdx.x;
  for (int s = 0; s < 2; s++) {
    if (s * BLOCK < n) copy_async(&stage[s][t], in + s * BLOCK + t);
    commit_copies();
  }
  for (int run = 0; run * BLOCK < n; run++) {
    wait_copies<1>();
    __syncthreads();
    int next = run + 2;
    if (next * BLOCK < n) copy_async(&stage[next % 3][t], in + next * BLOCK + t);
    commit_copies();
    out[run * BLOCK + t] = stage[run % 3][BLOCK - 1 - t];
  }
}
__device__ void barrier_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ void barrier_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
extern "C" __global__ void named_barriers(float* out, const float* in, int runs) {
  // Warps 0 and 1 bring runs of 64 elements, warps 2 and 3 turn them round. Barrier 1 + s says that stage s is full,
  // 3 + s that it is empty again; each side waits at one and only arrives at the other.
  __shared__ float stage[2][64];
  int t = threadIdx.x % 64;
  if (threadIdx.x < 64) {
    for (int run = 0; run < runs; run++) {
      if (run >= 2) barrier_sync(3 + run % 2, BLOCK);
      stage[run % 2][t] = in[run * 64 + t];  // bring
      barrier_arrive(1 + run % 2, BLOCK);
    }
  } else {
    for (int run = 0; run < runs; run++) {
      barrier_sync(1 + run % 2, BLOCK);
      out[run * 64 + t] = stage[run % 2][63 - t];  // take
      if (run + 2 < runs) barrier_arrive(3 + run % 2, BLOCK);
    }
  }
}
extern "C" __global__ void specialised_warps(float* out, const float* in, int runs) {
  // Warp 0 brings, warp 1 takes; they tell each other through flags in shared memory how far they are.
  __shared__ float stage[2][32];
  __shared__ volatile int brought, taken;
  int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) brought = 0, taken = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int run = 0; run < runs; run++) {
      while (run - taken >= 2) {}
      stage[run % 2][lane] = in[run * 32 + lane];  // bring
      __threadfence_block();
      __syncwarp();
      if (lane == 0) brought = run + 1;
    }
  } else {
    for (int run = 0; run < runs; run++) {
      while (brought <= run) {}
      out[run * 32 + lane] = stage[run % 2][31 - lane];  // take
      __threadfence_block();
      __syncwarp();
      if (lane == 0) taken = run + 1;
    }
  }
}
