// Elements of the ring: sums and products with symbols, tables, and the meaning of f32 bits.
#include "exact/ring.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "arithmetic/half.hpp"

namespace workbench::ptx::exact {

const Tables* tables = nullptr;

namespace {

u32 power(u64 base, u64 exponent, u32 modulus) {
  u64 result = 1;
  for (base %= modulus; exponent; exponent >>= 1, base = base * base % modulus)
    if (exponent & 1) result = result * base % modulus;
  return static_cast<u32>(result);
}

u32 invert(u32 x, u32 prime) { return power(x, prime - 2, prime); }

// The residue with these parts modulo P and Q.
u32 join(u32 p, u32 q) {
  static const u64 of_p = u64{kQ} * invert(kQ, kP), of_q = u64{kP} * invert(kP, kQ);
  return static_cast<u32>((p * of_p + q * of_q) % kModulus);
}

u16 to_code(u64 residue) { return static_cast<u16>((residue % kModulus << 16) % kModulus); }
u32 to_residue(u16 code) {
  static const u64 back = join(invert(kCodes % kP, kP), invert(kCodes % kQ, kQ));
  return static_cast<u32>(code * back % kModulus);
}

// 2 to the power of e.
u32 two_to(int e) {
  constexpr int order = (kP - 1) * (kQ - 1);
  return power(2, static_cast<u64>((e % order + order) % order), kModulus);
}

// The code of a finite number, exactly.
u16 dyadic(f64 x) {
  if (x == 0) return 0;
  int e;
  const f64 fraction = std::frexp(std::fabs(x), &e);
  u64 n = static_cast<u64>(std::ldexp(fraction, 53));
  const u16 code = to_code(n % kModulus * two_to(e - 53));
  return x < 0 ? negative_of(code) : code;
}

u64 scramble(u64 x, u64 tag) {  // splitmix64
  x ^= tag * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

constexpr u32 kLog2E = 0x3fb8aa3bu;  // log2(e) as an f32

// ---- the patterns of f16 and bf16: each residue has one. Numbers of few digits and whole ones
// stand for what they are, the others for what is left.

struct Format {
  u16* code_of;     // by pattern
  u16* pattern_of;  // by code
  int mantissa_bits, bias;
  f32 (*value)(u16 pattern);
  u16 (*nearest)(f32 number);
  std::vector<bool> taken = std::vector<bool>(kCodes);  // codes

  u16 quiet() const { return static_cast<u16>(infinity() | 1u << (mantissa_bits - 1)); }
  u16 infinity() const { return static_cast<u16>(0x7fffu >> mantissa_bits << mantissa_bits); }
  int digits(u16 pattern) const {
    const u32 mantissa = pattern & ((1u << mantissa_bits) - 1);
    return mantissa ? mantissa_bits - __builtin_ctz(mantissa) : 0;
  }
  void assign(u16 pattern, u16 code) {  // a positive pattern
    taken[code] = taken[negative_of(code)] = true;
    code_of[pattern] = code;
    code_of[pattern | 0x8000] = negative_of(code);
    pattern_of[code] = pattern;
    pattern_of[negative_of(code)] = pattern | 0x8000;
  }
  // A positive number stands for what it is, if the format holds it. Another one may do so for the
  // same residue, which then has that one's pattern.
  void assign_exactly(f32 number) {
    const u16 pattern = nearest(number);
    if (value(pattern) != number || pattern + 1 >= infinity() || code_of[pattern]) return;
    const u16 code = dyadic(number);
    if (!taken[code]) return assign(pattern, code);
    code_of[pattern] = code;
    code_of[pattern | 0x8000] = negative_of(code);
  }
  void assign_symbols() {
    const u16 top = infinity();
    for (u32 pattern = top + 1u; pattern < 0x8000; ++pattern)
      code_of[pattern] = code_of[pattern | 0x8000] = kNothing;
    code_of[0x7fff] = kUndefined;
    const auto symbol = [&](u16 pattern, u16 plus, u16 minus) {
      code_of[pattern] = plus, code_of[pattern | 0x8000] = minus;
      pattern_of[plus] = pattern, pattern_of[minus] = pattern | 0x8000;
    };
    symbol(top, kPlusInfinity, kMinusInfinity);
    symbol(static_cast<u16>(top - 1), kHigh, kLow);
    for (u32 code = kUndefined; code < kCodes; ++code) pattern_of[code] = 0x7fff;
    pattern_of[kNothing] = quiet();
    code_of[0] = code_of[0x8000] = 0;
    pattern_of[0] = 0;
    taken[0] = true;
  }
};

// Calls with the numbers m * 2^e of up to four digits, for e in a range of sizes.
template <class F>
void for_short_numbers(int least, int most, F&& call) {
  for (int size = least; size <= most; ++size)
    for (const int e : {size, -size})
      for (int m = 1; m < 16; m += 2) call(std::ldexp(static_cast<f32>(m), e));
}

// The positive numbers that both formats hold get the same codes.
void assign_shared(Format& half, Format& bfloat) {
  std::vector<u16> patterns;  // of bf16
  for (int e = -14; e < 16; ++e)
    for (int m = 0; m < 128; ++m) patterns.push_back(static_cast<u16>((e + 127) << 7 | m));
  std::stable_sort(patterns.begin(), patterns.end(), [&](u16 a, u16 b) {
    const auto cost = [&](u16 x) { return 4 * bfloat.digits(x) + std::abs((x >> 7) - 127); };
    return cost(a) < cost(b);
  });
  for (const u16 pattern : patterns) {
    const f32 value = bfloat.value(pattern);
    const u16 in_half = half.nearest(value);
    if (bfloat.code_of[pattern]) continue;
    u16 code = dyadic(value);
    for (u64 tries = 0; half.taken[code] || bfloat.taken[code]; ++tries)
      code = static_cast<u16>(scramble(pattern, tries) % kModulus);
    half.assign(in_half, code);
    bfloat.assign(pattern, code);
  }
}

// The other positive patterns. A number of f16 is what it is as long as nothing else is; the signs
// of a bf16 pattern and of the f16 pattern of its code agree.
void assign_rest(Format& format, const Format* order) {
  const u16 top = static_cast<u16>(format.infinity() - 1);
  std::vector<u16> left;
  const auto positive = [&](u16 code) { return !order || !(order->pattern_of[code] >> 15); };
  for (u32 pattern = 1; pattern < top; ++pattern) {
    if (format.code_of[pattern] || format.code_of[pattern | 0x8000]) continue;
    const u16 code = dyadic(format.value(static_cast<u16>(pattern)));
    if (format.taken[code] || !positive(code))
      left.push_back(static_cast<u16>(pattern));
    else
      format.assign(static_cast<u16>(pattern), code);
  }
  for (u32 pattern = format.infinity() + 1u; pattern < 0x7fff; ++pattern)  // NaNs that are rare
    if (pattern != format.quiet()) left.push_back(static_cast<u16>(pattern));
  u32 code = 1;
  for (const u16 pattern : left) {
    while (code < kModulus && (format.taken[code] || !positive(static_cast<u16>(code)))) ++code;
    if (code < kModulus) {
      format.assign(pattern, static_cast<u16>(code));
    } else if (pattern < format.infinity()) {  // more patterns than residues: share one
      u16 shared = static_cast<u16>(1 + scramble(pattern, 3) % (kModulus - 1));
      if (!positive(shared)) shared = negative_of(shared);
      format.code_of[pattern] = shared;
      format.code_of[pattern | 0x8000] = negative_of(shared);
    }
  }
}

void make_formats(Tables& made) {
  Format half{made.of_half,
              made.to_half,
              10,
              15,
              [](u16 x) { return to_f32(Half{x}); },
              [](f32 x) { return to_half(x).bits; }};
  Format bfloat{made.of_bfloat,
                made.to_bfloat,
                7,
                127,
                [](u16 x) { return to_f32(Bfloat{x}); },
                [](f32 x) { return to_bfloat(x).bits; }};
  half.assign_symbols(), bfloat.assign_symbols();
  const auto exactly = [&](f32 number) {
    half.assign_exactly(number), bfloat.assign_exactly(number);
  };
  // 1024 + n and others are made of the bits of n and a constant exponent; so are 2^-120 n.
  for_short_numbers(0, 24, exactly);
  for (int n = 1; n <= 2048; ++n) exactly(static_cast<f32>(n));
  assign_shared(half, bfloat);
  for_short_numbers(25, 133, [&](f32 number) { bfloat.assign_exactly(number); });
  assign_rest(half, nullptr);
  assign_rest(bfloat, &half);
}

void make_order(Tables& made) {
  std::vector<u16> codes(kModulus);
  for (u32 code = 0; code < kModulus; ++code) codes[code] = static_cast<u16>(code);
  const auto key = [&](u16 code) {
    const int pattern = made.to_half[code];
    return pattern & 0x8000 ? -(pattern & 0x7fff) : pattern;
  };
  std::sort(codes.begin(), codes.end(), [&](u16 a, u16 b) { return key(a) < key(b); });
  for (u32 i = 0; i < kModulus; ++i) made.rank[codes[i]] = static_cast<u16>(i + 2);
  made.rank[kMinusInfinity] = 0;
  made.rank[kLow] = 1;
  made.rank[kHigh] = kModulus + 2;
  for (u32 code = kPlusInfinity; code < kCodes; ++code)
    if (code != kLow && code != kHigh) made.rank[code] = kModulus + 3;
  for (u32 code = 0; code < kCodes; ++code) {
    const u16 x = static_cast<u16>(code);
    made.magnitude[code] = made.rank[x] < made.rank[0] ? negative(x) : x;
  }
}

void make_functions(Tables& made) {
  const auto of_residues = [&](u16(&table)[kCodes], auto function) {
    for (u32 code = 0; code < kModulus; ++code) {
      const u32 x = to_residue(static_cast<u16>(code));
      table[code] = function(x % kP, x % kQ);
    }
    for (u32 code = kModulus; code < kCodes; ++code) table[code] = kUndefined;
  };
  const auto code = [](u32 p, u32 q) { return to_code(join(p, q)); };
  of_residues(made.inverse, [&](u32 p, u32 q) {
    return p ? code(invert(p, kP), q ? invert(q, kQ) : 0) : kUndefined;
  });
  made.inverse[kMinusInfinity] = made.inverse[kPlusInfinity] = 0;
  made.inverse[kLow] = made.inverse[kHigh] = 0;
  of_residues(made.root, [&](u32 p, u32 q) {
    return code(power(p, (kP + 1) / 4, kP), power(q, (kQ + 1) / 4, kQ));
  });
  made.root[kPlusInfinity] = kPlusInfinity;
  for (u32 x = 0; x < kCodes; ++x) made.inverse_root[x] = made.inverse[made.root[x]];
  of_residues(made.power_of_two, [&](u32, u32 q) { return code(power(2, q, kP), 0); });
  made.power_of_two[kMinusInfinity] = made.power_of_two[kLow] = 0;
  made.power_of_two[kPlusInfinity] = made.power_of_two[kHigh] = kPlusInfinity;
  u32 exponent[kP] = {};
  for (u32 q = 0, x = 1; q < kQ; ++q, x = x * 2 % kP) exponent[x] = exponent[kP - x] = q;
  of_residues(made.logarithm, [&](u32 p, u32) {
    return p ? code(static_cast<u32>(scramble(p, 1) % kP), exponent[p]) : kMinusInfinity;
  });
  made.logarithm[kPlusInfinity] = kPlusInfinity;
  const auto tagged = [&](u64 tag) {
    return [&code, tag](u32 p, u32 q) {
      return code(static_cast<u32>(scramble(p, tag) % kP),
                  static_cast<u32>(scramble(q, tag + 1) % kQ));
    };
  };
  of_residues(made.sine, tagged(2));
  of_residues(made.cosine, tagged(4));
  const u16 two_log2e = product(to_code(2), code_of(kLog2E));
  for (u32 x = 0; x < kCodes; ++x) {  // 1 - 2 / (1 + exp(2 x))
    const u16 whole = made.power_of_two[product(static_cast<u16>(x), two_log2e)];
    const u16 part = product(to_code(2), made.inverse[sum(kOne, whole)]);
    made.hyperbolic_tangent[x] = sum(kOne, negative(part));
  }
}

u16 code_of_whole(f64 n) { return to_code(static_cast<u64>(n)); }

// The constant that a positive f32 with many digits stands for, kUndefined for none. Divisors of P
// have no inverse, and so no constant.
u16 meant_by(f32 value) {
  const auto is = [&](f64 x) { return std::fabs(static_cast<f64>(value) - x) <= x * 0x1p-24; };
  const f64 exact = value;
  if (is(M_LN2)) return tables->inverse[code_of(kLog2E)];
  if (const f64 n = std::rint(1 / exact); n >= 3 && n < 65536 && is(1 / n))
    return tables->inverse[code_of_whole(n)];
  if (const f64 n = std::rint(exact * exact); n >= 2 && n < 65536 && is(std::sqrt(n)))
    return tables->root[code_of_whole(n)];
  if (const f64 n = std::rint(1 / (exact * exact)); n >= 2 && n < 65536 && is(1 / std::sqrt(n)))
    return tables->inverse_root[code_of_whole(n)];
  if (bits_as<u32>(value) == kLog2E) return kUndefined;  // what others are multiples of
  const u16 log2e = code_of(kLog2E);
  const f64 scale = exact * M_LN2;
  const f32 brief = bits_as<f32>((bits_as<u32>(static_cast<f32>(scale)) + 0x4000u) & 0xffff8000u);
  if (is(brief * M_LOG2E)) return product(dyadic(brief), log2e);
  if (const f64 n = std::rint(1 / (scale * scale));
      n >= 2 && n <= 1024 && is(M_LOG2E / std::sqrt(n)))
    return product(tables->inverse_root[code_of_whole(n)], log2e);
  return kUndefined;
}

// Whether a factor turns the sign of an infinity: short negative numbers, and logarithms of bases.
// Others may be positive numbers whose residue has the other sign.
bool turns(u16 factor) {
  const u16 pattern = tables->to_half[factor];
  if (pattern >> 15 && !(pattern & 0x3f)) return true;
  const u16 positive = negative_of(factor);
  const u16 log2e = code_of(kLog2E);
  return positive == log2e || product_of(positive, log2e) == kOne;  // log2(e), ln(2)
}

bool is_low(u16 x) { return x == kMinusInfinity || x == kLow; }
bool is_infinite(u16 x) { return x == kMinusInfinity || x == kPlusInfinity; }

}  // namespace

u16 negative(u16 a) {
  switch (a) {
    case kMinusInfinity: return kPlusInfinity;
    case kPlusInfinity: return kMinusInfinity;
    case kLow: return kHigh;
    case kHigh: return kLow;
    default: return is_special(a) ? kUndefined : negative_of(a);
  }
}

u16 sum(u16 a, u16 b) {
  if (!is_special(a) && !is_special(b)) return sum_of(a, b);
  if (a >= kUndefined || b >= kUndefined) return kUndefined;
  if (!is_special(a)) return b;
  if (!is_special(b)) return a;
  if (is_infinite(a) && is_infinite(b)) return a == b ? a : kUndefined;
  if (is_infinite(a)) return a;
  if (is_infinite(b)) return b;
  return a == b ? a : 0;  // of two huge numbers
}

u16 product(u16 a, u16 b) {
  if (!is_special(a) && !is_special(b)) return product_of(a, b);
  if (a >= kUndefined || b >= kUndefined) return kUndefined;
  if (a == 0 || b == 0) return is_infinite(a) || is_infinite(b) ? kUndefined : 0;
  if (is_special(a) && is_special(b)) {
    const bool infinite = is_infinite(a) || is_infinite(b);
    if (is_low(a) == is_low(b)) return infinite ? kPlusInfinity : kHigh;
    return infinite ? kMinusInfinity : kLow;
  }
  const u16 symbol = is_special(a) ? a : b, factor = is_special(a) ? b : a;
  return tables->turns[factor] ? negative(symbol) : symbol;
}

u32 special_bits_of(u16 code) {
  switch (code) {
    case kMinusInfinity: return 0xff800000u;
    case kPlusInfinity: return 0x7f800000u;
    case kLow: return 0xff61b1e7u;
    case kHigh: return 0x7f61b1e7u;
    case kNothing: return 0x7fc00000u;
    default: return is_special(code) ? kUndefinedBits : bits_of(code);
  }
}

u16 code_of(u32 bits) {
  const u32 size = bits & 0x7fffffffu;
  const bool minus = bits >> 31;
  const auto with_sign = [&](u16 code) { return minus ? negative(code) : code; };
  if ((size & kMarked) == kMark) {
    const u16 code = static_cast<u16>(size);
    return is_special(code) ? kUndefined : with_sign(code);
  }
  if (!(size & 0xffff)) return tables->of_bfloat[bits >> 16];
  if (size > 0x7f800000u) return size == kUndefinedBits ? kUndefined : kNothing;
  if (size >= 0x4e800000u) return minus ? kLow : kHigh;  // from 2^30 on, with many digits
  const f32 value = bits_as<f32>(size);
  const u16 code = dyadic(value);
  if (!(size & 0x7ff) || std::rint(value) == value) return with_sign(code);
  if (may_be_meant(value)) {
    const u16 meant = meant_by(value);
    if (!is_special(meant)) return with_sign(meant);
  }
  return with_sign(tables->to_half[code] >> 15 ? negative_of(code) : code);
}

void prepare() {
  static std::once_flag once;
  std::call_once(once, [] {
    static Tables made;
    tables = &made;
    // The exponent's lower bits are 0 for 2^-31; one more R, as what these multiply are plain
    // numbers.
    for (int n = 0; n < 5; ++n) made.unit[n] = to_code(to_code(to_code(two_to(16 * n - 54))));
    make_formats(made);
    for (u32 code = 0; code < kModulus; ++code) made.turns[code] = turns(static_cast<u16>(code));
    for (u32 code = 0; code < kModulus; ++code)
      made.below_zero[code] = made.to_half[code] >> 15 ? 1 : 0;
    make_order(made);
    make_functions(made);
  });
}

}  // namespace workbench::ptx::exact
