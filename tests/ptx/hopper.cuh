// What cuda_src/common/hopper.cuh has no kernel for: plain bulk copies, the smallest product, and clusters.
#pragma once
#include "../../cuda_src/common/hopper.cuh"

__device__ inline void load(void* to, const void* from, unsigned bytes, Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
               "r"(shared_address(&barrier))
               : "memory");
}
__device__ inline void store(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void wait_for_reads() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

__device__ inline void multiply(float (&d)[4], unsigned long long a, unsigned long long b, int keep) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "l"(a), "l"(b), "r"(keep));
}

__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline unsigned in_block(unsigned address, unsigned rank) {
  unsigned out;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank));
  return out;
}
// An arrival at this block's mbarrier, or at that of another block of the cluster.
__device__ inline void arrive_in(Barrier& barrier, unsigned rank) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(in_block(shared_address(&barrier), rank)) : "memory");
}
// Until the phase of that parity is over, to which other blocks of the cluster contributed.
__device__ inline void wait_in_cluster(Barrier& barrier, unsigned parity) {
  asm volatile("{\n.reg .pred over;\nagain: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n@!over bra again;\n}" ::"r"(
                   shared_address(&barrier)),
               "r"(parity)
               : "memory");
}
// The box at (x, y) to the same place of every block in the mask; its bytes count at the mbarrier of each.
__device__ inline void multicast_tile(void* tile, const TensorMap& map, int x, int y, Barrier& barrier, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(
          shared_address(tile)),
      "l"(&map), "r"(x), "r"(y), "r"(shared_address(&barrier)), "h"(blocks)
      : "memory");
}
// A barrier of the cluster that hands on what was fenced before it.
__device__ inline void cluster_barrier_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
