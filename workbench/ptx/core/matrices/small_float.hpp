// The formats of 8 bits and less: E4M3 (no infinity, NaN is all ones), E5M2 (IEEE-like), E2M3, E3M2
// and E2M1 (numbers only); and UE8M0, a power of two.
#pragma once
#include <algorithm>
#include <cmath>

#include "arithmetic/half.hpp"

namespace workbench::ptx {

enum class Specials { infinity, nan, none };

// A format. A code is a sign bit and, below it, a magnitude; codes of larger magnitudes are larger.
template <int ExponentBits, int MantissaBits, int Bias, Specials Special>
struct Small {
  static constexpr u32 kTop = (1u << ExponentBits) - 1;
  static constexpr u32 kSign = 1u << (ExponentBits + MantissaBits);
  static constexpr u8 kLargest =
      static_cast<u8>(Special == Specials::infinity ? (kTop << MantissaBits) - 1
                      : Special == Specials::nan    ? kSign - 2
                                                    : kSign - 1);
  static constexpr u8 kNaN = Special == Specials::none ? kLargest : kSign - 1;

  static f32 decode(u8 bits) {
    const u32 exponent = bits >> MantissaBits & kTop, mantissa = bits & ((1u << MantissaBits) - 1);
    f32 value;
    if (Special == Specials::infinity && exponent == kTop)
      value = mantissa ? __builtin_nanf("") : __builtin_inff();
    else if (Special == Specials::nan && (bits & (kSign - 1)) == kSign - 1)
      value = __builtin_nanf("");
    else if (exponent == 0)
      value = std::ldexp(static_cast<f32>(mantissa), 1 - Bias - MantissaBits);
    else
      value = std::ldexp(static_cast<f32>(mantissa | 1u << MantissaBits),
                         static_cast<int>(exponent) - Bias - MantissaBits);
    return bits & kSign ? -value : value;
  }

  // Rounds to nearest even; overflow and infinity become the largest finite value (.satfinite).
  static u8 encode(f32 value) {
    // PTX: the NaN has no sign.
    if (value != value) return kNaN;
    const u8 sign = bits_as<u32>(value) >> 31 ? kSign : 0;
    const f32 size = std::fabs(value);
    if (size >= decode(kLargest)) return sign | kLargest;
    int exponent = 0;
    std::frexp(size, &exponent);
    const int scale =
        std::max(exponent - 1, 1 - Bias) - MantissaBits;  // exponent of the last place
    const u32 steps = static_cast<u32>(std::rint(std::ldexp(size, -scale)));
    return sign | code(steps, scale);
  }

  // .rs: adds sixteen random bits to the highest of the discarded bits.
  static u8 encode_randomly(f32 value, u32 random) {
    if (value != value) return kNaN;
    const u32 bits = bits_as<u32>(value);
    const u8 sign = bits >> 31 ? kSign : 0;
    if (std::fabs(value) >= decode(kLargest)) return sign | kLargest;
    const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127;
    const int scale = std::max(exponent, 1 - Bias) - MantissaBits;
    const int cut = scale - (exponent - 23);  // number of discarded bits
    if (cut >= 40) return sign;
    const u64 significand = (bits & 0x7fffffu) | 0x800000u;
    return sign | code(static_cast<u32>((significand + (u64{random} << (cut - 16))) >> cut), scale);
  }

 private:
  // Rounding may carry into the next binade; magnitudes are contiguous there, so adding still
  // works.
  static u8 code(u32 steps, int scale) {
    if (steps == 0) return 0;
    const u32 biased = static_cast<u32>(scale + MantissaBits + Bias);
    const u32 bits = steps < (1u << MantissaBits)
                         ? steps
                         : (biased << MantissaBits) + (steps - (1u << MantissaBits));
    return static_cast<u8>(bits > kLargest ? kLargest : bits);
  }
};
using E4M3 = Small<4, 3, 7, Specials::nan>;
using E5M2 = Small<5, 2, 15, Specials::infinity>;
using E2M3 = Small<2, 3, 1, Specials::none>;
using E3M2 = Small<3, 2, 3, Specials::none>;
using E2M1 = Small<2, 1, 1, Specials::none>;

// E4M3 without a sign.
struct UE4M3 {
  static f32 decode(u8 code) { return E4M3::decode(code & 0x7f); }
};

// UE8M0: code e is 2 to the e - 127, and 255 is NaN. Conversions ignore the sign.
struct PowerOfTwo {
  static f32 decode(u8 code) {
    if (code == 0xff) return bits_as<f32>(0x7fffffffu);
    return bits_as<f32>(code ? u32{code} << 23 : 1u << 22);
  }

  // Rounds down, or up to the next power. `Finite`: overflow becomes the largest power.
  template <bool Up, bool Finite>
  static u8 encode(f32 value) {
    const u32 bits = bits_as<u32>(value) & 0x7fffffffu;
    if (bits > 0x7f800000u) return 0xff;
    u32 code = bits >> 23;
    if (Up && code < 0xff && (code ? bits & 0x7fffffu : bits > 1u << 22)) code += 1;
    return static_cast<u8>(Finite && code == 0xff ? 0xfe : code);
  }
};

}  // namespace workbench::ptx
