// Exact conversions between f32 and the 16-bit formats, written so that GCC vectorises them on any
// target.
#pragma once
#include "types.hpp"

namespace workbench::ptx {

inline f32 to_f32(f32 x) { return x; }

inline f32 to_f32(Bfloat x) { return bits_as<f32>(u32{x.bits} << 16); }

// Rebiases the exponent; subnormals are normalised by subtracting the implicit bit that was added
// to them.
inline f32 to_f32(Half x) {
  const u32 magnitude = (u32{x.bits} & 0x7fffu) << 13;
  const u32 exponent = magnitude & 0x0f800000u;
  const u32 normal = magnitude + (112u << 23) + (exponent == 0x0f800000u ? (112u << 23) : 0u);
  const f32 subnormal = bits_as<f32>(magnitude + (113u << 23)) - bits_as<f32>(113u << 23);
  const u32 result = exponent == 0 ? bits_as<u32>(subnormal) : normal;
  return bits_as<f32>(result | (u32{x.bits} & 0x8000u) << 16);
}

// Rounds to nearest even. Every NaN becomes the canonical one.
inline Half to_half(f32 value) {
  const u32 bits = bits_as<u32>(value);
  const u32 magnitude = bits & 0x7fffffffu;
  // Adding 0.5 moves the bits of a subnormal result to the bottom of the sum, rounded by the
  // hardware.
  const u32 magic = 126u << 23;
  const u32 subnormal = bits_as<u32>(bits_as<f32>(magnitude) + bits_as<f32>(magic)) - magic;
  const u32 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  u32 result = magnitude < (113u << 23) ? subnormal : normal;
  result = magnitude >= (143u << 23) ? 0x7c00u : result;
  result |= (bits >> 16) & 0x8000u;
  return Half{static_cast<u16>(magnitude > 0x7f800000u ? 0x7fffu : result)};
}

inline Bfloat to_bfloat(f32 value) {
  const u32 bits = bits_as<u32>(value);
  const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return Bfloat{static_cast<u16>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded)};
}

// Rounds towards zero: overflow becomes the largest finite value.
inline Half to_half_rz(f32 value) {
  const u32 bits = bits_as<u32>(value);
  const u32 magnitude = bits & 0x7fffffffu;
  u32 result = to_half(bits_as<f32>(magnitude)).bits;
  const f32 back = to_f32(Half{static_cast<u16>(result)});
  if (magnitude < 0x7f800000u && back > bits_as<f32>(magnitude)) result -= 1;
  return Half{
      static_cast<u16>(magnitude > 0x7f800000u ? 0x7fffu : (result | ((bits >> 16) & 0x8000u)))};
}

inline Bfloat to_bfloat_rz(f32 value) {
  const u32 bits = bits_as<u32>(value);
  return Bfloat{static_cast<u16>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : bits >> 16)};
}

// Rounds a double to f32 such that a later rounding to 16 bits gives the correct result (round to
// odd).
inline f32 to_f32_odd(f64 value) {
  const f32 nearest = static_cast<f32>(value);
  const f64 back = nearest;
  u32 bits = bits_as<u32>(nearest);
  const bool inexact = back != value && value == value;
  const bool away = (back < 0 ? -back : back) > (value < 0 ? -value : value);
  if (inexact && away) bits -= 1;
  if (inexact) bits |= 1;
  return bits_as<f32>(bits);
}

inline Half to_half(f64 value) { return to_half(to_f32_odd(value)); }
inline Bfloat to_bfloat(f64 value) { return to_bfloat(to_f32_odd(value)); }

// Rounds towards zero (direction 0), down (-1) or up (1): one step back from the nearest value if
// that went the other way.
template <class T>
inline T directed_narrow(f64 value, int direction) {
  T nearest;
  if constexpr (std::is_same_v<T, Half>)
    nearest = to_half(value);
  else
    nearest = to_bfloat(value);
  const f64 back = to_f32(nearest);
  const bool negative = direction == 0 ? value < 0 : nearest.bits >> 15;
  const bool wrong = direction == 0  ? (negative ? back < value : back > value)
                     : direction < 0 ? back > value
                                     : back < value;
  if (!wrong) return nearest;
  // Larger magnitudes have larger bit patterns: subtract one to go towards zero, add one to go
  // away. The step from zero is to the smallest value.
  const bool outwards =
      direction != 0 && ((direction < 0) == negative || (nearest.bits & 0x7fff) == 0);
  if (outwards && (nearest.bits & 0x7fff) == 0)
    return T{static_cast<u16>(direction < 0 ? 0x8001 : 0x0001)};
  return T{static_cast<u16>(outwards ? nearest.bits + 1 : nearest.bits - 1)};
}

template <class T>
inline T from_f32(f32 value) {
  if constexpr (std::is_same_v<T, Half>)
    return to_half(value);
  else if constexpr (std::is_same_v<T, Bfloat>)
    return to_bfloat(value);
  else
    return static_cast<T>(value);
}

// a * b + c with one rounding. The product is exact in f32; the error of the sum decides the odd
// bit.
inline Half fused(Half a, Half b, Half c) {
  const f32 product = to_f32(a) * to_f32(b), addend = to_f32(c);
  const f32 sum = product + addend;
  const f32 other = sum - product;
  const f32 error = (product - (sum - other)) + (addend - other);
  const u32 bits = bits_as<u32>(sum);
  // A NaN or infinite sum has a NaN error, which compares false on both sides.
  const bool up = error > 0, down = error < 0, negative = (bits >> 31) != 0;
  const u32 step = (up != negative) ? 1u : ~0u;
  const bool adjust = (up || down) && (bits & 1u) == 0;
  return to_half(bits_as<f32>(adjust ? bits + step : bits));
}

// The same for bfloats, whose product needs the exponent range of f64.
inline Bfloat fused(Bfloat a, Bfloat b, Bfloat c) {
  const f64 product = f64{to_f32(a)} * f64{to_f32(b)}, addend = to_f32(c);
  const f64 sum = product + addend;
  const f64 other = sum - product;
  const f64 error = (product - (sum - other)) + (addend - other);
  const u64 bits = bits_as<u64>(sum);
  const bool up = error > 0, down = error < 0, negative = (bits >> 63) != 0;
  const u64 step = (up != negative) ? 1u : ~u64{0};
  const bool adjust = (up || down) && (bits & 1u) == 0;
  return to_bfloat(to_f32_odd(bits_as<f64>(adjust ? bits + step : bits)));
}

}  // namespace workbench::ptx
