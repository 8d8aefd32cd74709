// Eight 4-bit weights of a word to halves without one conversion instruction: nibbles are put into the mantissa of 1024
// with lop3, then 1024 (or 64 for the upper nibbles, scaled by 1/16) is taken away again.
#include <cuda_fp16.h>

template <int Table>
__device__ __forceinline__ unsigned lop3(unsigned a, unsigned b, unsigned c) {
  unsigned d;
  asm volatile("lop3.b32 %0, %1, %2, %3, %4;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(Table));
  return d;
}

extern "C" __global__ void dequantise(const unsigned* packed, const half* scale, half* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned word;
  asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];\n" : "=r"(word) : "l"(packed + i));
  constexpr int kAndOr = (0xf0 & 0xcc) | 0xaa;
  unsigned h[4];
  for (int j = 0; j < 2; ++j) {
    const unsigned q = word >> (8 * j);
    const unsigned low = lop3<kAndOr>(q, 0x000f000f, 0x64006400), high = lop3<kAndOr>(q, 0x00f000f0, 0x64006400);
    asm volatile("sub.f16x2 %0, %1, %2;\n" : "=r"(h[2 * j]) : "r"(low), "r"(0x64086408));  // 1024 + 8: weights are signed
    asm volatile("fma.rn.f16x2 %0, %1, %2, %3;\n" : "=r"(h[2 * j + 1]) : "r"(high), "r"(0x2c002c00), "r"(0xd480d480));
  }
  unsigned both;
  asm volatile("{ .reg .b16 s; ld.global.nc.b16 s, [%1]; mov.b32 %0, {s, s}; }\n" : "=r"(both) : "l"(scale + i));
  // Nibbles 0, 1, 4, 5, ... lie two by two in halves; prmt brings neighbours together.
  unsigned r[4];
  for (int j = 0; j < 4; ++j) asm volatile("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(h[j]) : "r"(h[j]), "r"(both));
  for (int j = 0; j < 2; ++j) {
    asm volatile("prmt.b32 %0, %1, %2, 0x5410;\n" : "=r"(r[j]) : "r"(h[2 * j]), "r"(h[2 * j + 1]));
    asm volatile("prmt.b32 %0, %1, %2, 0x7632;\n" : "=r"(r[2 + j]) : "r"(h[2 * j]), "r"(h[2 * j + 1]));
  }
  asm volatile("st.global.L1::no_allocate.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"l"(out + 8 * i), "r"(r[0]), "r"(r[1]), "r"(r[2]),
               "r"(r[3])
               : "memory");
}
