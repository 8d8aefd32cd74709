// mma with floating-point sums by 512-bit vectors, on processors that have them (wide.hpp).
//
// Results are the same, bit for bit, as those of the handlers that these replace: products are
// exact and summed in the order of K.
#include "matrices/wide.hpp"
#include "processor.hpp"
#include "warp.hpp"

namespace workbench::ptx {

#ifdef __AVX2__
namespace {

using namespace wide;

// ---- B of a register as b[k][column], in the order of wide.hpp ----

template <class T>
PTX_WIDE void widen_b(const u8* from, T, f32* b) {  // of 16 bits
  static constexpr Order<u16, 8> order;
#pragma GCC unroll 2
  for (u32 half = 0; half < 2; ++half, b += 32) {
    const __m512i sorted =
        _mm512_permutex2var_epi16(load(from), load(order.from[half]), load(from + kVector));
    _mm512_store_ps(b, widen_sixteen(_mm512_castsi512_si256(sorted), T{}));
    _mm512_store_ps(b + 16, widen_sixteen(_mm512_extracti64x4_epi64(sorted, 1), T{}));
  }
}

PTX_WIDE void widen_b(const u8* from, Tf32, f32* b) {
  static constexpr Order<u32, 4> order;
  __m512 column;
#pragma GCC unroll 2
  for (u32 half = 0; half < 2; ++half) {
    split(_mm512_permutex2var_epi32(load(from), load(order.from[half]), load(from + kVector)),
          Tf32{}, &column);
    _mm512_store_ps(b + 16 * half, column);
  }
}

// The same for factors of 8 bits, multiplied by a scale.
template <class T>
void widen_bytes(const u8* from, f32 scale, f32* b) {
  alignas(kVector) Row rows[16];
  widen_columns<T, 1>(&from, rows);
  for (const Row& row : rows) {
    const Row ordered = __builtin_shufflevector(row, row, 0, 2, 4, 6, 1, 3, 5, 7) * scale;
    std::memcpy(b, &ordered, sizeof ordered);
    b += 8;
  }
}

// ---- 8-bit B by table lookup, on processors that can look up bytes: gives the upper 16 bits of
// each f32 ----

#define PTX_LOOK_UP gnu::target("avx512f,avx512bw,avx512vbmi")

template <class T>
struct Codes {
  alignas(kVector) u8 high[128], low[128];  // without the sign

  explicit Codes(f32 scale) {
    for (u32 code = 0; code < 128; ++code) {
      const f32 value = std::is_same_v<T, E5M2> ? to_f32(Half{static_cast<u16>(code << 8)})
                                                : T::decode(static_cast<u8>(code));
      high[code] = static_cast<u8>(bits_as<u32>(value * scale) >> 24);
      low[code] = static_cast<u8>(bits_as<u32>(value * scale) >> 16);
    }
  }
};
template <class T, class A>
const Codes<T> kCodes(kScale<A>);  // of factors for A

// Converts sixteen of 64 codes to f32.
template <u32 Part>
struct Sixteen {
  alignas(kVector) u8 from[kVector];

