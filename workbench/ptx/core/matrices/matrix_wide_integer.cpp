// mma of 8-bit integers by 512-bit vectors, on processors that have them (wide.hpp).
#include "matrices/wide.hpp"
#include "processor.hpp"
#include "warp.hpp"

namespace workbench::ptx {

#ifdef __AVX2__
#define PTX_DOT_TARGET gnu::target("avx512f,avx512bw,avx512vnni")
#define PTX_DOT [[PTX_DOT_TARGET, gnu::always_inline]] inline

namespace {

using namespace wide;

// The processor multiplies unsigned bytes by signed ones. Where both factors are signed or both
// unsigned, A is shifted by 128; this adds (or subtracts) 128 times the sum of B's column, which is
// corrected in the sums.
template <class A, class B>
struct Dot {
  static constexpr bool moved = std::is_same_v<A, B>, unsigned_a = std::is_signed_v<B>;

  // Adds the products of four bytes.
  PTX_DOT static __m512i add(__m512i sums, __m512i a, __m512i b) {
    return unsigned_a ? _mm512_dpbusd_epi32(sums, a, b) : _mm512_dpbusd_epi32(sums, b, a);
  }
  // The representation of A's zero, in every byte.
  PTX_DOT static __m512i zero() { return _mm512_set1_epi8(static_cast<char>(moved ? 0x80 : 0)); }
};

// Orders a register of B by fours along K: the even columns of each, then the odd ones.
PTX_DOT void order_b(const u8* from, u32* b) {
  static constexpr Order<u32, 4> order;
#pragma GCC unroll 2
  for (u32 half = 0; half < 2; ++half)
    _mm512_store_si512(b + 16 * half, _mm512_permutex2var_epi32(load(from), load(order.from[half]),
                                                                load(from + kVector)));
}

template <class A, class B, u32 C>
PTX_DOT void multiply(const __m512i* a, const u32* b, __m512i* sums, __m512i* excess) {
  using Factors = Dot<A, B>;
  __m512i columns[2];
#pragma GCC unroll 2
  for (u32 odd = 0; odd < 2; ++odd)
    columns[odd] = _mm512_broadcast_i32x4(
        _mm_load_si128(reinterpret_cast<const __m128i*>(b + 8 * C + 4 * odd)));
#pragma GCC unroll 4
  for (u32 group = 0; group < kGroups; ++group) {
    const __m512i factors = _mm512_shuffle_epi32(a[group], static_cast<_MM_PERM_ENUM>(0x55 * C));
#pragma GCC unroll 2
    for (u32 odd = 0; odd < 2; ++odd)
      sums[2 * group + odd] = Factors::add(sums[2 * group + odd], factors, columns[odd]);
  }
  if constexpr (Factors::moved)
    for (u32 odd = 0; odd < 2; ++odd)
      excess[odd] = Factors::add(excess[odd], Factors::zero(), columns[odd]);
}

// The sum, saturated to s32.
PTX_DOT __m512i add_saturating(__m512i a, __m512i b) {
  const __m512i sum = _mm512_add_epi32(a, b);
  // Its sign differs from those of a and b.
  const __m512i beyond = _mm512_and_si512(_mm512_xor_si512(a, sum), _mm512_xor_si512(b, sum));
  const __m512i end =
      _mm512_xor_si512(_mm512_srai_epi32(a, 31), _mm512_set1_epi32(static_cast<int>(0x7fffffffu)));
  return _mm512_mask_mov_epi32(sum, _mm512_cmplt_epi32_mask(beyond, _mm512_setzero_si512()), end);
}

// The same as mma_integer_bytes of matrix_bytes.cpp.
template <class A, class B, u32 Steps, bool Saturate>
[[PTX_DOT_TARGET]] void multiply_integers_wide(u8* registers, const Instruction& in, u32 mask,
                                               Warp&) {
  alignas(kVector) u32 b[Steps][kLanes];
  for (u32 step = 0; step < Steps; ++step) order_b(registers + in.product.b[step], b[step]);
  // Otherwise the compiler would extract parts of vectors instead of loading them from memory.
  asm("" : "+m"(b));
  __m512i sums[2 * kGroups] = {}, excess[2] = {};
#pragma GCC unroll 2
  for (u32 step = 0; step < Steps; ++step) {
    __m512i a[kGroups];
#pragma GCC unroll 4
    for (u32 group = 0; group < kGroups; ++group)
      a[group] = _mm512_xor_si512(
          load(group_at(registers, in.product.a[2 * step], in.product.a[2 * step + 1], group)),
          Dot<A, B>::zero());
    multiply<A, B, 0>(a, b[step], sums, excess), multiply<A, B, 1>(a, b[step], sums, excess);
    multiply<A, B, 2>(a, b[step], sums, excess), multiply<A, B, 3>(a, b[step], sums, excess);
  }
#pragma GCC unroll 4
  for (u32 group = 0; group < kGroups; ++group)
#pragma GCC unroll 2
    for (u32 odd = 0; odd < 2; ++odd) {
      const __m512i products = _mm512_sub_epi32(sums[2 * group + odd], excess[odd]);
      const __m512i c = load(group_at(registers, in.product.c[odd], in.product.c[2 + odd], group));
      sums[2 * group + odd] =
          Saturate ? add_saturating(c, products) : _mm512_add_epi32(c, products);
    }
#pragma GCC unroll 4
  for (u32 group = 0; group < kGroups; ++group)
#pragma GCC unroll 2
    for (u32 odd = 0; odd < 2; ++odd)
      store(group_at(registers, in.product.d[odd], in.product.d[2 + odd], group),
            sums[2 * group + odd], mask, group);
}

template <class A, class B>
void replace_integers(Table& table, const std::string& types) {
  const std::string tail = "s32." + types + ".s32";
  replace(table, "m16n8k16." + tail, &multiply_integers_wide<A, B, 1, false>);
  replace(table, "m16n8k16.satfinite." + tail, &multiply_integers_wide<A, B, 1, true>);
  replace(table, "m16n8k32." + tail, &multiply_integers_wide<A, B, 2, false>);
  replace(table, "m16n8k32.satfinite." + tail, &multiply_integers_wide<A, B, 2, true>);
}

}  // namespace

void widen_integer_matrices(Table& table) {
  if (!supports_512() || !__builtin_cpu_supports("avx512vnni")) return;
  replace_integers<s8, s8>(table, "s8.s8"), replace_integers<u8, u8>(table, "u8.u8");
  replace_integers<s8, u8>(table, "s8.u8"), replace_integers<u8, s8>(table, "u8.s8");
}
#else
void widen_integer_matrices(Table&) {}
#endif

}  // namespace workbench::ptx
