// One warp multiplies 16 x 64 by 64 x 8 halves: zero-filling cp.async in two groups, shared memory swizzled by 16-byte
// chunks, ldmatrix with and without .trans, mma, as attention and GEMM libraries write it.
#include <cuda_fp16.h>

__device__ __forceinline__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void copy_16(unsigned to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2, %3;\n" ::"r"(to), "l"(from), "n"(16), "r"(bytes));
}

template <int Pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending));
}

// Row `row`, 16-byte chunk `chunk` of a tile with eight chunks to a row.
__device__ __forceinline__ int swizzle(int row, int chunk) { return row * 8 + (chunk ^ (row & 7)); }

extern "C" __global__ void gemm(const half* a, const half* b, float* c, int rows) {
  __shared__ alignas(128) uint4 tile_a[16 * 8];
  __shared__ alignas(128) uint4 tile_b[64 * 1];
  const int lane = threadIdx.x;
  for (int i = lane; i < 16 * 8; i += 32) {
    const int row = i / 8, chunk = i % 8;
    copy_16(shared_address(&tile_a[swizzle(row, chunk)]), a + row * 64 + chunk * 8, row < rows);
  }
  asm volatile("cp.async.commit_group;\n" ::);
  for (int i = lane; i < 64; i += 32) copy_16(shared_address(&tile_b[i]), b + i * 8, true);
  asm volatile("cp.async.commit_group;\n" ::);
  wait_for_copies<1>();
  __syncwarp();

  float d[4] = {0, 0, 0, 0};
  for (int k = 0; k < 4; ++k) {
    unsigned x[4], y[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(&tile_a[swizzle(lane % 16, 2 * k + lane / 16)])));
    if (k == 0) {
      wait_for_copies<0>();
      __syncwarp();
    }
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(y[0]), "=r"(y[1])
                 : "r"(shared_address(&tile_b[16 * k + lane % 16])));
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]));
  }
  const int row = lane / 4, column = lane % 4 * 2;
  asm volatile("st.global.v2.f32 [%0], {%1, %2};\n" ::"l"(c + row * 8 + column), "f"(d[0]), "f"(d[1]) : "memory");
  asm volatile("st.global.v2.f32 [%0], {%1, %2};\n" ::"l"(c + (row + 8) * 8 + column), "f"(d[2]), "f"(d[3]) : "memory");
}
