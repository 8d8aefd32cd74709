// A tensor map: the box that a bulk tensor copy moves, and the tensor that it moves it from or to.
// Zeros are an empty map, which tensormap.replace fills field by field. workbench/ptx/tensor_map.py
// writes the same 128 bytes.
#pragma once
#include "types.hpp"

namespace workbench::ptx {

struct alignas(64) TensorMap {
  static constexpr int kMostDimensions = 5;
  u64 address;
  u64 strides[kMostDimensions - 1];  // bytes, of all dimensions but the innermost
  u32 sizes[kMostDimensions];        // elements, innermost first
  u32 box[kMostDimensions];
  u32 steps[kMostDimensions];  // elements from one that is copied to the next; 0 in a map that
                               // nobody filled
  u8 rank_less_one, type, interleave, swizzle, atomicity, fill;
  u8 rest[22];
};
static_assert(sizeof(TensorMap) == 128);

// Element types by their number in tensormap.replace.
enum class MapType : u8 {
  u8_,
  u16_,
  u32_,
  s32_,
  u64_,
  s64_,
  f16,
  f32_,
  f32_ftz,
  f64_,
  bf16,
  tf32,
  tf32_ftz,
  kCount
};
constexpr u32 kMapTypeBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4};

// The bits of an address from 7 on, so many further down, that a swizzle adds to some of those
// before.
struct Swizzle {
  u32 shift, bits;
  u32 span, atom;  // bytes that are reordered together, and that stay together
  u32 operator()(u32 offset) const { return offset ^ (offset >> shift & bits); }
};
// By number: of none, 32, 64 and 128 bytes as tensormap.replace numbers them; then of 128 bytes in
// atoms of 32 and of 64 (PTX ISA, "Swizzling Modes").
constexpr Swizzle kSwizzles[] = {{3, 0x00, 0, 16},   {3, 0x10, 32, 16},  {3, 0x30, 64, 16},
                                 {3, 0x70, 128, 16}, {2, 0x60, 128, 32}, {1, 0x40, 128, 64}};
constexpr u32 kSwizzleIn32 = 4, kSwizzleIn64 = 5;
// The atoms of a swizzle as tensormap.replace numbers them.
enum class SwizzleAtoms : u8 { of_16, of_32, of_32_flipped, of_64, kCount };

}  // namespace workbench::ptx
