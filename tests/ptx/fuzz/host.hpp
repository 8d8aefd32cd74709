// The words of CUDA C++ that random kernels use, for a C++ compiler: the threads of a block are fibers, which take
// turns and wait for each other at barriers and warp-wide functions; blocks run one after the other.
#pragma once
#include <fenv.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <cmath>
#include <type_traits>

#define __global__
#define __device__
#define __constant__ static
#define __noinline__
#define __shared__ static

struct uint3 { unsigned x, y, z; };
typedef uint3 dim3;
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

// ---- threads ----

namespace fibers {
constexpr int kMostThreads = 160;

struct Fiber {
  enum State { ready, at_barrier, at_warp, done } state;
  ucontext_t context;
  alignas(16) char stack[1 << 16];
  unsigned mask;
  uint64_t given, got[32];  // what it hands to the others, and what came from the lanes of its warp
};
inline Fiber all[kMostThreads];
inline int count;
inline ucontext_t scheduler;
inline Fiber* self;
inline int lane() { return (self - all) % 32; }

inline const uint64_t* wait(Fiber::State state, unsigned mask, uint64_t given) {
  self->state = state, self->mask = mask, self->given = given;
  swapcontext(&self->context, &scheduler);
  return self->got;
}
inline void release() {
  int waiting = 0, running = 0, sum = 0;
  for (Fiber* f = all; f != all + count; ++f) {
    running += f->state != Fiber::done, waiting += f->state == Fiber::at_barrier;
    sum += f->state == Fiber::at_barrier ? int(f->given) : 0;
  }
  if (waiting != 0 && waiting == running)
    for (Fiber* f = all; f != all + count; ++f)
      if (f->state == Fiber::at_barrier) f->state = Fiber::ready, f->got[0] = sum, f->got[1] = waiting;
  for (Fiber* warp = all; warp < all + count; warp += 32) {
    const int lanes = all + count - warp < 32 ? all + count - warp : 32;
    for (int i = 0; i < lanes; ++i) {
      const unsigned mask = warp[i].mask;
      unsigned come = 0;
      for (int j = 0; j < lanes; ++j)
        if (warp[j].state == Fiber::at_warp && warp[j].mask == mask) come |= 1u << j;
      if (warp[i].state != Fiber::at_warp || come != mask) continue;
      for (int j = 0; j < lanes; ++j)
        if (mask >> j & 1)
          for (int k = 0; k < lanes; ++k) warp[j].got[k] = warp[k].given;
      for (int j = 0; j < lanes; ++j)
        if (mask >> j & 1) warp[j].state = Fiber::ready;
    }
  }
}
inline void (*body)();
inline void enter() {
  body();
  self->state = Fiber::done;
  swapcontext(&self->context, &scheduler);
}
// Runs body() in every thread of a block; false if all that are left wait for others.
inline bool run_block() {
  count = blockDim.x * blockDim.y * blockDim.z;
  for (Fiber* f = all; f != all + count; ++f) {
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack, f->context.uc_stack.ss_size = sizeof f->stack, f->context.uc_link = nullptr;
    makecontext(&f->context, enter, 0);
    f->state = Fiber::ready;
  }
  for (;;) {
    bool moved = false, finished = true;
    for (int i = 0; i < count; ++i) {
      if (all[i].state != Fiber::ready) continue;
      self = &all[i], moved = true;
      threadIdx = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
      swapcontext(&scheduler, &self->context);
    }
    release();
    for (Fiber* f = all; f != all + count; ++f) finished &= f->state == Fiber::done;
    if (finished) return true;
    if (!moved) return false;
  }
}
}  // namespace fibers

