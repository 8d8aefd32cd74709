// The formats of floats in registers, and the numbers that lanes hold.
#pragma once
#include <cmath>
#include <string_view>

#include "arithmetic/half.hpp"
#include "warp.hpp"

namespace workbench::ptx::numerics {

enum class Float : u8 { none, f16, bf16, f32, f64 };

// A float, or several that share a register: f16x2 has two parts.
struct Type {
  Float format = Float::none;
  u8 parts = 1;
  bool operator==(const Type&) const = default;
  explicit operator bool() const { return format != Float::none; }
  u32 float_bytes() const {
    return format == Float::f64 ? 8 : format == Float::f32 ? 4 : format == Float::none ? 0 : 2;
  }
  u32 bytes() const { return float_bytes() * parts; }  // of a lane
};

// The type of that name in PTX; none for any other name.
inline Type type_named(std::string_view name) {
  constexpr std::pair<std::string_view, Type> all[] = {
      {"f32", {Float::f32, 1}},   {"f16", {Float::f16, 1}},   {"bf16", {Float::bf16, 1}},
      {"f64", {Float::f64, 1}},   {"f16x2", {Float::f16, 2}}, {"bf16x2", {Float::bf16, 2}},
      {"f32x2", {Float::f32, 2}}, {"tf32", {Float::f32, 1}}};
  for (const auto& [known, type] : all)
    if (known == name) return type;
  return {};
}

// The number of one part of a lane. `lanes`: where the register begins.
inline f64 number(const u8* lanes, Type type, u32 lane, u32 part) {
  const u8* const from = lanes + (lane * type.parts + part) * type.float_bytes();
  switch (type.format) {
    case Float::f16: return f64{to_f32(Half{*reinterpret_cast<const u16*>(from)})};
    case Float::bf16: return f64{to_f32(Bfloat{*reinterpret_cast<const u16*>(from)})};
    case Float::f32: return f64{*reinterpret_cast<const f32*>(from)};
    case Float::f64: return *reinterpret_cast<const f64*>(from);
    case Float::none: break;
  }
  return 0;
}

// An infinity or a NaN has an exponent of ones, which the highest sixteen bits of a float hold:
// they stand for it where it is moved.
constexpr u32 kUnit = 2;  // bytes

// The unit of the register file that holds the exponent of one part of a lane.
inline u32 unit_of(Slot slot, Type type, u32 lane, u32 part) {
  return (slot + (lane * type.parts + part + 1) * type.float_bytes()) / kUnit - 1;
}

template <class Word, Word Exponent, u32 Parts = 1>
inline bool any_exponent(const u8* lanes) {
  const Word* const words = reinterpret_cast<const Word*>(lanes);
  Word found = 0;
  for (u32 i = 0; i < kLanes * Parts; ++i)
    found = static_cast<Word>(found | ((words[i] & Exponent) == Exponent ? 1 : 0));
  return found;
}

// Whether some lane holds an infinity or a NaN, active or not.
inline bool any_special(const u8* lanes, Type type) {
  const bool pair = type.parts == 2;
  switch (type.format) {
    case Float::f16:
      return pair ? any_exponent<u16, 0x7c00, 2>(lanes) : any_exponent<u16, 0x7c00>(lanes);
    case Float::bf16:
      return pair ? any_exponent<u16, 0x7f80, 2>(lanes) : any_exponent<u16, 0x7f80>(lanes);
    case Float::f32:
      return pair ? any_exponent<u32, 0x7f800000, 2>(lanes) : any_exponent<u32, 0x7f800000>(lanes);
    case Float::f64: return any_exponent<u64, 0x7ff0000000000000>(lanes);
    case Float::none: break;
  }
  return false;
}

// Whether some unit of so many in each lane has these bits, which an infinity and a NaN have.
inline bool any_unit(const u8* lanes, u32 units, u16 exponent) {
  const auto any = [&]<u32 Units>(std::integral_constant<u32, Units>) {
    const u16* const all = reinterpret_cast<const u16*>(lanes);
    u16 found = 0;
    for (u32 i = 0; i < kLanes * Units; ++i)
      found = static_cast<u16>(found | ((all[i] & exponent) == exponent ? 1 : 0));
    return found != 0;
  };
  return units == 1   ? any(std::integral_constant<u32, 1>{})
         : units == 2 ? any(std::integral_constant<u32, 2>{})
                      : any(std::integral_constant<u32, 4>{});
}

}  // namespace workbench::ptx::numerics
