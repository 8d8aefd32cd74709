// Kernels around mbarriers: rings of producers and consumers, copies that arrive, and the same with something left out.
#ifndef WAIT_FULL
#define WAIT_FULL 1
#endif
#ifndef WAIT_EMPTY
#define WAIT_EMPTY 1
#endif
#ifndef SYNC_AFTER_INIT
#define SYNC_AFTER_INIT 1
#endif

__device__ unsigned address_of(const void* shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }

__device__ void initialise(unsigned long long* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address_of(barrier)), "r"(count) : "memory");
}

__device__ void arrive(unsigned long long* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(address_of(barrier)) : "memory");
}

__device__ void wait(unsigned long long* barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred over;\n"
      "AGAIN: mbarrier.test_wait.parity.shared.b64 over, [%0], %1;\n"
      "@over bra DONE;\n bra AGAIN;\n DONE: }" ::"r"(address_of(barrier)), "r"(parity) : "memory");
}

// Warp 0 fills a ring of two stages, warps 1 and 2 add up what they find there.
extern "C" __global__ void ring(const float* in, float* out, int steps) {
  __shared__ unsigned long long full[2], empty[2];
  __shared__ float stage[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x < 2) {
    initialise(&full[threadIdx.x], 32);
    initialise(&empty[threadIdx.x], 64);
  }
  if (SYNC_AFTER_INIT) __syncthreads();
  float sum = 0;
  for (int i = 0; i < steps; ++i) {
    const int s = i % 2, turn = i / 2;
    if (warp == 0) {
      if (WAIT_EMPTY && turn > 0) wait(&empty[s], (turn - 1) & 1);
      stage[s][lane] = in[i * 32 + lane];
      arrive(&full[s]);
    } else {
      if (WAIT_FULL) wait(&full[s], turn & 1);
      sum += stage[s][31 - lane] * warp;
      arrive(&empty[s]);
    }
  }
  if (warp > 0) out[threadIdx.x - 32] = sum;
}

// Warp 0 copies with cp.async and lets the copies arrive by themselves; NOINC: counted among the 32, else on top.
extern "C" __global__ void copies(const float* in, float* out) {
  __shared__ unsigned long long full;
  __shared__ __align__(16) float stage[32 * 4];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) initialise(&full, 32);
  __syncthreads();
  if (warp == 0) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(&stage[4 * lane])), "l"(in + 4 * lane)
                 : "memory");
#ifdef NOINC
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address_of(&full)) : "memory");
#else
    asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(address_of(&full)) : "memory");
    arrive(&full);
#endif
  } else {
    if (WAIT_FULL) wait(&full, 0);
    out[lane] = stage[127 - lane];
  }
}

// Lanes of one warp wait for each other: the upper half stands at a higher pc and must get its turn.
extern "C" __global__ void halves(int* out) {
  __shared__ unsigned long long barrier;
  __shared__ int value;
  if (threadIdx.x == 0) initialise(&barrier, 16);
  __syncwarp();
  if (threadIdx.x < 16) {
    wait(&barrier, 0);
    out[threadIdx.x] = value;
  } else {
    if (threadIdx.x == 31) value = 7;
    arrive(&barrier);
  }
}

extern "C" __global__ void nobody_comes(int* out) {
  __shared__ unsigned long long barrier;
  if (threadIdx.x == 0) initialise(&barrier, 65);
  __syncthreads();
  arrive(&barrier);
  wait(&barrier, 0);
  out[threadIdx.x] = 1;
}
