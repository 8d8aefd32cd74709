// The 8-bit formats: E4M3 (no infinity, NaN is all ones) and E5M2 (IEEE-like).
#pragma once
#include <algorithm>
#include <cmath>

#include "types.hpp"

namespace workbench::ptx {

template <int ExponentBits, int MantissaBits, int Bias, bool Infinity>
struct Small {
  static constexpr u32 kTop = (1u << ExponentBits) - 1;

  static f32 decode(u8 bits) {
    const u32 exponent = bits >> MantissaBits & kTop, mantissa = bits & ((1u << MantissaBits) - 1);
    f32 value;
    if (Infinity && exponent == kTop)
      value = mantissa ? __builtin_nanf("") : __builtin_inff();
    else if (!Infinity && (bits & 0x7f) == 0x7f)
      value = __builtin_nanf("");
    else if (exponent == 0)
      value = std::ldexp(static_cast<f32>(mantissa), 1 - Bias - MantissaBits);
    else
      value = std::ldexp(static_cast<f32>(mantissa | 1u << MantissaBits),
                         static_cast<int>(exponent) - Bias - MantissaBits);
    return bits & 0x80 ? -value : value;
  }

  // Nearest even; overflow and infinity stop at the largest finite value (.satfinite).
  static u8 encode(f32 value) {
    constexpr u8 largest =
        Infinity ? ((kTop - 1) << MantissaBits | ((1u << MantissaBits) - 1)) : 0x7e;
    const u8 sign = bits_as<u32>(value) >> 24 & 0x80;
    if (value != value) return 0x7f;  // PTX: NaN becomes 0x7f in both formats
    const f32 size = std::fabs(value);
    int exponent = 0;
    std::frexp(size, &exponent);
    const int scale =
        std::max(exponent - 1, 1 - Bias) - MantissaBits;  // exponent of the last place
    if (exponent - 1 > 127 - 1 || size >= decode(largest)) return sign | largest;
    const u32 steps = static_cast<u32>(std::rint(std::ldexp(size, -scale)));
    if (steps == 0) return sign;
    // Rounding may carry into the next binade: the encoding is contiguous, so that adding works.
    const u32 biased = static_cast<u32>(scale + MantissaBits + Bias);
    const u32 bits = steps < (1u << MantissaBits)
                         ? steps
                         : (biased << MantissaBits) + (steps - (1u << MantissaBits));
    return sign | static_cast<u8>(bits > largest ? largest : bits);
  }
};
using E4M3 = Small<4, 3, 7, false>;
using E5M2 = Small<5, 2, 15, true>;

}  // namespace workbench::ptx
