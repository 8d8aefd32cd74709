// wgmma of elements: sixteen rows of A, which a warp has gathered, times all of B.
#pragma once
#include <vector>

#include "codes.hpp"
#include "exact/product.hpp"

namespace workbench::ptx::exact {

// One operand as it was gathered: rows of 32 bytes along K, or, transposed, eights of rows at each
// K.
template <class T>
struct Gathered {
  static constexpr u32 kDepth = 32 / sizeof(typename T::Bits);
  const u8* bytes;
  u32 rows;
  bool transposed, negated;

  u16 code(u32 row, u32 k) const {
    using Bits = typename T::Bits;
    const u32 place = transposed ? (k * (rows / 8) + row / 8) * 8 + row % 8 : row * kDepth + k;
    Bits bits;
    std::memcpy(&bits, bytes + place * sizeof bits, sizeof bits);
    const u16 code = T::read(bits);
    return negated ? negative(code) : code;
  }
};

// Sums of eight columns, in registers of f32: rows 0 to 7 in two, then rows 8 to 15.
struct SumsInSingle {
  static constexpr u32 kRegisters = 4;
  static void read(u8* registers, const u32* slots, u16 (*sums)[kColumns]) {
    for (u32 part = 0; part < kRegisters; ++part) {
      Codes codes;
      Single::read(at<const u32>(registers, slots[part]), codes);
      for (u32 lane = 0; lane < kLanes; ++lane)
        sums[8 * (part / 2) + lane / 4][2 * (lane % 4) + part % 2] = codes.at[lane];
    }
  }
  static void write(u8* registers, const u32* slots, u32 mask, const u16 (*sums)[kColumns]) {
    for (u32 part = 0; part < kRegisters; ++part) {
      Codes codes;
      for (u32 lane = 0; lane < kLanes; ++lane)
        codes.at[lane] = sums[8 * (part / 2) + lane / 4][2 * (lane % 4) + part % 2];
      codes.special = any_special(codes.at);
      alignas(64) u32 out[kLanes];
      Single::write(codes, out);
      write_lanes(registers, slots[part], mask, out);
    }
  }
};

// The same in registers of two f16.
struct SumsInHalf {
  static constexpr u32 kRegisters = 2;
  static void read(u8* registers, const u32* slots, u16 (*sums)[kColumns]) {
    for (u32 half = 0; half < kRegisters; ++half) {
      const u16* bits = at<const u16>(registers, slots[half]);
      for (u32 i = 0; i < 8 * kColumns; ++i)
        sums[8 * half + i / kColumns][i % kColumns] = HalfCode::read(bits[i]);
    }
  }
  static void write(u8* registers, const u32* slots, u32 mask, const u16 (*sums)[kColumns]) {
    for (u32 half = 0; half < kRegisters; ++half) {
      alignas(64) u16 out[8 * kColumns];
      for (u32 i = 0; i < 8 * kColumns; ++i)
        out[i] = HalfCode::write(sums[8 * half + i / kColumns][i % kColumns]);
      write_lanes(registers, slots[half], mask, reinterpret_cast<const u32*>(out));
    }
  }
};

// D[16][N] = A * B, or A * B + D; `slots` are D's registers.
template <class A, class B, class Sums>
void multiply_group(u8* registers, const Gathered<A>& a, const Gathered<B>& b,
                    const std::vector<u32>& slots, bool keep, u32 mask) {
  constexpr u32 depth = Gathered<A>::kDepth;
  u16 left[16][depth];
  bool special = false;
  for (u32 row = 0; row < 16; ++row)
    for (u32 k = 0; k < depth; ++k) {
      left[row][k] = a.code(row, k);
      special |= is_special(left[row][k]);
    }
  const LeftFactor<depth> rows(left);
  for (u32 eight = 0; eight < b.rows / kColumns; ++eight) {
    const u32* places = slots.data() + Sums::kRegisters * eight;
    u16 sums[16][kColumns] = {}, right[kColumns][depth];
    bool any = special;
    if (keep) Sums::read(registers, places, sums);
    for (u32 n = 0; n < kColumns; ++n)
      for (u32 k = 0; k < depth; ++k) {
        right[n][k] = b.code(kColumns * eight + n, k);
        any |= is_special(right[n][k]);
      }
    for (const auto& row : sums)
      for (const u16 code : row) any |= is_special(code);
    if (any) {
      for (u32 row = 0; row < 16; ++row)
        for (u32 n = 0; n < kColumns; ++n)
          for (u32 k = 0; k < depth; ++k)
            sums[row][n] = sum(sums[row][n], product(left[row][k], right[n][k]));
    } else {
      multiply_rows(rows, RightFactor<depth>(right), sums);
    }
    Sums::write(registers, places, mask, sums);
  }
}

}  // namespace workbench::ptx::exact
