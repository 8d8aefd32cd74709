// What a pipeline on sm_90a is made of, one function for an instruction: mbarriers, tensor copies (TMA), products of a
// warp group (wgmma), the fence between ordinary accesses to shared memory and those of copies and products, and what
// blocks of a cluster and warp groups of different tasks need: registers that one gives another, barriers of some of the
// threads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using Barrier = unsigned long long;

// The CUtensorMap that the host encodes; pass it as `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap {
  char bytes[128];
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ---- mbarriers ----

// A phase is over after `arrivals` arrivals, and when the bytes that they announced have come.
__device__ __forceinline__ void init(Barrier& barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}
// The mbarriers that this thread has initialised are there for copies that are asked for after this, and for the other
// blocks of a cluster behind its next barrier.
__device__ __forceinline__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
__device__ __forceinline__ void arrive_and_expect(Barrier& barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}
// Until the phase of that parity is over. The one before the first has parity 1, and is over from the start.
__device__ __forceinline__ void wait(Barrier& barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again;\n"
      "}" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}

// ---- tensor copies: one thread asks ----

// The box at (x, y) to shared memory; its bytes count at the mbarrier.
__device__ __forceinline__ void load_tile(void* tile, const TensorMap& map, int x, int y, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(tile)),
      "l"(&map), "r"(x), "r"(y), "r"(shared_address(&barrier))
      : "memory");
}
// The same of a tensor of three dimensions, or four, the innermost first.
__device__ __forceinline__ void load_tile(void* tile, const TensorMap& map, int x, int y, int z, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared_address(tile)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(&barrier))
      : "memory");
}
__device__ __forceinline__ void load_tile(void* tile, const TensorMap& map, int x, int y, int z, int w,
                                          Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared_address(tile)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(&barrier))
      : "memory");
}
__device__ __forceinline__ void store_tile(const TensorMap& map, int x, int y, const void* tile) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
               "r"(y), "r"(shared_address(tile))
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// This thread's ordinary accesses to shared memory so far come before copies and products that are ordered after this.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- products: four warps together ----

