// Warps with roles: named barriers hand two buffers back and forth between a loading and two computing warps, one lane is
// elected, a programmatic launch dependence is awaited, and a warp sleeps a little. For sm_90 and newer.
template <int Count>
__device__ __forceinline__ void barrier_sync(int id) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "n"(Count) : "memory");
}
template <int Count>
__device__ __forceinline__ void barrier_arrive(int id) {
  asm volatile("barrier.cta.arrive %0, %1;\n" ::"r"(id), "n"(Count) : "memory");
}

__device__ __forceinline__ bool elected() {
  unsigned predicate = 0;
  asm volatile(
      "{\n.reg .pred p;\n elect.sync _|p, %1;\n @p mov.s32 %0, 1;\n}\n" : "+r"(predicate) : "r"(0xffffffff));
  return predicate;
}

extern "C" __global__ void roles(const int* in, int* out, int rounds) {
  __shared__ int buffer[2][32];
  enum { kFull = 1, kEmpty = 3 };  // two barriers each
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) {
    for (int r = 0; r < rounds; ++r) {
      if (r >= 2) barrier_sync<96>(kEmpty + r % 2);
      buffer[r % 2][lane] = in[32 * r + lane];
      barrier_arrive<96>(kFull + r % 2);
      asm volatile("nanosleep.u32 20;\n");
    }
    if (elected()) out[64] = rounds;
  } else {
    int sum = 0;
    for (int r = 0; r < rounds; ++r) {
      barrier_sync<96>(kFull + r % 2);
      sum += buffer[r % 2][warp == 1 ? lane : 31 - lane];
      if (r + 2 < rounds) barrier_arrive<96>(kEmpty + r % 2);
    }
    out[threadIdx.x - 32] = sum;
  }
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

// Barriers in shared memory as CUTLASS waits for them: try_wait in a loop of its own labels, twice in one kernel.
__device__ __forceinline__ void wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred P1;\nLAB_WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1, %2;\n"
      "@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}\n" ::"r"(barrier), "r"(parity), "r"(0x989680));
}

extern "C" __global__ void phases(int* out) {
  __shared__ alignas(8) unsigned long long barrier;
  __shared__ int value;
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(at), "r"(1));
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= 32) {
    wait(at, 0);
    out[threadIdx.x - 32] = value;
    asm volatile("bar.sync 2, 64;\n" ::: "memory");
    wait(at, 1);
    out[threadIdx.x] = value;
  } else {
    for (int turn = 0; turn < 2; ++turn) {
      if (threadIdx.x == 0) {
        value = 10 + turn;
        asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];\n" ::"r"(at) : "memory");
      }
      if (turn == 0) asm volatile("bar.sync 2, 64;\n" ::: "memory");
    }
  }
}
