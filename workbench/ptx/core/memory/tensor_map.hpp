// A tensor map: describes a tensor, and the box of it that a bulk tensor copy moves.
#pragma once
#include <iterator>

#include "types.hpp"

namespace workbench::ptx {

// The 128 bytes have the hardware's format, which CuTe DSL's host code writes without the driver.
// The format was found by varying one argument at a time of maps that it wrote for sm_90, sm_100
// and sm_120 (nvidia-cutlass-dsl 4.8.1). The three agree, and the second half is never written.
// Zeros are an empty map, which tensormap.replace fills field by field.
constexpr u32 kMapBytes = 128;
constexpr u32 kMapAlignment = 64;
constexpr u32 kMapUsedBytes = 64;

// A tensor map as copies use it.
struct TensorMap {
  static constexpr int kMostDimensions = 5;
  u64 address;
  u64 strides[kMostDimensions - 1];  // in bytes, of all dimensions but the innermost
  u64 sizes[kMostDimensions];        // in elements, innermost first
  u32 box[kMostDimensions];
  u32 steps[kMostDimensions];  // distance in elements between copied elements
  u8 rank_less_one, type, interleave, swizzle, atomicity, fill;
  bool empty;    // all bytes are zero
  bool strange;  // bits are set that belong to no known field
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
// Bytes of the unit that a copy moves: an element, or two elements of 4 bits.
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
// The bits of a field: the first bit of ordinal 0, their number, and the distance to the next
// ordinal.
struct MapBits {
  u32 begin, count, apart;
};
struct MapPlace {
  const char* name;
  u32 ordinals;  // 1 for a field that takes no ordinal
  u32 less;      // what is subtracted from a value before it is stored
  u32 shift;     // low bits of a value that are not stored: it is a multiple of 1 << shift
  MapBits low, high;
};
// No map that was examined fills with NaN or interleaves, so the hardware's bits for these two
// fields are not known. They are stored here in bits that are zero in all those maps.
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
// Bits that every encoded map sets, and one that maps of 128 KiB and more set; no field depends on
// them.
constexpr u32 kMapMarks[] = {65, 82};
constexpr u32 kMapLarge = 85;

// The code of each type number; tf32 is f32 with one more bit.
constexpr u8 kMapTypeCodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16 | 7, 16 | 8, 11, 12, 13};

void write_map_field(u8* map, MapField field, u32 ordinal, u64 value);
TensorMap read_map(const u8* map);

// A swizzle: the bits of an address from bit 7 on, shifted down, are combined by XOR with lower
// bits.
struct Swizzle {
  u32 shift, bits;
  u32 span, atom;  // bytes that are reordered together; bytes that stay together
  u32 operator()(u32 offset) const { return offset ^ (offset >> shift & bits); }
};
// Swizzles by number: none, 32, 64 and 128 bytes as tensormap.replace numbers them; then 128 bytes
// in atoms of 32 and of 64 (PTX ISA, "Swizzling Modes").
constexpr Swizzle kSwizzles[] = {{3, 0x00, 0, 16},   {3, 0x10, 32, 16},  {3, 0x30, 64, 16},
                                 {3, 0x70, 128, 16}, {2, 0x60, 128, 32}, {1, 0x40, 128, 64}};
constexpr u32 kSwizzleIn32 = 4, kSwizzleIn64 = 5;
// The atoms of a swizzle as tensormap.replace numbers them.
enum class SwizzleAtoms : u8 { of_16, of_32, of_32_flipped, of_64, kCount };

}  // namespace workbench::ptx