// A tile whose rows are 128 bytes of K each, in the 128-byte swizzle.
__device__ __forceinline__ unsigned long long descriptor(const void* tile) {
  return (shared_address(tile) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
// The same tile as b of a product that goes over its rows: 64 columns of the product in a row, and in the next tile,
// TILE_BYTES on, the next 64.
template <int TILE_BYTES> __device__ __forceinline__ unsigned long long descriptor_of_columns(const void* tile) {
  return (shared_address(tile) & 0x3ffff) >> 4 | (unsigned long long)(TILE_BYTES >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
__device__ __forceinline__ void open_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most N groups are pending.
template <int N> __device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// What a positive value is computed from stays ahead of what waits behind this: the assembler orders waits among each
// other, but has arithmetic wait too where it may.
__device__ __forceinline__ void compute_first(float value) {
  asm volatile(
      "{\n"
      ".reg .pred never;\n"
      "setp.lt.f32 never, %0, 0f00000000;\n"
      "@never nanosleep.u32 0;\n"
      "}" ::"f"(value)
      : "memory");
}

// What a thread has of the sums of a product with 16, 32, 64, 128 or 256 columns, in PTX and in C++.
#define SUMS_OF_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SUMS_OF_32 SUMS_OF_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS_OF_64 SUMS_OF_32 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_OF_128 SUMS_OF_64 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_OF_256 SUMS_OF_128 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_8(i) SUMS_4(i), SUMS_4(i + 4)
#define SUMS_16(i) SUMS_8(i), SUMS_8(i + 8)
#define SUMS_32(i) SUMS_16(i), SUMS_16(i + 16)
#define SUMS_64(i) SUMS_32(i), SUMS_32(i + 32)
#define SUMS_128(i) SUMS_64(i), SUMS_64(i + 64)

#define WGMMA(N, TYPE, A, B, REST) \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" SUMS_OF_##N "}, " A ", " B ", " REST ";"
#define WGMMA_IF(N, TYPE, A, B, ADDED, REST) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " ADDED ", 0;\n" WGMMA(N, TYPE, A, B, "p, " REST) "\n}"

// sums[64][N] += a[64][16] b[N][16]^T; with `added` = 0 what sums were does not count. A warp has 16 rows, a lane rows
// lane / 4 and 8 more, columns 8 j + 2 (lane % 4) and the next. Of __half or __nv_bfloat16; a is in shared memory as b,
// or in registers, as mma.m16n8k16 wants it. Then the columns of b are those of its tile (`descriptor_of_columns`).
#define PRODUCTS(N, SUMS, P0, P1, P2, P3, P4)                                                                          \
  template <typename T = __half>                                                                                       \
  __device__ __forceinline__ void multiply(float (&d)[N / 2], unsigned long long a, unsigned long long b) {            \
    if constexpr (IS_BFLOAT16<T>)                                                                                      \
      asm volatile(WGMMA(N, "bf16", P0, P1, "1, 1, 1, 0, 0") : SUMS(0) : "l"(a), "l"(b));                              \
    else                                                                                                               \
      asm volatile(WGMMA(N, "f16", P0, P1, "1, 1, 1, 0, 0") : SUMS(0) : "l"(a), "l"(b));                               \
  }                                                                                                                    \
  template <typename T = __half>                                                                                       \
  __device__ __forceinline__ void multiply(float (&d)[N / 2], unsigned long long a, unsigned long long b, int added) { \
    if constexpr (IS_BFLOAT16<T>)                                                                                      \
      asm volatile(WGMMA_IF(N, "bf16", P0, P1, P2, "1, 1, 0, 0") : SUMS(0) : "l"(a), "l"(b), "r"(added));              \
    else                                                                                                               \
      asm volatile(WGMMA_IF(N, "f16", P0, P1, P2, "1, 1, 0, 0") : SUMS(0) : "l"(a), "l"(b), "r"(added));               \
  }                                                                                                                    \
  template <typename T = __half>                                                                                       \
  __device__ __forceinline__ void multiply(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b) {          \
    if constexpr (IS_BFLOAT16<T>)                                                                                      \
      asm volatile(WGMMA(N, "bf16", "{" P0 ", " P1 ", " P2 ", " P3 "}", P4, "1, 1, 1, 1")                              \
                   : SUMS(0)                                                                                           \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                              \
    else                                                                                                               \
      asm volatile(WGMMA(N, "f16", "{" P0 ", " P1 ", " P2 ", " P3 "}", P4, "1, 1, 1, 1")                               \
                   : SUMS(0)                                                                                           \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                              \
  }

template <typename T> constexpr bool IS_BFLOAT16 = false;
template <> constexpr bool IS_BFLOAT16<__nv_bfloat16> = true;

PRODUCTS(16, SUMS_8, "%8", "%9", "%10", "%11", "%12")
PRODUCTS(32, SUMS_16, "%16", "%17", "%18", "%19", "%20")
PRODUCTS(64, SUMS_32, "%32", "%33", "%34", "%35", "%36")
PRODUCTS(128, SUMS_64, "%64", "%65", "%66", "%67", "%68")
PRODUCTS(256, SUMS_128, "%128", "%129", "%130", "%131", "%132")

// ---- blocks of a cluster ----

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Until all threads of all blocks have come.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Until all threads have come, of this block or of a cluster of BLOCKS.
template <int BLOCKS> __device__ __forceinline__ void meet_all() {
  if (BLOCKS > 1)
    cluster_barrier();
  else
    __syncthreads();
}
__device__ __forceinline__ unsigned in_block(unsigned address, unsigned rank) {
  unsigned out;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank));
  return out;
}
// An arrival at this block's mbarrier, or at that of another block.
__device__ __forceinline__ void arrive_in(Barrier& barrier, unsigned rank) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                   in_block(shared_address(&barrier), rank))
               : "memory");
}
// Until the phase of that parity is over, to which other blocks contributed.
__device__ __forceinline__ void wait_in_cluster(Barrier& barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again;\n"
      "}" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}
// A box to the same place of every block in the mask; its bytes count at the mbarrier of each.
__device__ __forceinline__ void multicast_tile(void* tile, const TensorMap& map, int x, int y, int z, Barrier& barrier,
                                               unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4}], [%5], %6;" ::"r"(shared_address(tile)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(&barrier)), "h"(blocks)
      : "memory");
}

// ---- warp groups of different tasks ----

// Of each thread of the warp group: with fewer registers for itself, or more once others have given theirs.
template <int N> __device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
// Until THREADS threads have come to the barrier (1 to 15), those that only announce themselves among them.
template <int THREADS> __device__ __forceinline__ void meet(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}
template <int THREADS> __device__ __forceinline__ void announce(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}
