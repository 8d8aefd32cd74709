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

// The bits of an address from 7 on that a swizzle mode (none, 32, 64, 128 bytes) adds to those from
// 4 on.
constexpr u32 kSwizzleMask[] = {0, 1, 3, 7};
inline u32 swizzled(u32 offset, u32 mask) { return offset ^ (offset >> 7 & mask) << 4; }
inline u32 swizzle_span(u32 mask) { return mask ? 16 * (mask + 1) : 0; }  // bytes

}  // namespace workbench::ptx
