// What only Hopper has, one kernel each: to be refused by name, with the line and the reason.
#define ADDRESS(p) static_cast<unsigned>(__cvta_generic_to_shared(p))

extern "C" __global__ void bulk_copy(const int* in, int* out) {
  __shared__ alignas(128) int tile[32];
  __shared__ alignas(8) unsigned long long barrier;
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(ADDRESS(tile)), "l"(in), "r"(ADDRESS(&barrier)) : "memory");  // refused: TMA
  out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void expect_bytes(int* out) {
  __shared__ alignas(8) unsigned long long barrier;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(ADDRESS(&barrier)) : "memory");  // refused: TMA
}

extern "C" __global__ void neighbour(int* out) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(there) : "r"(threadIdx.x));  // refused: clusters
  out[threadIdx.x] = there;
}

extern "C" __global__ void cluster_barrier(int* out) {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");  // refused: clusters
}

extern "C" __global__ void cluster_rank(unsigned* out) {
  unsigned rank;
  asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));  // refused: clusters
  out[0] = rank;
}

extern "C" __global__ void warp_group(int* out) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // refused: warp-group
}

extern "C" __global__ void more_registers(int* out) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");  // refused: registers
}

extern "C" __global__ void proxies(int* out) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // refused: proxies
}

extern "C" __global__ void four_sums(float* out) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(out), "f"(1.0f) : "memory");  // refused: vector atomics
}
