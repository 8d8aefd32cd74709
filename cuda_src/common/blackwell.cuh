// What a pipeline on sm_100a has beside Hopper's, one function for an instruction: tensor memory, 128 lanes of 512
// columns of 32 bits, which a block allocates by columns; products that one thread asks for and that keep their sums
// there (tcgen05.mma); loads and stores of it, and what orders them all.
//
// An address of tensor memory has its lane in the upper half and its column in the lower. Warp w of a block loads and
// stores lanes 32 (w % 4) to 32 (w % 4) + 31 alone, lane by lane.
#pragma once

#include "hopper.cuh"

// ---- allocation: of a whole warp, and over when the instruction is ----

// Writes the address of so many columns, a power of two from 32 to 512, to shared memory; the block allocates no more.
template <int COLUMNS> __device__ __forceinline__ void allocate_columns(unsigned& address) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(&address)),
               "n"(COLUMNS)
               : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
template <int COLUMNS> __device__ __forceinline__ void free_columns(unsigned address) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(COLUMNS) : "memory");
}
__device__ constexpr int columns_to_allocate(int used) {
  int columns = 32;
  while (columns < used) columns *= 2;
  return columns;
}

// ---- copies: one thread asks ----

// So many bytes, a multiple of 16 from such a place to such a place, to shared memory; they count at the mbarrier.
__device__ __forceinline__ void load_bytes(void* to, const void* from, unsigned bytes, Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier))
               : "memory");
}

// ---- order ----

// Around whatever threads synchronise by (a barrier, an mbarrier): products, copies, loads and stores of one before it
// come before those of another after it. `arrive_after_products` has the first fence itself.
__device__ __forceinline__ void fence_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// ---- products: one thread asks ----

// The descriptor of a tile whose rows are 128 bytes of K each, in the 128-byte swizzle.
__device__ __forceinline__ unsigned long long tile_of(const void* tile) { return descriptor(tile) | 1ull << 46; }
// The same tile as b of a product that goes over its rows, its next 64 columns TILE_BYTES on.
template <int TILE_BYTES> __device__ __forceinline__ unsigned long long tile_of_columns(const void* tile) {
  return descriptor_of_columns<TILE_BYTES>(tile) | 1ull << 46;
}

// The instruction descriptor of a product of __half or __nv_bfloat16 with sums in fp32. OVER_ROWS: b is a
// `tile_of_columns`.
template <typename T> __device__ constexpr unsigned product_shape(int rows, int columns, bool over_rows = false) {
  constexpr unsigned type = IS_BFLOAT16<T> ? 1 : 0;
  return 1u << 4 | type << 7 | type << 10 | unsigned(over_rows) << 16 | unsigned(columns / 8) << 17 |
         unsigned(rows / 16) << 24;
}
// sums[rows][columns] += a[rows][16] b[columns][16]^T; with `added` = 0 what sums were does not count. Row i of sums is
// lane i of tensor memory. The products of a thread happen in the order in which it asks for them.
__device__ __forceinline__ void multiply(unsigned sums, unsigned long long a, unsigned long long b, unsigned shape,
                                         int added) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %4, 0;\n"
      "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n"
      "}" ::"r"(sums),
      "l"(a), "l"(b), "r"(shape), "r"(added)
      : "memory");
}
// With a in tensor memory, two elements in a column.
__device__ __forceinline__ void multiply(unsigned sums, unsigned a, unsigned long long b, unsigned shape, int added) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %4, 0;\n"
      "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p;\n"
      "}" ::"r"(sums),
      "r"(a), "l"(b), "r"(shape), "r"(added)
      : "memory");
}
// sums[128][N] += (a scales_a)[128][32] (b scales_b)[N][32]^T of e4m3, a scale (ue8m0) for 32 elements of a row; or of
// e2m1 [64], a scale (ue4m3) for 16. Scales are in tensor memory, 128 rows in four columns: row r in lane r % 32 of
// column r / 32, which has four bytes along K. Of e4m3 the shape says which of them (`scaled_shape`).
__device__ __forceinline__ void multiply_mxfp8(unsigned sums, unsigned long long a, unsigned long long b,
                                               unsigned shape, unsigned scales_a, unsigned scales_b, int added) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %6, 0;\n"
      "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%0], %1, %2, %3, [%4], [%5], p;\n"
      "}" ::"r"(sums),
      "l"(a), "l"(b), "r"(shape), "r"(scales_a), "r"(scales_b), "r"(added)
      : "memory");
}
__device__ __forceinline__ void multiply_nvfp4(unsigned sums, unsigned long long a, unsigned long long b,
                                               unsigned shape, unsigned scales_a, unsigned scales_b, int added) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %6, 0;\n"
      "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], p;\n"
      "}" ::"r"(sums),
      "l"(a), "l"(b), "r"(shape), "r"(scales_a), "r"(scales_b), "r"(added)
      : "memory");
}
__device__ constexpr unsigned scaled_shape(int rows, int columns, bool fp4, int byte = 0) {
  const unsigned type = fp4 ? 1 : 0;
  return unsigned(byte) << 4 | type << 7 | type << 10 | unsigned(columns / 8) << 17 | unsigned(!fp4) << 23 |
         unsigned(rows / 16) << 24 | unsigned(byte) << 29;
}
// The 512 bytes of the scales of 128 rows from shared memory to four columns, [32][4 columns][4], for all warps' lanes.
__device__ __forceinline__ void copy_scales(unsigned columns, const void* scales) {
  const unsigned long long from = (shared_address(scales) & 0x3ffff) >> 4 | 8ull << 32 | 1ull << 46;
  asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(columns), "l"(from) : "memory");
}
// Arrives once all products and copies that this thread has asked for are done.
__device__ __forceinline__ void arrive_after_products(Barrier& barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   shared_address(&barrier))
               : "memory");
}

// ---- loads and stores: of a whole warp ----

#define WORDS_4(i, c) c(x[i]), c(x[i + 1]), c(x[i + 2]), c(x[i + 3])
#define WORDS_16(i, c) WORDS_4(i, c), WORDS_4(i + 4, c), WORDS_4(i + 8, c), WORDS_4(i + 12, c)
#define WORDS_32(c) WORDS_16(0, c), WORDS_16(16, c)
#define WORDS_1_TO_32 \
  "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16" \
  ", %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32"

// 32 columns of a thread's lane. Whoever uses them waits first.
__device__ __forceinline__ void load_columns(float* x, unsigned address) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {" SUMS_OF_64 "}, [%32];"
               : WORDS_32("=f")
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void store_columns(unsigned address, const float* x) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {" WORDS_1_TO_32 "};" ::"r"(address), WORDS_32("f")
               : "memory");
}
__device__ __forceinline__ void store_columns(unsigned address, const unsigned* x) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {" WORDS_1_TO_32 "};" ::"r"(address), WORDS_32("r")
               : "memory");
}
// Until all loads of the warp are done. Nothing is computed from what they loaded before this, though the compiler does
// not know of the wait.
template <int N> __device__ __forceinline__ void wait_for_loads(float (&loaded)[N]) {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(loaded[i]));
}
__device__ __forceinline__ void wait_for_column_stores() {
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}
