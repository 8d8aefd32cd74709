// What random kernels share, for the GPU's compiler and for the CPU's: short names, and operations that C++ leaves
// undefined for some operands, made whole.
#pragma once
#ifdef __CUDACC__
#include <cuda_fp16.h>
#else
#include "host.hpp"
#endif

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;
typedef __half f16;

struct Mixed {
  u8 a;
  i16 b;
  f32 c;
  u64 d;
  i32 e[3];
};

// Copies that land when they are waited for.
template <class T> __device__ void copy_async(T* shared, const T* global) {
#ifdef __CUDACC__
  const u32 to = (u32)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(sizeof(T)) : "memory");
#else
  *shared = *global;
#endif
}
__device__ inline void await_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
#endif
}

// A value that compilers do not know: of fmax(-0., 0.) NVRTC makes -0 beforehand, as C allows, and the instruction does not.
__device__ inline f32 unknown(f32 x) {
#ifdef __CUDACC__
  asm volatile("" : "+f"(x));
#endif
  return x;
}
__device__ inline f64 unknown(f64 x) {
#ifdef __CUDACC__
  asm volatile("" : "+d"(x));
#endif
  return x;
}
template <class T> __device__ T whole_divide(T a, T b) { return b == T(0) || b == T(-1) ? a ^ b : a / b; }
template <class T> __device__ T whole_modulo(T a, T b) { return b == T(0) || b == T(-1) ? a ^ b : a % b; }
// The bits of a float, all NaNs alike.
__device__ inline u32 bits(f32 x) { return x != x ? 0x7fffffffu : __float_as_uint(x); }
__device__ inline u64 bits(f64 x) { return x != x ? 0x7fffffffffffffffull : (u64)__double_as_longlong(x); }
__device__ inline u32 bits(f16 x) { return __hisnan(x) ? 0x7fffu : __half_as_ushort(x); }
__device__ inline u32 bits(i32 x) { return (u32)x; }
__device__ inline u32 bits(u32 x) { return x; }
__device__ inline u64 bits(i64 x) { return (u64)x; }
__device__ inline u64 bits(u64 x) { return x; }
__device__ inline f32 with_sign(f32 x, f32 y) { return y != y ? x : copysignf(x, y); }
__device__ inline f64 with_sign(f64 x, f64 y) { return y != y ? x : copysign(x, y); }

#ifdef __CUDACC__
extern __shared__ u64 dynamic[];  // of one word for each thread
#else
static u64 dynamic[fibers::kMostThreads];
#endif

__constant__ u32 kTable[8] = {3, 0x80000000u, 77, 0, 0xffffffffu, 1u << 20, 12345, 8};
__device__ const f64 kScales[4] = {1.0, -2.5e-300, 3e10, 0.1};
__device__ const i16 kSteps[4] = {-1, 300, -32768, 7};

__device__ __noinline__ u32 deeper(u32 depth, u32 x) {
  if (depth == 0) return x * 3 + 1;
  const u32 below = deeper(depth - 1, x ^ depth);
  return x & 1 ? below + x : below ^ deeper(depth / 2, below);
}
__device__ __noinline__ Mixed turned(Mixed m, u32 by) {
  Mixed r = m;
  r.e[by % 3] = m.e[(by + 1) % 3];
  r.d = m.d ^ by;
  r.a = (u8)(m.a + by);
  r.b = (i16)(m.b - (i32)by);
  return r;
}
// Adds by compare and swap: the sum does not depend on the order.
__device__ inline void add_by_swaps(u32* cell, u32 value) {
  u32 seen = *(volatile u32*)cell, expected;
  do {
    expected = seen;
    seen = atomicCAS(cell, expected, expected + value);
  } while (seen != expected);
}

#ifndef __CUDACC__
typedef void Kernel(const u64* in, u64* out, u32* cells, Mixed given);

namespace fibers {
inline struct { Kernel* kernel; const u64* in; u64* out; u32* cells; Mixed given; } launched;
}

// Runs `kernel` block by block; 0, or the number of the block, counted from 1, whose threads wait for each other forever.
extern "C" inline __attribute__((used)) int launch(Kernel* kernel, int width, int height, int x, int y, int z, const u64* in,
                                                   u64* out, u32* cells, const Mixed* given) {
  fibers::launched = {kernel, in, out, cells, *given};
  fibers::body = [] {
    auto& l = fibers::launched;
    l.kernel(l.in, l.out, l.cells, l.given);
  };
  gridDim = {unsigned(width), unsigned(height), 1}, blockDim = {unsigned(x), unsigned(y), unsigned(z)};
  for (int block = 0; block < width * height; ++block) {
    blockIdx = {unsigned(block % width), unsigned(block / width), 0};
    if (!fibers::run_block()) return 1 + block;
  }
  return 0;
}
#endif
