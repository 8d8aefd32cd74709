// Fragments of mma of elements: a register is eight rows of sixteen bytes along K (matrix.cpp of
// the plain machine).
#pragma once
#include "exact/product.hpp"

namespace workbench::ptx::exact {

constexpr u32 kRows = 8;  // of a register

// One half of the sums: two registers of f32, of the even and the odd columns, or one of f16.
template <class Sum>
void read_sums(u8* registers, const u32* slots, u32 half, u16 (*sums)[kColumns]) {
  if constexpr (std::is_same_v<Sum, Single>) {
    Codes even, odd;
    Single::read(at<const u32>(registers, slots[2 * half]), even);
    Single::read(at<const u32>(registers, slots[2 * half + 1]), odd);
    u32* pairs = reinterpret_cast<u32*>(sums);
    PTX_LANES {
      pairs[lane] = u32{odd.at[lane]} << 16 | even.at[lane];
    }
  } else {
    const u16* bits = at<const u16>(registers, slots[half]);
    for (u32 i = 0; i < kRows * kColumns; ++i)
      sums[i / kColumns][i % kColumns] = Sum::read(bits[i]);
  }
}

template <class Sum>
void write_sums(u8* registers, const u32* slots, u32 half, u32 mask, const u16 (*sums)[kColumns]) {
  if constexpr (std::is_same_v<Sum, Single>) {
    const u32* pairs = reinterpret_cast<const u32*>(sums);
    Codes even, odd;
    PTX_LANES {
      even.at[lane] = static_cast<u16>(pairs[lane]);
      odd.at[lane] = static_cast<u16>(pairs[lane] >> 16);
    }
    for (u32 i = 0; i < 2; ++i) {
      Codes& codes = i ? odd : even;
      codes.special = any_special(codes.at);
      alignas(64) u32 out[kLanes];
      Single::write(codes, out);
      write_lanes(registers, slots[2 * half + i], mask, out);
    }
  } else {
    alignas(64) u16 out[kRows * kColumns];
    for (u32 i = 0; i < kRows * kColumns; ++i)
      out[i] = Sum::write(sums[i / kColumns][i % kColumns]);
    write_lanes(registers, slots[half], mask, reinterpret_cast<const u32*>(out));
  }
}

template <u32 Count>
bool has_special(const u16* codes) {
  u16 most = 0;
  for (u32 i = 0; i < Count; ++i) most = std::max(most, codes[i]);
  return is_special(most);
}

// sums[16][8] += a[16][Depth] * b[8][Depth], symbols included.
template <u32 Depth>
void add_symbols(const u16 (*a)[Depth], const u16 (*b)[Depth], u16 (*sums)[kColumns]) {
  for (u32 row = 0; row < 2 * kRows; ++row)
    for (u32 n = 0; n < kColumns; ++n)
      for (u32 k = 0; k < Depth; ++k) sums[row][n] = sum(sums[row][n], product(a[row][k], b[n][k]));
}
template <u32 Depth>
void add_products(const u16 (*a)[Depth], const u16 (*b)[Depth], u16 (*sums)[kColumns]) {
  if (has_special<2 * kRows * Depth>(a[0]) || has_special<kColumns * Depth>(b[0]) ||
      has_special<2 * kRows * kColumns>(sums[0]))
    add_symbols(a, b, sums);
  else
    multiply_rows(LeftFactor<Depth>(a), RightFactor<Depth>(b), sums);
}

}  // namespace workbench::ptx::exact
