// Floats as elements of a ring, so that sums may be reordered and maxima cancel (docs/EXACT.md).
//
// An element is a residue modulo M = P * Q, with primes P = 2 Q + 1. As P - 1 is a multiple of Q,
// an exponential may take its exponent from the Q part and put its value into the P part, and the
// exponent of a sum is then the product of exponentials. Every format holds all residues, so
// narrowing changes nothing.
//
// A code stands for an element in 16 bits: c * R mod M with R = 2^16 (Montgomery's form), and above
// M the symbols that absorb: infinities, numbers that are huge but finite, "undefined". All from
// "undefined" on make what is computed of them undefined.
#pragma once
#include <cmath>

#include "types.hpp"

namespace workbench::ptx::exact {

constexpr u32 kP = 359, kQ = 179, kModulus = kP * kQ;  // 64,261
constexpr u16 kMinusInfinity = kModulus, kPlusInfinity = kModulus + 1, kLow = kModulus + 2,
              kHigh = kModulus + 3, kUndefined = kModulus + 4,
              kNothing = kModulus + 5;  // a NaN that no instruction made: memory that nobody wrote
constexpr u32 kCodes = 65536;
constexpr u16 kOne = kCodes - kModulus;  // R mod M

inline bool is_special(u16 code) { return code >= kModulus; }

// ---- arithmetic on codes that are residues, without branches so that loops of it are vectorised

constexpr u16 inverse_of_modulus() {  // modulo R, by Newton's steps
  u32 x = 1;
  for (int i = 0; i < 5; ++i) x *= 2 - kModulus * x;
  return static_cast<u16>(x);
}

inline u16 sum_of(u16 a, u16 b) {
  const u16 missing = static_cast<u16>(kModulus - b);
  const u16 sum = static_cast<u16>(a - missing);
  return static_cast<u16>(a < missing ? sum + kModulus : sum);
}

inline u16 negative_of(u16 a) { return static_cast<u16>(a ? kModulus - a : 0); }

// Montgomery's product. `a` may be any 16-bit number.
inline u16 product_of(u16 a, u16 b) {
  constexpr u16 inverse = inverse_of_modulus();
  const u32 whole = u32{a} * b;
  const u16 high = static_cast<u16>(whole >> 16);
  const u16 times = static_cast<u16>(static_cast<u16>(whole) * inverse);
  const u16 back = static_cast<u16>(u32{times} * kModulus >> 16);
  return static_cast<u16>(high < back ? high - back + kModulus : high - back);
}

// ---- the same with symbols

u16 sum(u16 a, u16 b);
u16 product(u16 a, u16 b);
u16 negative(u16 a);

// ---- functions of one element, the order, and the patterns of 16-bit formats, as tables by code

struct Tables {
  u16 of_half[kCodes], of_bfloat[kCodes];  // code of a pattern
  u16 to_half[kCodes], to_bfloat[kCodes];  // pattern of a code
  u16 turns[kCodes];                       // whether a factor turns the sign of an infinity
  u16 rank[kCodes];                        // order: that of the f16 patterns
  u16 magnitude[kCodes];                   // of lower rank than zero: the negative
  u16 inverse[kCodes], root[kCodes], inverse_root[kCodes];
  u16 power_of_two[kCodes], logarithm[kCodes], hyperbolic_tangent[kCodes];
  u16 sine[kCodes], cosine[kCodes];
  u16 unit[5];            // of an f32's mantissa: 2^(16 n - 54), and R once more
  u8 below_zero[kCodes];  // whether the f16 pattern has a sign
};

// The tables; made once, by prepare().
extern const Tables* tables;
void prepare();

inline u16 lesser(u16 a, u16 b) { return tables->rank[b] < tables->rank[a] ? b : a; }
inline u16 greater(u16 a, u16 b) { return tables->rank[b] > tables->rank[a] ? b : a; }

// ---- f32 in a register. A result is a NaN with the code in its lower half, so that a float
// instruction that knows nothing of elements cannot turn it into a number; zero is zero.

constexpr u32 kMark = 0x7fa50000u, kMarked = 0x7fff0000u, kUndefinedBits = 0x7fa4ffffu;

inline u32 bits_of(u16 code) { return code ? kMark | code : 0; }
u32 special_bits_of(u16 code);
u16 code_of(u32 bits);

// Whether a positive number may be one of the constants that stand for what they are meant to be:
// 1 / n, the root of n, 1 / that root, ln(2), and log2(e) times a short number or 1 / a root, for
// whole n. Some that are none pass.
inline u32 may_be_meant(f32 value) {
  const auto near_whole = [](f32 x, f32 most) -> u32 {
    const f32 whole = std::rint(x);
    return (std::fabs(x - whole) <= 1e-6f * whole ? 1u : 0u) & (whole >= 2 ? 1u : 0u) &
           (whole <= most ? 1u : 0u);
  };
  const f32 divisor = 1 / value, square = value * value, scale = value * 0.693147182f;
  const f32 divisor_of_square = divisor * divisor;
  const u32 brief = ((bits_as<u32>(scale) + 4) & 0x7fff) <= 8 ? 1 : 0;
  const u32 ln2 = std::fabs(value - 0.693147182f) < 1e-7f ? 1 : 0;
  return ln2 | brief | near_whole(divisor, 65535) | near_whole(square, 65535) |
         near_whole(divisor_of_square, 65535) | near_whole(divisor_of_square * 2.08136898f, 1024);
}

}  // namespace workbench::ptx::exact
