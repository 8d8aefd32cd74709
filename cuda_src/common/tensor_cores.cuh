// Tensor cores and what feeds them: asynchronous copies into shared memory, 8x8 matrices out of it, products of
// 16x16 and 16x8. Compute capability 8.0 and newer. Fragments: PTX ISA, "Matrix fragments for mma.m16n8k16".
#pragma once

#include "common/packing.cuh"

// Addresses in shared memory are 32-bit numbers here, as the instructions take them.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}

// Where 16-byte chunk `chunk` of row `row` lies in a tile of rows of CHUNKS chunks, in bytes. Eight rows that are read
// together must differ in the banks of their chunks, so chunks are exchanged inside groups of the largest power of two
// (at most 8) that divides a row.
template <int CHUNKS> __device__ __forceinline__ int swizzled(int row, int chunk) {
  constexpr int EXCHANGED = CHUNKS % 8 == 0 ? 8 : CHUNKS & -CHUNKS;
  return (row * CHUNKS + (chunk ^ row / (8 / EXCHANGED) % EXCHANGED)) * 16;
}

// Start copying BYTES (16 past L1, or 8, or 4) from global memory; of them the first `bytes` are read, the rest are
// zeros.
template <int BYTES> __device__ __forceinline__ void copy_async(unsigned to, const void* from, int bytes) {
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(bytes)
                 : "memory");
  }
}

// All copies that this thread has started since the last commit become one group, be there any or none.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until all but the newest PENDING groups of this thread have landed.
template <int PENDING> __device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Two floats of shared memory; `from` is a multiple of 8.
__device__ __forceinline__ float2 load_floats(unsigned from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(from) : "memory");
  return pair;
}

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8. A lane receives the
// elements 2 * (lane % 4) and the one after it of row lane / 4 of each.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

// The same, each matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(unsigned (&to)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

// sum += a * b for a [16, 16], b [16, 8] of T and sum [16, 8] in fp32: sum[0], sum[1] are the elements
// 2 * (lane % 4) and the one after it of row lane / 4, sum[2] and sum[3] those of row lane / 4 + 8.
template <typename T>
__device__ __forceinline__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <>
__device__ __forceinline__ void multiply_add<__half>(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                                     unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                                            unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
