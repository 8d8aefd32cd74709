// A tensor map: the box that a bulk tensor copy moves, and the tensor that it moves it from or to.
#pragma once
#include <iterator>

#include "types.hpp"

namespace workbench::ptx {

// The 128 bytes are in the hardware's form, which CuTe DSL's host code writes without the driver.
// That form was read off maps which it wrote for sm_90, sm_100 and sm_120, with one argument varied
// at a time (nvidia-cutlass-dsl 4.8.1); they agree, and their second half is never written. Zeros
// are an empty map, which tensormap.replace fills field by field.
constexpr u32 kMapBytes = 128;
constexpr u32 kMapAlignment = 64;
constexpr u32 kMapUsedBytes = 64;

// A tensor map as copies use it.
struct TensorMap {
  static constexpr int kMostDimensions = 5;
  u64 address;
  u64 strides[kMostDimensions - 1];  // bytes, of all dimensions but the innermost
  u64 sizes[kMostDimensions];        // elements, innermost first
  u32 box[kMostDimensions];
  u32 steps[kMostDimensions];  // elements from one that is copied to the next
  u8 rank_less_one, type, interleave, swizzle, atomicity, fill;
  bool empty;    // nothing but zeros
  bool strange;  // bits set that no field has
};

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
  b4x16,
  b4x16_p64,
  b6x16_p32,
  kCount
};
// Bytes that stay together in a copy: an element, or two of 4 bits.
constexpr u32 kMapTypeBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4, 1, 1, 1};

// The fields of a map, by their names in tensormap.replace.
enum class MapField : u8 {
  global_address,
  rank,
  elemtype,
  swizzle_mode,
  swizzle_atomicity,
  interleave_layout,
  fill_mode,
  global_stride,
  global_dim,
  element_stride,
  box_dim,
  kCount
};
// Bits of a field: the first of ordinal 0, how many, and how far those of the next ordinal are.
struct MapBits {
  u32 begin, count, apart;
};
struct MapPlace {
  const char* name;
  u32 ordinals;  // 1 for a field that takes no ordinal
  u32 less;      // what a value has more than the bits
  u32 shift;     // bits of a value that are not kept: it is a multiple
  MapBits low, high;
};
// No map that was seen fills with NaN or interleaves, so the hardware's bits for these two are not
// known: here they are in bits that all those maps leave at zero.
constexpr MapPlace kMapPlaces[] = {
    {"global_address", 1, 0, 0, {0, 57, 0}, {}},
    {"rank", 1, 0, 0, {68, 3, 0}, {}},
    {"elemtype", 1, 0, 0, {71, 4, 0}, {80, 1, 0}},
    {"swizzle_mode", 1, 0, 0, {77, 2, 0}, {}},
    {"swizzle_atomicity", 1, 0, 0, {83, 2, 0}, {}},
    {"interleave_layout", 1, 0, 0, {480, 2, 0}, {}},
    {"fill_mode", 1, 0, 0, {482, 1, 0}, {}},
    {"global_stride", 4, 0, 4, {96, 32, 32}, {224, 4, 4}},
    {"global_dim", 5, 1, 0, {256, 32, 32}, {}},
    {"element_stride", 5, 1, 0, {416, 3, 3}, {}},
    {"box_dim", 5, 1, 0, {440, 8, 8}, {}},
};
static_assert(std::size(kMapPlaces) == static_cast<std::size_t>(MapField::kCount));
// Bits that every encoded map has set, and one that those of 128 KiB and more have: no value
// depends on them.
constexpr u32 kMapMarks[] = {65, 82};
constexpr u32 kMapLarge = 85;

// The bits of a type by its number: tf32 is f32 with a bit of its own.
constexpr u8 kMapTypeCodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16 | 7, 16 | 8, 11, 12, 13};

void write_map_field(u8* map, MapField field, u32 ordinal, u64 value);
TensorMap read_map(const u8* map);

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