  constexpr Sixteen() : from{} {
    for (u32 i = 0; i < 16; ++i) {
      from[4 * i + 2] = static_cast<u8>(kVector + 16 * Part + i);
      from[4 * i + 3] = static_cast<u8>(16 * Part + i);
    }
  }
};

template <u32 Part>
[[PTX_LOOK_UP, gnu::always_inline]] inline void pick(__m512i high, __m512i low, f32* b) {
  static constexpr Sixteen<Part> sixteen;
  _mm512_store_si512(b + 16 * Part, _mm512_maskz_permutex2var_epi8(0xccccccccccccccccull, high,
                                                                   load(sixteen.from), low));
}

template <class T, class A>
[[PTX_LOOK_UP, gnu::noinline]] void look_up_b(const u8* from, f32* b) {
  static constexpr Order<u8, 16> order;
  const Codes<T>& table = kCodes<T, A>;
#pragma GCC unroll 2
  for (u32 half = 0; half < 2; ++half, b += kVector) {
    const __m512i codes =
        _mm512_permutex2var_epi8(load(from), load(order.from[half]), load(from + kVector));
    const __m512i size =
        _mm512_permutex2var_epi8(load(table.high), codes, load(table.high + kVector));
    const __m512i low = _mm512_permutex2var_epi8(load(table.low), codes, load(table.low + kVector));
    // Size
    //
    // (codes & sign).
    const __m512i high =
        _mm512_ternarylogic_epi32(size, codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);
    pick<0>(high, low, b), pick<1>(high, low, b), pick<2>(high, low, b), pick<3>(high, low, b);
  }
}

// ---- the products ----

// Adds the products of column C for each row in A's vectors.
template <u32 C, u32 Columns>
PTX_WIDE void multiply(const __m512 (*a)[Columns], const f32* b, __m512* sums) {
#pragma GCC unroll 4
  for (u32 k = 0; k < Columns; ++k) {
    const f32* row = b + 8 * (C * Columns + k);
    const __m512 even = _mm512_broadcast_f32x4(_mm_load_ps(row)),
                 odd = _mm512_broadcast_f32x4(_mm_load_ps(row + 4));
#pragma GCC unroll 4
    for (u32 group = 0; group < kGroups; ++group) {
      const __m512 factors = _mm512_permute_ps(a[group][k], 0x55 * C);
      sums[2 * group] = _mm512_fmadd_ps(factors, even, sums[2 * group]);
      sums[2 * group + 1] = _mm512_fmadd_ps(factors, odd, sums[2 * group + 1]);
    }
  }
}

template <class Sum>
PTX_WIDE void read_sums(u8* registers, const u32* slots, u32 group, __m512* sums) {
  if constexpr (std::is_same_v<Sum, f32>) {
    for (u32 odd = 0; odd < 2; ++odd)
      sums[odd] = _mm512_castsi512_ps(load(group_at(registers, slots[odd], slots[2 + odd], group)));
  } else {
    split(load(group_at(registers, slots[0], slots[1], group)), Half{}, sums);
  }
}

// Like to_half: every NaN becomes the canonical one.
PTX_WIDE __m512i narrow(__m512 values) {
  const __m512i halves =
      _mm512_cvtepu16_epi32(_mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  return _mm512_mask_mov_epi32(halves, _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q),
                               _mm512_set1_epi32(0x7fff));
}

template <class Sum>
PTX_WIDE void write_sums(const __m512* sums, u32 mask, u8* registers, const u32* slots, u32 group) {
  if constexpr (std::is_same_v<Sum, f32>) {
    for (u32 odd = 0; odd < 2; ++odd)
      store(group_at(registers, slots[odd], slots[2 + odd], group), _mm512_castps_si512(sums[odd]),
            mask, group);
  } else {
    store(group_at(registers, slots[0], slots[1], group),
          _mm512_or_si512(narrow(sums[0]), _mm512_slli_epi32(narrow(sums[1]), 16)), mask, group);
  }
}

// multiply_add of tiles.hpp. `Tables`: convert 8-bit factors of B by table lookup.
template <class A, class B, u32 Steps, class D, class C, bool Tables>
[[PTX_WIDE_TARGET]] void multiply_add_wide(u8* registers, const Instruction& in, u32 mask, Warp&) {
  constexpr u32 depth = kDepth<A>;
  constexpr bool bytes = kColumns<A> == 4;
  alignas(kVector) f32 b[Steps][depth * 8];
#pragma GCC unroll 2
  for (u32 step = 0; step < Steps; ++step) {
    const u8* from = registers + in.product.b[step];
    if constexpr (!bytes)
      widen_b(from, B{}, b[step]);
    else if constexpr (Tables)
      look_up_b<B, A>(from, b[step]);
    else
      widen_bytes<B>(from, kScale<A>, b[step]);
  }
  // Otherwise the compiler would extract parts of vectors instead of loading them from memory.
  asm("" : "+m"(b));
  __m512 sums[2 * kGroups];
#pragma GCC unroll 4
  for (u32 group = 0; group < kGroups; ++group)
    read_sums<C>(registers, in.product.c, group, sums + 2 * group);
#pragma GCC unroll 2
  for (u32 step = 0; step < Steps; ++step) {
    const u32 upper = in.product.a[2 * step], lower = in.product.a[2 * step + 1];
    __m512 a[kGroups][kColumns<A>];
#pragma GCC unroll 4
    for (u32 group = 0; group < kGroups; ++group)
      split(load(group_at(registers, upper, lower, group)), A{}, a[group]);
    multiply<0>(a, b[step], sums), multiply<1>(a, b[step], sums);
    multiply<2>(a, b[step], sums), multiply<3>(a, b[step], sums);
  }
#pragma GCC unroll 4
  for (u32 group = 0; group < kGroups; ++group)
    write_sums<D>(sums + 2 * group, mask, registers, in.product.d, group);
}

template <class T, u32 Steps, class D, class C>
void replace_one(Table& table, const std::string& name) {
  replace(table, name, &multiply_add_wide<T, T, Steps, D, C, false>);
}

template <class A, class B, bool Tables>
void replace_bytes(Table& table, const std::string& types) {
  replace(table, "m16n8k32.f32." + types + ".f32", &multiply_add_wide<A, B, 2, f32, f32, Tables>);
  replace(table, "m16n8k32.f16." + types + ".f16", &multiply_add_wide<A, B, 2, Half, Half, Tables>);
  replace(table, "m16n8k16.f32." + types + ".f32", &multiply_add_wide<A, B, 1, f32, f32, Tables>);
  replace(table, "m16n8k16.f16." + types + ".f16", &multiply_add_wide<A, B, 1, Half, Half, Tables>);
}

template <bool Tables>
void replace_all_bytes(Table& table) {
  replace_bytes<E4M3, E4M3, Tables>(table, "e4m3.e4m3");
  replace_bytes<E5M2, E5M2, Tables>(table, "e5m2.e5m2");
  replace_bytes<E4M3, E5M2, Tables>(table, "e4m3.e5m2");
  replace_bytes<E5M2, E4M3, Tables>(table, "e5m2.e4m3");
}

}  // namespace

void widen_matrices(Table& table) {
  if (!supports_512()) return;
  replace_one<Half, 2, f32, f32>(table, "m16n8k16.f32.f16.f16.f32");
  replace_one<Half, 1, f32, f32>(table, "m16n8k8.f32.f16.f16.f32");
  replace_one<Bfloat, 2, f32, f32>(table, "m16n8k16.f32.bf16.bf16.f32");
  replace_one<Bfloat, 1, f32, f32>(table, "m16n8k8.f32.bf16.bf16.f32");
  replace_one<Half, 2, Half, Half>(table, "m16n8k16.f16.f16.f16.f16");
  replace_one<Half, 2, f32, Half>(table, "m16n8k16.f32.f16.f16.f16");
  replace_one<Half, 2, Half, f32>(table, "m16n8k16.f16.f16.f16.f32");
  replace_one<Half, 1, Half, Half>(table, "m16n8k8.f16.f16.f16.f16");
  replace_one<Tf32, 2, f32, f32>(table, "m16n8k8.f32.tf32.tf32.f32");
  replace_one<Tf32, 1, f32, f32>(table, "m16n8k4.f32.tf32.tf32.f32");
  if (__builtin_cpu_supports("avx512vbmi"))
    replace_all_bytes<true>(table);
  else
    replace_all_bytes<false>(table);
}
#else
void widen_matrices(Table&) {}
#endif

}  // namespace workbench::ptx
