// Products of matrices of codes: sums of products in 32 bits, reduced once.
#pragma once
#ifdef __AVX2__
#include <immintrin.h>
#endif
#include <cmath>

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

  void set(u32 k, u32 column, u16 code) {
    const s16 value = centred(code);
    low[k / 2][column][k % 2] = static_cast<s16>(value & 0xff);
    high[k / 2][column][k % 2] = static_cast<s16>(value >> 8);
  }
};

// The code of a sum of products of codes, of which one factor R is too many.
inline u16 reduced(s32 low, s32 high) {
  const f64 whole = f64{256} * high + low;
  const f64 rest = whole - std::floor(whole * (1.0 / kModulus)) * kModulus;
  const s32 residue = static_cast<s32>(rest);  // the quotient may be one off
  const s32 least = residue < 0 ? residue + static_cast<s32>(kModulus) : residue;
  const s32 most = static_cast<s32>(kModulus);
  return product_of(static_cast<u16>(least >= most ? least - most : least), 1);
}

// sums[8] = a[Depth] * b; a has centred codes.
template <u32 Depth>
inline void multiply_row(const s16* a, const RightFactor<Depth>& b, u16* sums) {
  alignas(32) s32 low[kColumns] = {}, high[kColumns] = {};
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
  for (u32 k = 0; k < Depth; ++k)
    for (u32 column = 0; column < kColumns; ++column) {
      low[column] += a[k] * b.low[k / 2][column][k % 2];
      high[column] += a[k] * b.high[k / 2][column][k % 2];
    }
#endif
  for (u32 column = 0; column < kColumns; ++column)
    sums[column] = reduced(low[column], high[column]);
}

}  // namespace workbench::ptx::exact