inline void __syncthreads() { fibers::wait(fibers::Fiber::at_barrier, 0, 0); }
inline int __syncthreads_count(int p) { return fibers::wait(fibers::Fiber::at_barrier, 0, p != 0)[0]; }
inline int __syncthreads_or(int p) { return __syncthreads_count(p) != 0; }
inline int __syncthreads_and(int p) {
  const uint64_t* got = fibers::wait(fibers::Fiber::at_barrier, 0, p != 0);
  return got[0] == got[1];
}
template <class T> const uint64_t* of_warp(unsigned mask, T value) {
  uint64_t given = 0;
  memcpy(&given, &value, sizeof value);
  return fibers::wait(fibers::Fiber::at_warp, mask, given);
}
inline void __syncwarp(unsigned mask = ~0u) { of_warp(mask, 0); }
template <class T> T of_lane(unsigned mask, T value, int source) {
  memcpy(&value, of_warp(mask, value) + source, sizeof value);
  return value;
}
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return of_lane(mask, value, (fibers::lane() & ~(width - 1)) | (source & (width - 1)));
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = fibers::lane(), first = lane & ~(width - 1);
  return of_lane(mask, value, lane - int(by) >= first ? lane - int(by) : lane);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = fibers::lane(), last = lane | (width - 1);
  return of_lane(mask, value, lane + int(by) <= last ? lane + int(by) : lane);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  const int lane = fibers::lane(), last = lane | (width - 1);
  return of_lane(mask, value, (lane ^ by) <= last ? lane ^ by : lane);
}
template <class T, class F> T over_lanes(unsigned mask, T value, F function) {
  const uint64_t* got = of_warp(mask, value);
  bool first = true;
  T result{};
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    memcpy(&value, got + i, sizeof value);
    result = first ? value : function(result, value), first = false;
  }
  return result;
}
inline unsigned __ballot_sync(unsigned mask, int p) {
  const uint64_t* got = of_warp(mask, unsigned(p != 0));
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (mask >> i & 1) && got[i] ? 1u << i : 0;
  return result;
}
inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, p) == mask; }
template <class T> unsigned __match_any_sync(unsigned mask, T value) {
  const uint64_t* got = of_warp(mask, value);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (mask >> i & 1) && got[i] == got[fibers::lane()] ? 1u << i : 0;
  return result;
}
template <class T> unsigned __match_all_sync(unsigned mask, T value, int* all) {
  *all = __match_any_sync(mask, value) == mask;
  return *all ? mask : 0;
}
#define REDUCTION(name, type, expression) \
  inline type name(unsigned mask, type x) { return over_lanes(mask, x, [](type a, type b) -> type { return expression; }); }
REDUCTION(__reduce_add_sync, unsigned, a + b)
REDUCTION(__reduce_min_sync, unsigned, a < b ? a : b)
REDUCTION(__reduce_max_sync, unsigned, a > b ? a : b)
REDUCTION(__reduce_and_sync, unsigned, a & b)
REDUCTION(__reduce_or_sync, unsigned, a | b)
REDUCTION(__reduce_xor_sync, unsigned, a ^ b)
REDUCTION(__reduce_add_sync, int, int(unsigned(a) + unsigned(b)))
REDUCTION(__reduce_min_sync, int, a < b ? a : b)
REDUCTION(__reduce_max_sync, int, a > b ? a : b)

// ---- atomics: one thread runs at a time ----

#define ATOMIC(name, expression) \
  template <class T> T name(T* at, T value) { T old = *at; *at = expression; return old; }
ATOMIC(atomicAdd, old + value)
ATOMIC(atomicExch, value)
ATOMIC(atomicSub, old - value)
ATOMIC(atomicAnd, old & value)
ATOMIC(atomicOr, old | value)
ATOMIC(atomicXor, old ^ value)
ATOMIC(atomicMin, old < value ? old : value)
ATOMIC(atomicMax, old > value ? old : value)
ATOMIC(atomicInc, old >= value ? 0 : old + 1)
template <class T> T atomicCAS(T* at, T expected, T value) {
  T old = *at;
  if (old == expected) *at = value;
  return old;
}
template <class T> T __ldg(const T* at) { return *at; }
template <class T> T __ldcg(const T* at) { return *at; }

// ---- integers ----

