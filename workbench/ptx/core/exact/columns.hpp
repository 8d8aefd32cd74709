// Products of matrices of elements by columns, for tcgen05.mma. Factors are codes, which the
// machine's f32 factors hold as whole numbers.
#pragma once
#include <vector>

#include "exact/lanes.hpp"

namespace workbench::ptx::exact {

// One factor: `count` numbers at each of `depth` K, which are `stride` apart.
struct ColumnFactor {
  const f32* codes;
  u32 count, stride;

  u16 at(u32 k, u32 i) const { return static_cast<u16>(codes[k * stride + i]); }
  bool any_special(u32 depth) const {
    for (u32 k = 0; k < depth; ++k)
      for (u32 i = 0; i < count; ++i)
        if (is_special(at(k, i))) return true;
    return false;
  }
};

// D[row][column] = A * B, or A * B + D * 2^-shift; a column of D is `pitch` cells from the next. T
// is the type of sums.
template <class T>
void multiply_columns(u32* cells, u32 pitch, const ColumnFactor& a, const ColumnFactor& b,
                      u32 depth, bool keep, u32 shift) {
  constexpr u32 kSixteen = 16;  // rows at a time
  const bool special = a.any_special(depth) || b.any_special(depth);
  const u16 unit = code_of(bits_as<u32>(std::ldexp(1.0f, -static_cast<int>(shift))));
  std::vector<u16> left(std::size_t{depth} * a.count);
  for (u32 k = 0; k < depth; ++k)
    for (u32 row = 0; row < a.count; ++row) left[k * a.count + row] = a.at(k, row);
  for (u32 column = 0; column < b.count; ++column) {
    u32* column_cells = cells + std::size_t{column} * pitch;
    for (u32 first = 0; first < a.count; first += kSixteen) {
      alignas(64) u16 sums[kSixteen] = {};
      bool any = special;
      for (u32 i = 0; keep && i < kSixteen; ++i) {
        const auto bits = static_cast<typename T::Bits>(column_cells[first + i]);
        sums[i] = product(T::read(bits), unit);
        any |= is_special(sums[i]);
      }
      for (u32 k = 0; k < depth; ++k) {
        const u16 factor = b.at(k, column);
        const u16* rows = left.data() + k * a.count + first;
        if (any) {
          for (u32 i = 0; i < kSixteen; ++i) sums[i] = sum(sums[i], product(rows[i], factor));
        } else {
#pragma GCC ivdep
          for (u32 i = 0; i < kSixteen; ++i) sums[i] = sum_of(sums[i], product_of(rows[i], factor));
        }
      }
      for (u32 i = 0; i < kSixteen; ++i) column_cells[first + i] = T::write(sums[i]);
    }
  }
}

}  // namespace workbench::ptx::exact
