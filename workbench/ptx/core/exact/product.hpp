// Products of matrices of codes: sums of products in 32 bits, reduced once.
#pragma once
#include "exact/lanes.hpp"
#include "matrices/wide.hpp"
#include "processor.hpp"

namespace workbench::ptx::exact {

constexpr u32 kColumns = 8;

// Codes between -M/2 and M/2: a product of two and the sum of two products fit into 32 bits.
inline s16 centred(u16 code) {
  return static_cast<s16>(code > kModulus / 2 ? code - static_cast<int>(kModulus) : code);
}

// Factors of eight bits and less, by their bytes.
template <class Format>
struct EightBits {
  using Bits = u8;
  static const u16* codes() {
    struct Table {
      u16 of[256];
      Table() {
        for (u32 i = 0; i < 256; ++i)
          of[i] = code_of(bits_as<u32>(Format::decode(static_cast<u8>(i))));
      }
    };
    static const Table table;
    return table.of;
  }
  static u16 read(u8 byte) { return codes()[byte]; }
};

// Sixteen rows of A, by their centred codes.
template <u32 Depth>
struct LeftFactor {
  alignas(64) s16 at[16][Depth];

  LeftFactor() = default;
  explicit LeftFactor(const u16 (*codes)[Depth]) {
    for (u32 row = 0; row < 16; ++row)
#pragma GCC ivdep
      for (u32 k = 0; k < Depth; ++k) at[row][k] = centred(codes[row][k]);
  }
};
// Eight columns of B, as pairs of adjacent K: the lower byte of each code, and what is above it.
template <u32 Depth>
struct RightFactor {
  alignas(64) s16 at[Depth / 2][2][kColumns][2];

  RightFactor() = default;
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
        std::memcpy(at[pair][0][column], lower + 2 * pair, 2 * sizeof(s16));
        std::memcpy(at[pair][1][column], upper + 2 * pair, 2 * sizeof(s16));
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

constexpr u32 kPositive = 4200 * kModulus;  // makes such a sum positive
constexpr u32 kBy256 = (u32{256} << 16) % kModulus;

// The code of a sum of products of codes, of which one factor R is too many; `low` and `high` are
// sums of up to 32 products of a code and a byte.
inline u16 reduced(s32 low, s32 high) {
  const u32 lower = without_factor(static_cast<u32>(low) + kPositive);
  const u32 upper = without_factor(without_factor(static_cast<u32>(high) + kPositive) * kBy256);
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
    const auto* low_pairs = reinterpret_cast<const __m256i*>(b.at[pair][0]);
    const auto* high_pairs = reinterpret_cast<const __m256i*>(b.at[pair][1]);
    lows = _mm256_add_epi32(lows, _mm256_madd_epi16(factor, _mm256_load_si256(low_pairs)));
    highs = _mm256_add_epi32(highs, _mm256_madd_epi16(factor, _mm256_load_si256(high_pairs)));
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(low), lows);
  _mm256_store_si256(reinterpret_cast<__m256i*>(high), highs);
#else
  for (u32 column = 0; column < kColumns; ++column) low[column] = high[column] = 0;
  for (u32 k = 0; k < Depth; ++k)
    for (u32 column = 0; column < kColumns; ++column) {
      low[column] += a[k] * b.at[k / 2][0][column][k % 2];
      high[column] += a[k] * b.at[k / 2][1][column][k % 2];
    }
#endif
}

#ifdef __AVX2__
// The same for sixteen columns or rows in 512 bits. A product of 16 bits in the lower half of each
// lane leaves the upper half zero, as the constants have zeros there.
PTX_WIDE __m512i below_modulus(__m512i difference) {
  return _mm512_min_epu32(difference, _mm512_add_epi32(difference, _mm512_set1_epi32(kModulus)));
}
PTX_WIDE __m512i without_factor(__m512i upper, __m512i lower) {
  const __m512i times = _mm512_mullo_epi16(lower, _mm512_set1_epi32(inverse_of_modulus()));
  const __m512i back = _mm512_mulhi_epu16(times, _mm512_set1_epi32(kModulus));
  return below_modulus(_mm512_sub_epi32(upper, back));
}
PTX_WIDE __m512i reduced(__m512i low, __m512i high) {
  const __m512i positive = _mm512_set1_epi32(kPositive), by_256 = _mm512_set1_epi32(kBy256);
  low = _mm512_add_epi32(low, positive), high = _mm512_add_epi32(high, positive);
  const __m512i lower = without_factor(_mm512_srli_epi32(low, 16), low);
  const __m512i upper = without_factor(_mm512_srli_epi32(high, 16), high);
  const __m512i scaled =
      without_factor(_mm512_mulhi_epu16(upper, by_256), _mm512_mullo_epi16(upper, by_256));
  return below_modulus(
      _mm512_sub_epi32(_mm512_add_epi32(lower, scaled), _mm512_set1_epi32(kModulus)));
}

template <u32 Depth>
[[PTX_WIDE_TARGET]] void multiply_rows_wide(const LeftFactor<Depth>& a, const RightFactor<Depth>& b,
                                            u16 (*sums)[kColumns]) {
  for (u32 row = 0; row < 16; row += 4) {
    __m512i whole[4] = {};
    for (u32 pair = 0; pair < Depth / 2; ++pair) {
      const __m512i right = _mm512_load_si512(b.at[pair]);
#pragma GCC unroll 4
      for (u32 i = 0; i < 4; ++i) {
        s32 both;
        std::memcpy(&both, a.at[row + i] + 2 * pair, sizeof both);
        whole[i] = _mm512_add_epi32(whole[i], _mm512_madd_epi16(_mm512_set1_epi32(both), right));
      }
    }
#pragma GCC unroll 2
    for (u32 i = 0; i < 4; i += 2) {
      auto* place = reinterpret_cast<__m256i*>(sums[row + i]);
      const __m512i found = reduced(_mm512_shuffle_i64x2(whole[i], whole[i + 1], 0x44),
                                    _mm512_shuffle_i64x2(whole[i], whole[i + 1], 0xee));
      const __m512i total =
          _mm512_add_epi32(found, _mm512_cvtepu16_epi32(_mm256_loadu_si256(place)));
      _mm256_storeu_si256(place, _mm512_cvtepi32_epi16(below_modulus(
                                     _mm512_sub_epi32(total, _mm512_set1_epi32(kModulus)))));
    }
  }
}
#endif

// sums[16][8] += a * b
template <u32 Depth>
void multiply_rows(const LeftFactor<Depth>& a, const RightFactor<Depth>& b, u16 (*sums)[kColumns]) {
#ifdef __AVX2__
  static const bool wide = supports_512();
  if (wide) return multiply_rows_wide(a, b, sums);
#endif
  alignas(32) s32 low[16 * kColumns], high[16 * kColumns];
  for (u32 row = 0; row < 16; ++row)
    multiply_row<Depth>(a.at[row], b, low + row * kColumns, high + row * kColumns);
  u16* all = sums[0];
#pragma GCC ivdep
  for (u32 i = 0; i < 16 * kColumns; ++i) all[i] = sum_of(all[i], reduced(low[i], high[i]));
}

}  // namespace workbench::ptx::exact