template <class T> T min(T a, T b) { return a < b ? a : b; }
template <class T> T max(T a, T b) { return a > b ? a : b; }
inline int __popc(unsigned x) { return __builtin_popcountll(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(int64_t x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return x ? __builtin_ctz(x) + 1 : 0; }
inline int __ffsll(int64_t x) { return x ? __builtin_ctzll(x) + 1 : 0; }
template <class T> T turned_round(T x) {
  T result = 0;
  for (size_t i = 0; i < 8 * sizeof x; ++i) result |= (x >> i & 1) << (8 * sizeof x - 1 - i);
  return result;
}
inline unsigned __brev(unsigned x) { return turned_round(x); }
inline unsigned long long __brevll(unsigned long long x) { return turned_round(x); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const uint64_t both = uint64_t(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= unsigned(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return result;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) { return (uint64_t(hi) << 32 | lo) << (n & 31) >> 32; }
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) { return (uint64_t(hi) << 32 | lo) >> (n & 31); }
inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned n) { return n >= 32 ? lo : __funnelshift_l(lo, hi, n); }
inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned n) { return n >= 32 ? hi : __funnelshift_r(lo, hi, n); }
inline int __mulhi(int a, int b) { return int64_t(a) * b >> 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return uint64_t(a) * b >> 32; }
inline long long __mul64hi(long long a, long long b) { return __int128(a) * b >> 64; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned __int128)a * b >> 64; }
inline int __mul24(int a, int b) { return unsigned(int(unsigned(a) << 8) >> 8) * unsigned(int(unsigned(b) << 8) >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline unsigned __sad(int a, int b, unsigned c) { return unsigned(a > b ? int64_t(a) - b : int64_t(b) - a) + c; }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
inline int __hadd(int a, int b) { return (int64_t(a) + b) >> 1; }
inline int __rhadd(int a, int b) { return (int64_t(a) + b + 1) >> 1; }
inline unsigned __uhadd(unsigned a, unsigned b) { return (uint64_t(a) + b) >> 1; }
inline unsigned __urhadd(unsigned a, unsigned b) { return (uint64_t(a) + b + 1) >> 1; }
template <class A, class B, class T> T products(T a, T b, T sum, int from, int count) {
  unsigned result = unsigned(sum);
  for (int i = 0; i < count; ++i)
    result += unsigned(int(A(unsigned(a) >> 8 * sizeof(A) * i)) * int(B(unsigned(b) >> 8 * (i + from))));
  return T(result);
}
inline int __dp4a(int a, int b, int c) { return products<int8_t, int8_t>(a, b, c, 0, 4); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return products<uint8_t, uint8_t>(a, b, c, 0, 4); }
inline int __dp2a_lo(int a, int b, int c) { return products<int16_t, int8_t>(a, b, c, 0, 2); }
inline int __dp2a_hi(int a, int b, int c) { return products<int16_t, int8_t>(a, b, c, 2, 2); }
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) { return products<uint16_t, uint8_t>(a, b, c, 0, 2); }
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return products<uint16_t, uint8_t>(a, b, c, 2, 2); }
// Each part of two words by itself.
template <class Part, class F> unsigned parts(unsigned a, unsigned b, const F& function) {
  unsigned result = 0;
  for (unsigned i = 0; i < 32; i += 8 * sizeof(Part))
    result |= unsigned(std::make_unsigned_t<Part>(function(int(Part(a >> i)), int(Part(b >> i))))) << i;
  return result;
}
template <class Integer> constexpr Integer kLeast = std::is_signed_v<Integer> ? Integer(1ull << (8 * sizeof(Integer) - 1)) : 0;
template <class Integer> constexpr Integer kMost = Integer(~kLeast<Integer>);
template <class Part> int clamped(int x) { return x < kLeast<Part> ? kLeast<Part> : x > kMost<Part> ? kMost<Part> : x; }
#define PARTS(name, type, expression) \
  inline unsigned name(unsigned x, unsigned y) { return parts<type>(x, y, [](int a, int b) -> int { return expression; }); }
