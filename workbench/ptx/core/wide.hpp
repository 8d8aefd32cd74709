// Vectors of 512 bits over the fragments of mma.
//
// A vector holds what lies so in a register: lane 4r + c has row r of four, and of the sums column
// 2c or 2c + 1. So the sums need no shuffling. A factor of A is spread over its row within the
// vector, and four of B, the even or the odd columns at one K, are read for all rows at once.
#pragma once
#include <algorithm>

#include "tiles.hpp"

#ifdef __AVX2__
#define PTX_WIDE_TARGET gnu::target("avx512f,avx512bw")
#define PTX_WIDE [[PTX_WIDE_TARGET, gnu::always_inline]] inline

namespace workbench::ptx::wide {

constexpr u32 kGroups = 4;  // of four rows; the sums of group g are vectors 2g and 2g + 1
constexpr u32 kVector = 64;

// Where the vector of a group lies, of registers for the upper and for the lower eight rows.
inline u8* group_at(u8* registers, u32 upper, u32 lower, u32 group) {
  return registers + (group < 2 ? upper : lower) + kVector * (group % 2);
}

// B at one K: the even columns, then the odd ones.
constexpr u32 kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

// Which elements of a register of B, where each column has `PerColumn`, bring it into that order:
// for the first half of K and for the second.
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

// Vectors of a group's sums, to the lanes of `mask`.
PTX_WIDE void store(u8* to, __m512i values, u32 mask, u32 group) {
  if (mask == kAllLanes) return _mm512_store_si512(to, values);
  _mm512_mask_store_epi32(to, static_cast<__mmask16>(mask >> 16 * (group % 2)), values);
}

inline void replace(Table& table, const std::string& name, Handler run) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const TableEntry& entry) {
    return entry.name == "mma." + name;
  });
  found->run = run;
}

}  // namespace workbench::ptx::wide
#endif
