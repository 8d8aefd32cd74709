// PTX rules for f32 and f64: flush to zero, saturation, minimum and maximum with NaN.
#pragma once
#include "arithmetic/half.hpp"

namespace workbench::ptx {

constexpr u32 kNaN32 = 0x7fffffffu;
constexpr u64 kNaN64 = 0x7ff8000000000000ull;
// PTX ISA, "Out of Boundary Access": the special NaN "OOB-NaN", 16 bits repeated. PTX does not give
// its bits. They come from public tests that ran fma.oob on a GPU (sm_100) and read the bytes that
// tensor copies fill in; they differ from the NaN that arithmetic produces.
constexpr u64 kOutside = 0x7ff77ff77ff77ff7ull;
constexpr u16 kOutside16 = static_cast<u16>(kOutside);

inline f32 flush(f32 x) {
  const u32 bits = bits_as<u32>(x);
  return bits_as<f32>((bits & 0x7f800000u) ? bits : bits & 0x80000000u);
}

inline f32 magnitude(f32 x) { return bits_as<f32>(bits_as<u32>(x) & 0x7fffffffu); }

// Clamps to [0, 1]; NaN becomes +0.
inline f32 saturate(f32 x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

template <class T>
inline T flush16(T x) {
  constexpr u16 exponent = std::is_same_v<T, Half> ? 0x7c00 : 0x7f80;
  return T{static_cast<u16>((x.bits & exponent) ? x.bits : x.bits & 0x8000)};
}

template <class T>
inline T saturate16(T x) {
  return from_f32<T>(saturate(to_f32(x)));
}

// The minimum; of a number and a NaN it is the number; -0 is less than +0.
inline f32 minimum(f32 a, f32 b) {
  const u32 x = bits_as<u32>(a), y = bits_as<u32>(b);
  u32 result = a < b ? x : y;
  result = a == b ? x | y : result;
  result = b != b ? x : result;
  result = a != a ? (b != b ? kNaN32 : y) : result;
  return bits_as<f32>(result);
}

inline f32 maximum(f32 a, f32 b) {
  const u32 x = bits_as<u32>(a), y = bits_as<u32>(b);
  u32 result = a > b ? x : y;
  result = a == b ? x & y : result;
  result = b != b ? x : result;
  result = a != a ? (b != b ? kNaN32 : y) : result;
  return bits_as<f32>(result);
}

// The .NaN forms: any NaN makes the result NaN.
inline f32 minimum_nan(f32 a, f32 b) {
  return (a != a || b != b) ? bits_as<f32>(kNaN32) : minimum(a, b);
}
inline f32 maximum_nan(f32 a, f32 b) {
  return (a != a || b != b) ? bits_as<f32>(kNaN32) : maximum(a, b);
}

// The .xorsign.abs forms: the result for the magnitudes, with the sign of the product.
template <class F>
inline f32 with_product_sign(f32 a, f32 b, F pick) {
  const u32 sign = (bits_as<u32>(a) ^ bits_as<u32>(b)) & 0x80000000u;
  const u32 size = bits_as<u32>(pick(magnitude(a), magnitude(b)));
  return bits_as<f32>(size | sign);
}

inline f64 minimum(f64 a, f64 b) {
  if (a != a) return b != b ? bits_as<f64>(kNaN64) : b;
  if (b != b) return a;
  return a == b ? bits_as<f64>(bits_as<u64>(a) | bits_as<u64>(b)) : a < b ? a : b;
}

inline f64 maximum(f64 a, f64 b) {
  if (a != a) return b != b ? bits_as<f64>(kNaN64) : b;
  if (b != b) return a;
  return a == b ? bits_as<f64>(bits_as<u64>(a) & bits_as<u64>(b)) : a > b ? a : b;
}

// 2 to the x, with an error of at most 2 units in the last place: splits off the integer part, then
// uses a polynomial on [-1/2, 1/2].
inline f32 exp2_approx(f32 x) {
  const f32 clamped = x < -152.0f ? -152.0f : x > 130.0f ? 130.0f : x;
  const f32 whole = __builtin_rintf(clamped);
  const f32 t = clamped - whole;
  f32 p = 1.5252733e-5f;
  p = p * t + 1.5403530e-4f;
  p = p * t + 1.3333558e-3f;
  p = p * t + 9.6181291e-3f;
  p = p * t + 5.5504109e-2f;
  p = p * t + 2.4022651e-1f;
  p = p * t + 6.9314718e-1f;
  p = p * t + 1.0f;
  const s32 exponent = static_cast<s32>(whole);
  const s32 first = exponent >> 1,
            second = exponent - first;  // two steps, so that subnormal results round once
  const f32 scaled = p * bits_as<f32>(static_cast<u32>(first + 127) << 23) *
                     bits_as<f32>(static_cast<u32>(second + 127) << 23);
  return x != x ? bits_as<f32>(kNaN32) : x >= 128.0f ? __builtin_inff() : scaled;
}

}  // namespace workbench::ptx
