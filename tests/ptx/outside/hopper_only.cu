// What only Hopper has and the machine has not, one kernel each: to be refused by name, with the line and the reason.
#define ADDRESS(p) static_cast<unsigned>(__cvta_generic_to_shared(p))

extern "C" __global__ void sum_of_blocks(int* out) {
  __shared__ alignas(128) int tile[64];
  __shared__ alignas(8) unsigned long long barrier;
  asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.s32 [%0], [%1], 128, [%2];" ::"r"(ADDRESS(tile + 32)), "r"(ADDRESS(tile)), "r"(ADDRESS(&barrier)) : "memory");  // refused: a bulk reduction in shared memory
  out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void image_box(const void* map, int* out) {
  __shared__ alignas(128) int tile[32];
  __shared__ alignas(8) unsigned long long barrier;
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %2}], [%3], {%4};" ::"r"(ADDRESS(tile)), "l"(map), "r"(0), "r"(ADDRESS(&barrier)), "h"((short)0) : "memory");  // refused: im2col
  out[threadIdx.x] = tile[threadIdx.x];
}