PARTS(__vadd2, uint16_t, a + b)
PARTS(__vadd4, uint8_t, a + b)
PARTS(__vsub2, uint16_t, a - b)
PARTS(__vsub4, uint8_t, a - b)
PARTS(__vaddss2, int16_t, clamped<int16_t>(a + b))
PARTS(__vaddus4, uint8_t, clamped<uint8_t>(a + b))
PARTS(__vsubss4, int8_t, clamped<int8_t>(a - b))
PARTS(__vabsdiffs2, int16_t, a > b ? a - b : b - a)
PARTS(__vabsdiffu4, uint8_t, a > b ? a - b : b - a)
PARTS(__vmaxs2, int16_t, a > b ? a : b)
PARTS(__vminu4, uint8_t, a < b ? a : b)
PARTS(__vavgu4, uint8_t, (a + b + 1) >> 1)
PARTS(__vcmpeq4, uint8_t, a == b ? -1 : 0)
PARTS(__vcmpgts2, int16_t, a > b ? -1 : 0)
PARTS(__vsetltu4, uint8_t, a < b)

// ---- floating point; _rn, _rz, _ru and _rd are the directions of rounding ----

template <class To, class From> To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof from);
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline unsigned __float_as_uint(float x) { return bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return bit_cast<double>(x); }
inline double __hiloint2double(int hi, int lo) { return bit_cast<double>(uint64_t(unsigned(hi)) << 32 | unsigned(lo)); }

struct Rounding {  // for its scope
  explicit Rounding(int direction) { fesetround(direction); }
  ~Rounding() { fesetround(FE_TONEAREST); }
};
#define DIRECTIONS(macro, ...) \
  macro(_rn, FE_TONEAREST, __VA_ARGS__) macro(_rz, FE_TOWARDZERO, __VA_ARGS__) \
  macro(_ru, FE_UPWARD, __VA_ARGS__) macro(_rd, FE_DOWNWARD, __VA_ARGS__)
#define BINARY(end, direction, name, type, op) \
  inline type name##end(type a, type b) { Rounding r(direction); return a op b; }
#define CALL(end, direction, name, type, function) \
  inline type name##end(type a) { Rounding r(direction); return function(a); }
#define FMA(end, direction, name, type) \
  inline type name##end(type a, type b, type c) { Rounding r(direction); return std::fma(a, b, c); }
DIRECTIONS(BINARY, __fadd, float, +)
DIRECTIONS(BINARY, __fsub, float, -)
DIRECTIONS(BINARY, __fmul, float, *)
DIRECTIONS(BINARY, __fdiv, float, /)
DIRECTIONS(BINARY, __dadd, double, +)
DIRECTIONS(BINARY, __dsub, double, -)
DIRECTIONS(BINARY, __dmul, double, *)
DIRECTIONS(BINARY, __ddiv, double, /)
DIRECTIONS(CALL, __fsqrt, float, std::sqrt)
DIRECTIONS(CALL, __dsqrt, double, std::sqrt)
DIRECTIONS(CALL, __frcp, float, 1.f /)
DIRECTIONS(CALL, __drcp, double, 1. /)
DIRECTIONS(FMA, __fmaf, float)
DIRECTIONS(FMA, __fma, double)

// The lesser and the greater one; a NaN gives way, and -0 is less than 0.
template <class T> T lesser(T a, T b) { return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b; }
template <class T> T greater(T a, T b) { return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? b : a) : a > b ? a : b; }
// As headers of the C library declare functions of these names, kernels call them by macros.
#define fminf lesser<float>
#define fmaxf greater<float>
#define fmin lesser<double>
#define fmax greater<double>
inline float __saturatef(float x) { return x != x || x <= 0.f ? 0.f : x > 1.f ? 1.f : x; }

// Conversions to integers saturate.
template <class I, class F> I to_integer(F from, double (*function)(double)) {
  const bool wide = sizeof(I) == 8 || sizeof(F) == 8;
  if (from != from) return wide ? I(std::make_unsigned_t<I>(1) << (8 * sizeof(I) - 1)) : I(0);
  const double x = function(double(from)), end = ldexp(1., 8 * sizeof(I) - std::is_signed_v<I>);
  const double begin = std::is_signed_v<I> ? -end : 0.;
  return x < begin ? kLeast<I> : x >= end ? kMost<I> : I(x);
}
inline double to_nearest(double x) { return std::nearbyint(x); }
inline double to_zero(double x) { return std::trunc(x); }
inline double upwards(double x) { return std::ceil(x); }
inline double downwards(double x) { return std::floor(x); }
#define TO_INTEGER(name, from, type) \
  inline type name##_rn(from x) { return to_integer<type>(x, to_nearest); } \
  inline type name##_rz(from x) { return to_integer<type>(x, to_zero); } \
  inline type name##_ru(from x) { return to_integer<type>(x, upwards); } \
  inline type name##_rd(from x) { return to_integer<type>(x, downwards); }
