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
