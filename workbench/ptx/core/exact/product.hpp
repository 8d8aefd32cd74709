// Products of matrices of codes: sums of products in 32 bits, reduced once.
#pragma once
#ifdef __AVX2__
#include <immintrin.h>
#endif
#include "exact/lanes.hpp"
#include "matrices/small_float.hpp"

namespace workbench::ptx::exact {

constexpr u32 kColumns = 8;

// Codes between -M/2 and M/2: a product of two and the sum of two products fit into 32 bits.
inline s16 centred(u16 code) {
  return static_cast<s16>(code > kModulus / 2 ? code - static_cast<int>(kModulus) : code);
}

// Factors of eight bits, by their codes.
template <class Format>
struct EightBits {
  using Bits = u8;
  static u16 read(u8 byte) {
    struct Table {
      u16 of[256];
      Table() {
        for (u32 i = 0; i < 256; ++i)
          of[i] = code_of(bits_as<u32>(Format::decode(static_cast<u8>(i))));
      }
    };
    static const Table table;
    return table.of[byte];
  }
};
// Eight columns of B, as pairs of adjacent K: the lower byte of each code, and what is above it.
template <u32 Depth>
struct RightFactor {
  alignas(64) s16 low[Depth / 2][kColumns][2], high[Depth / 2][kColumns][2];

  explicit RightFactor(const u16 (*codes)[Depth]) {  // of each column
    for (u32 column = 0; column < kColumns; ++column) {
      alignas(64) s16 lower[Depth], upper[Depth];
#pragma GCC ivdep
      for (u32 k = 0; k < Depth; ++k) {
        const s16 value = centred(codes[column][k]);
        lower[k] = static_cast<s16>(value & 0xff);
        upper[k] = static_cast<s16>(value >> 8);
      }
      for (u32 pair = 0; pair < Depth / 2; ++pair) {
        std::memcpy(low[pair][column], lower + 2 * pair, 2 * sizeof(s16));
        std::memcpy(high[pair][column], upper + 2 * pair, 2 * sizeof(s16));
      }
    }
  }
};

// whole / R modulo M, for whole < M * R (Montgomery).
inline u32 without_factor(u32 whole) {
  constexpr u32 inverse = inverse_of_modulus();
  const u32 upper = whole >> 16, back = (whole * inverse & 0xffff) * kModulus >> 16;
  return upper < back ? upper - back + kModulus : upper - back;
}

// The code of a sum of products of codes, of which one factor R is too many; `low` and `high` are
// sums of up to 32 products of a code and a byte.
inline u16 reduced(s32 low, s32 high) {
  constexpr u32 positive = 4200 * kModulus, by_256 = (u32{256} << 16) % kModulus;
  const u32 lower = without_factor(static_cast<u32>(low) + positive);
  const u32 upper = without_factor(without_factor(static_cast<u32>(high) + positive) * by_256);
  const u32 whole = lower + upper;
  return static_cast<u16>(whole >= kModulus ? whole - kModulus : whole);
}

// What `reduced` makes a[Depth] * b of, for eight columns; a has centred codes.
template <u32 Depth>
inline void multiply_row(const s16* a, const RightFactor<Depth>& b, s32* low, s32* high) {
#ifdef __AVX2__
  __m256i lows = _mm256_setzero_si256(), highs = lows;
  for (u32 pair = 0; pair < Depth / 2; ++pair) {
    s32 both;
    std::memcpy(&both, a + 2 * pair, sizeof both);
    const __m256i factor = _mm256_set1_epi32(both);
    const auto* low_pairs = reinterpret_cast<const __m256i*>(b.low[pair]);
    const auto* high_pairs = reinterpret_cast<const __m256i*>(b.high[pair]);
    lows = _mm256_add_epi32(lows, _mm256_madd_epi16(factor, _mm256_load_si256(low_pairs)));
    highs = _mm256_add_epi32(highs, _mm256_madd_epi16(factor, _mm256_load_si256(high_pairs)));
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(low), lows);
  _mm256_store_si256(reinterpret_cast<__m256i*>(high), highs);
#else
  for (u32 column = 0; column < kColumns; ++column) low[column] = high[column] = 0;
  for (u32 k = 0; k < Depth; ++k)
    for (u32 column = 0; column < kColumns; ++column) {
      low[column] += a[k] * b.low[k / 2][column][k % 2];
      high[column] += a[k] * b.high[k / 2][column][k % 2];
    }
#endif
}

// sums[Rows][8] += a[Rows][Depth] * b
template <u32 Rows, u32 Depth>
void multiply_rows(const u16 (*a)[Depth], const RightFactor<Depth>& b, u16 (*sums)[kColumns]) {
  alignas(32) s32 low[Rows * kColumns], high[Rows * kColumns];
  for (u32 row = 0; row < Rows; ++row) {
    alignas(64) s16 left[Depth];
#pragma GCC ivdep
    for (u32 k = 0; k < Depth; ++k) left[k] = centred(a[row][k]);
    multiply_row<Depth>(left, b, low + row * kColumns, high + row * kColumns);
  }
  u16* all = sums[0];
#pragma GCC ivdep
  for (u32 i = 0; i < Rows * kColumns; ++i) all[i] = sum_of(all[i], reduced(low[i], high[i]));
}

}  // namespace workbench::ptx::exact
