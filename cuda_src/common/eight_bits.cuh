// 8-bit elements of a cache as fp16, four of a register at a time, the first in its lowest byte. fp16 holds every e4m3,
// e5m2 and int8 value exactly, so that the scale can wait for the sums.
//
//   widen      two pairs of elements that are DISTANCE apart, whichever takes less: 2 the even and the odd ones, 1
//              neighbours
//   UNIT       what the numbers have still to be multiplied by
//
// The units for integers and logic, at two clocks for a warp's instruction, have most to do in a kernel that reads a
// byte per number: what counts here are their instructions.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

template <typename Code> struct EightBits;

// An e5m2 is the upper half of an fp16.
template <> struct EightBits<__nv_fp8_e5m2> {
  static constexpr float UNIT = 1.f;
  static constexpr int DISTANCE = 2;

  static __device__ __forceinline__ void widen(unsigned four, unsigned& even, unsigned& odd) {
    even = __byte_perm(four, 0u, 0x2404);
    odd = four & 0xff00ff00u;
  }
};

#if __CUDA_ARCH__ >= 890
// An instruction converts two neighbours.
template <> struct EightBits<__nv_fp8_e4m3> {
  static constexpr float UNIT = 1.f;
  static constexpr int DISTANCE = 1;

  static __device__ __forceinline__ void widen(unsigned four, unsigned& first, unsigned& second) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
        : "=r"(first), "=r"(second)
        : "r"(four));
  }
};
#else
// An e4m3 has an exponent bit less: moved down by one bit, the rest is an fp16 too small by 2^8, subnormal numbers
// included. The code of NaN, all ones, is made to reach into the fp16 exponent's uppermost bit.
template <> struct EightBits<__nv_fp8_e4m3> {
  static constexpr float UNIT = 256.f;
  static constexpr int DISTANCE = 2;

  static __device__ __forceinline__ void widen(unsigned four, unsigned& even, unsigned& odd) {
    const unsigned size = four & 0x7f7f7f7fu, next = size + 0x01010101u;
    const unsigned marked = size | (next & 0x80808080u);  // 0xff for NaN
    even = (marked & 0x00ff00ffu) << 7 | (four << 8 & 0x80008000u);
    odd = (marked & 0xff00ff00u) >> 1 | (four & 0x80008000u);
  }
};
#endif

// Bits below 2048 are the fp16 of that many 2^-24. Even codes, the sign's bit turned over and 1024 added, are 1152 too
// large. Odd ones are 256 too large if they have a sign: a product with a little more than 2^-8 is then rounded to 1 of
// those 2^-24, else to 0.
template <> struct EightBits<signed char> {
  static constexpr float UNIT = 16777216.f;
  static constexpr int DISTANCE = 2;

  static __device__ __forceinline__ void widen(unsigned four, unsigned& even, unsigned& odd) {
    unsigned raised;  // left alone, ptxas makes two instructions of it, each with its constant
    asm("lop3.b32 %0, %1, 0x00ff00ff, 0x04800480, 0x6a;" : "=r"(raised) : "r"(four));  // four & ... ^ ...
    even = bits_of(__hsub2(halves_of(raised), both(0x0480)));
    const __half2 codes = halves_of(__byte_perm(four, 0u, 0x4341));
    const __half2 negative = __hmul2_rn(codes, both(0x1c01));  // 2^-8 and a last bit
    odd = bits_of(__hfma2(negative, both(0xdc00), codes));     // -2^8
  }

  static __device__ __forceinline__ __half2 both(unsigned short bits) { return __half2half2(__ushort_as_half(bits)); }
  static __device__ __forceinline__ __half2 halves_of(unsigned bits) { return reinterpret_cast<const __half2&>(bits); }
  static __device__ __forceinline__ unsigned bits_of(__half2 pair) { return reinterpret_cast<const unsigned&>(pair); }
};

// `even` receives the first and the third element, `odd` the others.
template <typename Code>
__device__ __forceinline__ void widen_even_odd(unsigned four, unsigned& even, unsigned& odd) {
  EightBits<Code>::widen(EightBits<Code>::DISTANCE == 2 ? four : __byte_perm(four, 0u, 0x3120), even, odd);
}
