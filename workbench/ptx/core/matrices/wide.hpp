// 512-bit vectors over the fragments of mma.
//
// A vector has the layout of registers: lane 4r + c has row r of four, and for sums column 2c or 2c
// + 1. So sums need no shuffling. A factor of A is repeated over its row within the vector, and
// four factors of B, of the even or the odd columns at one K, are repeated for all rows.
#pragma once
#include <algorithm>

#include "matrices/tiles.hpp"

#ifdef __AVX2__
#define PTX_WIDE_TARGET gnu::target("avx512f,avx512bw")
#define PTX_WIDE [[PTX_WIDE_TARGET, gnu::always_inline]] inline

namespace workbench::ptx::wide {

constexpr u32 kGroups = 4;  // groups of four rows; the sums of group g are vectors 2g and 2g + 1
constexpr u32 kVector = 64;

// The address of a group's vector, in registers for the upper and the lower eight rows.
inline u8* group_at(u8* registers, u32 upper, u32 lower, u32 group) {
  return registers + (group < 2 ? upper : lower) + kVector * (group % 2);
}

// B at one K: the even columns, then the odd ones.
constexpr u32 kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

// The shuffle that brings a register of B, with `PerColumn` elements in each column, into that
// order: for the first half of K and for the second.
template <class T, u32 PerColumn>
struct Order {
  alignas(kVector) T from[2][kVector / sizeof(T)];

  constexpr Order() : from{} {
    for (u32 half = 0; half < 2; ++half)
      for (u32 i = 0; i < kVector / sizeof(T); ++i)
        from[half][i] = static_cast<T>(PerColumn * kOrder[i % 8] + PerColumn / 2 * half + i / 8);
  }
};

PTX_WIDE __m512i load(const void* from) { return _mm512_load_si512(from); }

// Stores the vector of a group's sums in the lanes of `mask`.
PTX_WIDE void store(u8* to, __m512i values, u32 mask, u32 group) {
  if (mask == kAllLanes) return _mm512_store_si512(to, values);
  _mm512_mask_store_epi32(to, static_cast<__mmask16>(mask >> 16 * (group % 2)), values);
}

// ---- 32 bits in each lane as columns of f32 ----

template <class T>
constexpr u32 kColumns = 4 / Factors<T>::kBytes;  // columns in 32 bits
template <>
constexpr u32 kColumns<Tf32> = 1;
template <class T>
constexpr u32 kDepth = 4 * kColumns<T>;  // depth along K of a register

PTX_WIDE __m512 widen_sixteen(__m256i halves, Half) { return _mm512_cvtph_ps(halves); }

PTX_WIDE __m512 widen_sixteen(__m256i halves, Bfloat) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

PTX_WIDE void split(__m512i from, Half, __m512* columns) {
  const __m512i evens_first =
      _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,  //
                       30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i sorted = _mm512_permutexvar_epi16(evens_first, from);
  columns[0] = widen_sixteen(_mm512_castsi512_si256(sorted), Half{});
  columns[1] = widen_sixteen(_mm512_extracti64x4_epi64(sorted, 1), Half{});
}

PTX_WIDE void split(__m512i from, Bfloat, __m512* columns) {
  columns[0] = _mm512_castsi512_ps(_mm512_slli_epi32(from, 16));
  columns[1] =
      _mm512_castsi512_ps(_mm512_and_si512(from, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// TF32 ignores the low 13 bits.
PTX_WIDE void split(__m512i from, Tf32, __m512* columns) {
  columns[0] =
      _mm512_castsi512_ps(_mm512_and_si512(from, _mm512_set1_epi32(static_cast<int>(kTf32Bits))));
}

PTX_WIDE void split_halves(__m512i evens, __m512i odds, __m512* columns) {
  __m512 even[2], odd[2];
  split(evens, Half{}, even), split(odds, Half{}, odd);
  columns[0] = even[0], columns[1] = odd[0], columns[2] = even[1], columns[3] = odd[1];
}

PTX_WIDE void split(__m512i from, E5M2, __m512* columns) {
  split_halves(_mm512_slli_epi16(from, 8),
               _mm512_and_si512(from, _mm512_set1_epi16(static_cast<short>(0xff00))), columns);
}

// Converts to f16, smaller by kScale. `High`: from the high byte of each 16 bits.
template <bool High>
PTX_WIDE __m512i e4m3_as_half(__m512i from) {
  const __m512i code = High ? from : _mm512_slli_epi16(from, 8);
  const __m512i size = _mm512_and_si512(code, _mm512_set1_epi16(0x7f00));
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(size, _mm512_set1_epi16(0x7f00));
  // Size / 2
  //
  // (code & sign).
  const __m512i value = _mm512_ternarylogic_epi32(
      _mm512_srli_epi16(size, 1), code, _mm512_set1_epi16(static_cast<short>(0x8000)), 0xf8);
  return _mm512_mask_mov_epi16(value, nan,
                               _mm512_xor_si512(value, _mm512_set1_epi16(0x4180)));  // 0x7e00
}

PTX_WIDE void split(__m512i from, E4M3, __m512* columns) {
  split_halves(e4m3_as_half<false>(from), e4m3_as_half<true>(from), columns);
}

template <class T>
constexpr f32 kScale = std::is_same_v<T, E4M3> ? 256.0f : 1.0f;

inline void replace(Table& table, const std::string& name, Handler run) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const TableEntry& entry) {
    return entry.name == "mma." + name;
  });
  found->run = run;
}

}  // namespace workbench::ptx::wide
#endif