TO_INTEGER(__float2int, float, int)
TO_INTEGER(__float2uint, float, unsigned)
TO_INTEGER(__float2ll, float, long long)
TO_INTEGER(__float2ull, float, unsigned long long)
TO_INTEGER(__double2int, double, int)
TO_INTEGER(__double2uint, double, unsigned)
TO_INTEGER(__double2ll, double, long long)
TO_INTEGER(__double2ull, double, unsigned long long)
#define CONVERT(end, direction, name, from, type) \
  inline type name##end(from x) { Rounding r(direction); return type(x); }
DIRECTIONS(CONVERT, __int2float, int, float)
DIRECTIONS(CONVERT, __uint2float, unsigned, float)
DIRECTIONS(CONVERT, __ll2float, long long, float)
DIRECTIONS(CONVERT, __ull2float, unsigned long long, float)
DIRECTIONS(CONVERT, __ll2double, long long, double)
DIRECTIONS(CONVERT, __ull2double, unsigned long long, double)
DIRECTIONS(CONVERT, __double2float, double, float)

// ---- half precision, rounded once from a double ----

struct __half {
  uint16_t bits;
  double value() const { return double(bit_cast<_Float16>(bits)); }
};
inline __half half_of(double x) { return {bit_cast<uint16_t>(_Float16(x))}; }
inline __half __float2half_rn(float x) { return half_of(x); }
// Towards zero: from the nearest one a step back, if that went too far.
inline __half __float2half_rz(float x) {
  __half h = half_of(x);
  if (x == x && std::fabs(h.value()) > std::fabs(double(x)) && !std::isinf(x)) --h.bits;
  return h;
}
inline float __half2float(__half x) { return float(x.value()); }
inline __half __int2half_rn(int x) { return half_of(x); }
inline __half __ushort_as_half(unsigned short x) { return {x}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline bool __hisnan(__half x) { return x.value() != x.value(); }
inline __half __hadd(__half a, __half b) { return half_of(a.value() + b.value()); }
inline __half __hsub(__half a, __half b) { return half_of(a.value() - b.value()); }
inline __half __hmul(__half a, __half b) { return half_of(a.value() * b.value()); }
// The product is exact; what the sum loses goes into its last bit, so that the second rounding is right.
inline __half __hfma(__half a, __half b, __half c) {
  const double p = a.value() * b.value(), q = c.value(), sum = p + q;
  const double back = sum - p, lost = (p - (sum - back)) + (q - back);
  uint64_t bits = bit_cast<uint64_t>(sum);
  if (std::isfinite(sum) && lost != 0 && !(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1 : -1;
  return half_of(bit_cast<double>(bits));
}
inline __half __hneg(__half a) { return {uint16_t(a.bits ^ 0x8000)}; }
inline __half __habs(__half a) { return {uint16_t(a.bits & 0x7fff)}; }
inline __half __hmin(__half a, __half b) { return half_of(lesser(a.value(), b.value())); }
inline __half __hmax(__half a, __half b) { return half_of(greater(a.value(), b.value())); }
inline bool __hlt(__half a, __half b) { return a.value() < b.value(); }
inline bool __hge(__half a, __half b) { return a.value() >= b.value(); }
inline bool __hneu(__half a, __half b) { return a.value() != b.value(); }
inline int __half2int_rz(__half x) { return to_integer<int>(float(x.value()), to_zero); }
inline unsigned __half2uint_rn(__half x) { return to_integer<unsigned>(float(x.value()), to_nearest); }
inline short __half2short_rd(__half x) { return to_integer<short>(float(x.value()), downwards); }
