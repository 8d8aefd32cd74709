// cvt between floating point formats, and rounding to whole numbers within one.
#include "arithmetic/numeric.hpp"
#include "arithmetic/rounding.hpp"
#include "matrices/small_float.hpp"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace workbench::ptx {
namespace {

constexpr Class kConvert = Class::conversion;

template <class T>
inline T relu(f32 value, T rounded) {
  return value != value ? rounded : value > 0 ? rounded : T{0};
}

template <class T>
inline u32 pair_of(T high, T low) {
  return u32{high.bits} << 16 | low.bits;
}

// .satfinite: infinity becomes the largest finite value.
template <class T>
inline T finite(T x) {
  constexpr u16 infinite = std::is_same_v<T, Half> ? 0x7c00 : 0x7f80;
  return T{static_cast<u16>((x.bits & 0x7fff) == infinite ? x.bits - 1 : x.bits)};
}

// ---- pairs of 8, 6 or 4 bits: one in each byte, or two of 4 bits in a byte ----

template <class Format>
constexpr u32 kStep = std::is_same_v<Format, E2M1> ? 4 : 8;

template <class Format>
inline u16 codes(f32 high, f32 low) {
  return static_cast<u16>(Format::encode(high) << kStep<Format> | Format::encode(low));
}

template <class Format>
inline f32 value_of(u16 pair, u32 place) {
  return Format::decode(static_cast<u8>(pair >> kStep<Format> * place & ((1u << kStep<Format>)-1)));
}

// .relu of an operand; -0 becomes +0, too.
inline f32 positive(f32 x) { return x != x || x > 0 ? x : 0.0f; }

template <class T>
inline f32 half_of(u32 pair, u32 place) {
  return to_f32(T{static_cast<u16>(pair >> 16 * place)});
}

template <class Format>
void add_small(Table& table, const std::string& name) {
  auto add = [&](const std::string& full, auto function) {
    table.push_back(op(full, kConvert, function));
  };
  const std::string x2 = name + "x2";
  add("cvt." + x2 + ".f32", [](f32 high, f32 low) -> u16 { return codes<Format>(high, low); });
  add("cvt.relu." + x2 + ".f32",
      [](f32 high, f32 low) -> u16 { return codes<Format>(positive(high), positive(low)); });
  add("cvt." + x2 + ".f16x2",
      [](u32 x) -> u16 { return codes<Format>(half_of<Half>(x, 1), half_of<Half>(x, 0)); });
  add("cvt.relu." + x2 + ".f16x2", [](u32 x) -> u16 {
    return codes<Format>(positive(half_of<Half>(x, 1)), positive(half_of<Half>(x, 0)));
  });
  add("cvt." + x2 + ".bf16x2",
      [](u32 x) -> u16 { return codes<Format>(half_of<Bfloat>(x, 1), half_of<Bfloat>(x, 0)); });
  add("cvt.relu." + x2 + ".bf16x2", [](u32 x) -> u16 {
    return codes<Format>(positive(half_of<Bfloat>(x, 1)), positive(half_of<Bfloat>(x, 0)));
  });
  add("cvt.relu.f16x2." + x2, [](u16 x) -> u32 {
    const f32 high = value_of<Format>(x, 1), low = value_of<Format>(x, 0);
    return pair_of(relu(high, to_half(high)), relu(low, to_half(low)));
  });
  add("cvt.f16x2." + x2, [](u16 x) -> u32 {
    return pair_of(to_half(value_of<Format>(x, 1)), to_half(value_of<Format>(x, 0)));
  });
}

// ---- UE8M0, and S2F6: a signed byte in units of 1/64, for a value divided by a power of two ----

template <bool Up, bool Finite>
void add_powers(Table& table, const std::string& mode) {
  table.push_back(op("cvt." + mode + ".ue8m0x2.f32", kConvert, [](f32 high, f32 low) -> u16 {
    return static_cast<u16>(PowerOfTwo::encode<Up, Finite>(high) << 8 |
                            PowerOfTwo::encode<Up, Finite>(low));
  }));
  table.push_back(op("cvt." + mode + ".ue8m0x2.bf16x2", kConvert, [](u32 x) -> u16 {
    return static_cast<u16>(PowerOfTwo::encode<Up, Finite>(half_of<Bfloat>(x, 1)) << 8 |
                            PowerOfTwo::encode<Up, Finite>(half_of<Bfloat>(x, 0)));
  }));
}

inline f32 scale_of(u16 scales, u32 place) {
  return PowerOfTwo::decode(static_cast<u8>(scales >> 8 * place));
}

// NaN becomes the largest value.
inline u32 in_64ths(f32 value, u16 scales, u32 place) {
  const f64 scaled = f64{value} / scale_of(scales, place) * 64;
  const f64 whole = scaled != scaled ? 127.0 : std::rint(std::clamp(scaled, -128.0, 127.0));
  return (static_cast<u32>(static_cast<s32>(whole)) & 0xff) << 8 * place;
}

inline f32 from_64ths(u16 pair, u16 scales, u32 place) {
  return static_cast<f32>(static_cast<s8>(pair >> 8 * place)) / 64 * scale_of(scales, place);
}

void add_fixed(Table& table) {
  auto add = [&](const std::string& full, auto function) {
    table.push_back(op(full, kConvert, function));
  };
  add("cvt.s2f6x2.f32", [](f32 high, f32 low, u16 scales) -> u16 {
    return static_cast<u16>(in_64ths(high, scales, 1) | in_64ths(low, scales, 0));
  });
  add("cvt.relu.s2f6x2.f32", [](f32 high, f32 low, u16 scales) -> u16 {
    return static_cast<u16>(in_64ths(positive(high), scales, 1) |
                            in_64ths(positive(low), scales, 0));
  });
  add("cvt.s2f6x2.bf16x2", [](u32 x, u16 scales) -> u16 {
    return static_cast<u16>(in_64ths(half_of<Bfloat>(x, 1), scales, 1) |
                            in_64ths(half_of<Bfloat>(x, 0), scales, 0));
  });
  add("cvt.relu.s2f6x2.bf16x2", [](u32 x, u16 scales) -> u16 {
    return static_cast<u16>(in_64ths(positive(half_of<Bfloat>(x, 1)), scales, 1) |
                            in_64ths(positive(half_of<Bfloat>(x, 0)), scales, 0));
  });
  add("cvt.bf16x2.s2f6x2", [](u16 x, u16 scales) -> u32 {
    return pair_of(to_bfloat(from_64ths(x, scales, 1)), to_bfloat(from_64ths(x, scales, 0)));
  });
  add("cvt.satfinite.bf16x2.s2f6x2", [](u16 x, u16 scales) -> u32 {
    return pair_of(finite(to_bfloat(from_64ths(x, scales, 1))),
                   finite(to_bfloat(from_64ths(x, scales, 0))));
  });
  add("cvt.relu.bf16x2.s2f6x2", [](u16 x, u16 scales) -> u32 {
    return pair_of(to_bfloat(positive(from_64ths(x, scales, 1))),
                   to_bfloat(positive(from_64ths(x, scales, 0))));
  });
  add("cvt.relu.satfinite.bf16x2.s2f6x2", [](u16 x, u16 scales) -> u32 {
    return pair_of(finite(to_bfloat(positive(from_64ths(x, scales, 1)))),
                   finite(to_bfloat(positive(from_64ths(x, scales, 0)))));
  });
  add("cvt.rn.bf16x2.ue8m0x2",
      [](u16 x) -> u32 { return pair_of(to_bfloat(scale_of(x, 1)), to_bfloat(scale_of(x, 0))); });
}

// ---- .rs: adds random bits to the discarded ones; a carry rounds up ----

inline Bfloat round_randomly(f32 value, u32 random, Bfloat) {
  const u32 bits = bits_as<u32>(value), size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return Bfloat{0x7fff};
  return Bfloat{static_cast<u16>((size + (random & 0xffff)) >> 16 | (bits >> 16 & 0x8000))};
}

inline Half round_randomly(f32 value, u32 random, Half) {
  const u32 bits = bits_as<u32>(value), size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return Half{0x7fff};
  const u32 sign = bits >> 16 & 0x8000, exponent = size >> 23;
  random &= 0x1fff;
  u32 result = 0;
  if (exponent >= 113) {
    result = std::min((size - (112u << 23) + random) >> 13, 0x7c00u);
    // A subnormal: add to the highest discarded bits, too.
  } else if (const u32 cut = 126 - exponent; cut < 40) {
    const u64 significand = (bits & 0x7fffffu) | 0x800000u;
    result = static_cast<u32>((significand + (u64{random} << (cut - 13))) >> cut);
  }
  return Half{static_cast<u16>(result | sign)};
}

template <class T>
void add_random(Table& table, const std::string& t) {
  auto add = [&](const std::string& full, auto function) {
    table.push_back(op("cvt.rs" + full + "." + t + "x2.f32", kConvert, function));
  };
  add("", [](f32 high, f32 low, u32 random) -> u32 {
    return pair_of(round_randomly(high, random >> 16, T{}), round_randomly(low, random, T{}));
  });
  add(".relu", [](f32 high, f32 low, u32 random) -> u32 {
    return pair_of(round_randomly(positive(high), random >> 16, T{}),
                   round_randomly(positive(low), random, T{}));
  });
  add(".satfinite", [](f32 high, f32 low, u32 random) -> u32 {
    return pair_of(finite(round_randomly(high, random >> 16, T{})),
                   finite(round_randomly(low, random, T{})));
  });
  add(".relu.satfinite", [](f32 high, f32 low, u32 random) -> u32 {
    return pair_of(finite(round_randomly(positive(high), random >> 16, T{})),
                   finite(round_randomly(positive(low), random, T{})));
  });
}

inline u32 reversed(u32 half) {
  u32 result = 0;
  for (u32 bit = 0; bit < 16; ++bit) result |= (half >> bit & 1) << (15 - bit);
  return result;
}

// Two neighbours share sixteen random bits; the upper one uses them in reverse order. FlashInfer
// (mamba/conversion.cuh) compared this with an sm_100a.
template <class Format>
inline u32 four_codes(f32 a, f32 b, f32 e, f32 f, u32 random) {
  const bool bytes = kStep<Format> == 8;
  const u32 upper = bytes ? random >> 16 : (random >> 8 & 0xff) | (random >> 16 & 0xff00);
  const u32 lower = bytes ? random & 0xffff : (random & 0xff) | (random >> 8 & 0xff00);
  return u32{Format::encode_randomly(a, reversed(upper))} << 3 * kStep<Format> |
         u32{Format::encode_randomly(b, upper)} << 2 * kStep<Format> |
         u32{Format::encode_randomly(e, reversed(lower))} << kStep<Format> |
         u32{Format::encode_randomly(f, lower)};
}

template <class Format>
void add_random_fours(Table& table, const std::string& name) {
  using Codes = std::conditional_t<kStep<Format> == 4, u16, u32>;
  table.push_back(op("cvt.rs." + name + "x4.f32", kConvert,
                     [](f32 a, f32 b, f32 e, f32 f, u32 random) -> Codes {
                       return static_cast<Codes>(four_codes<Format>(a, b, e, f, random));
                     }));
  table.push_back(op("cvt.rs.relu." + name + "x4.f32", kConvert,
                     [](f32 a, f32 b, f32 e, f32 f, u32 random) -> Codes {
                       return static_cast<Codes>(four_codes<Format>(
                           positive(a), positive(b), positive(e), positive(f), random));
                     }));
}

// f32 to f16 or bf16, one value or a pair.
template <class T, class Nearest, class Zero>
void add_narrow(Table& table, const std::string& t, Nearest, Zero) {
  auto add = [&](const std::string& full, auto function) {
    table.push_back(op(full, kConvert, function));
  };
  add("cvt.rn." + t + ".f32", [](f32 x) -> T { return Nearest{}(x); });
  add("cvt.rz." + t + ".f32", [](f32 x) -> T { return Zero{}(x); });
  add("cvt.rn.relu." + t + ".f32", [](f32 x) -> T { return relu(x, Nearest{}(x)); });
  add("cvt.rz.relu." + t + ".f32", [](f32 x) -> T { return relu(x, Zero{}(x)); });
  add("cvt.rn.satfinite." + t + ".f32", [](f32 x) -> T { return finite(Nearest{}(x)); });
  add("cvt.rz.satfinite." + t + ".f32", [](f32 x) -> T { return finite(Zero{}(x)); });
  add("cvt.rn.relu.satfinite." + t + ".f32",
      [](f32 x) -> T { return finite(relu(x, Nearest{}(x))); });
  add("cvt.rz.relu.satfinite." + t + ".f32", [](f32 x) -> T { return finite(relu(x, Zero{}(x))); });
  add("cvt.rm." + t + ".f32", [](f32 x) -> T { return directed_narrow<T>(x, -1); });
  add("cvt.rp." + t + ".f32", [](f32 x) -> T { return directed_narrow<T>(x, 1); });
  add("cvt.rz.relu." + t + "x2.f32", [](f32 high, f32 low) -> u32 {
    return pair_of(relu(high, Zero{}(high)), relu(low, Zero{}(low)));
  });
  add("cvt.rn.satfinite." + t + "x2.f32", [](f32 high, f32 low) -> u32 {
    return pair_of(finite(Nearest{}(high)), finite(Nearest{}(low)));
  });
  add("cvt.rz.satfinite." + t + "x2.f32",
      [](f32 high, f32 low) -> u32 { return pair_of(finite(Zero{}(high)), finite(Zero{}(low))); });
  add("cvt.rn.relu.satfinite." + t + "x2.f32", [](f32 high, f32 low) -> u32 {
    return pair_of(finite(relu(high, Nearest{}(high))), finite(relu(low, Nearest{}(low))));
  });
  add("cvt.rz.relu.satfinite." + t + "x2.f32", [](f32 high, f32 low) -> u32 {
    return pair_of(finite(relu(high, Zero{}(high))), finite(relu(low, Zero{}(low))));
  });
  add("cvt.rn." + t + "x2.f32",
      [](f32 high, f32 low) -> u32 { return pair_of(Nearest{}(high), Nearest{}(low)); });
  add("cvt.rz." + t + "x2.f32",
      [](f32 high, f32 low) -> u32 { return pair_of(Zero{}(high), Zero{}(low)); });
  add("cvt.rn.relu." + t + "x2.f32", [](f32 high, f32 low) -> u32 {
    return pair_of(relu(high, Nearest{}(high)), relu(low, Nearest{}(low)));
  });
}

template <class T>
void add_whole(Table& table, const std::string& t) {
  auto add = [&](const std::string& full, auto function) {
    table.push_back(op(full, kConvert, function));
  };
  add("cvt.rni." + t + "." + t, [](T x) -> T { return from_f32<T>(__builtin_rintf(to_f32(x))); });
  add("cvt.rzi." + t + "." + t, [](T x) -> T { return from_f32<T>(__builtin_truncf(to_f32(x))); });
  add("cvt.rmi." + t + "." + t, [](T x) -> T { return from_f32<T>(__builtin_floorf(to_f32(x))); });
  add("cvt.rpi." + t + "." + t, [](T x) -> T { return from_f32<T>(__builtin_ceilf(to_f32(x))); });
}

// TF32 keeps 10 bits of mantissa; .rna rounds ties away from zero.
inline u32 to_tf32_away(f32 x) {
  const u32 bits = bits_as<u32>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return kNaN32;
  if ((bits & 0x7f800000) == 0x7f800000) return bits;
  return (bits + 0x1000) & kTf32Bits;
}

inline u32 to_tf32_even(f32 x) {
  const u32 bits = bits_as<u32>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return kNaN32;
  if ((bits & 0x7f800000) == 0x7f800000) return bits;
  return (bits + 0xfff + (bits >> 13 & 1)) & kTf32Bits;
}

#ifdef __F16C__
// Converts f16 to f32 by the processor's instruction. Returns false if there is a NaN, which that
// would make quiet.
inline bool widen_numbers(const u8* from, f32* to) {
  __m256 wide[4], nans{};
  for (std::size_t i = 0; i < 4; ++i) {
    __m128i halves;
    std::memcpy(&halves, from + i * sizeof halves, sizeof halves);
    wide[i] = _mm256_cvtph_ps(halves);
    nans = _mm256_or_ps(nans, _mm256_cmp_ps(wide[i], wide[i], _CMP_UNORD_Q));
  }
  if (_mm256_movemask_ps(nans)) return false;
  std::memcpy(to, wide, sizeof wide);
  return true;
}
#endif

TableEntry widen_halves() {
  constexpr auto each = [](Half x) -> f32 { return to_f32(x); };
  TableEntry entry = op("cvt.f32.f16", kConvert, each);
#ifdef __F16C__
  entry.run = Handlers([](u8* registers, const Instruction& in, u32 mask, Warp& warp) {
    if (mask != kAllLanes || !widen_numbers(at<u8>(registers, in.elementwise.source[0]),
                                            at<f32>(registers, in.elementwise.destination)))
      elementwise<1, decltype(each)>(registers, in, mask, warp);
  });
#endif
  return entry;
}

}  // namespace

void add_float_conversions(Table& table) {
  auto add = [&](const char* name, auto function) {
    table.push_back(op(name, kConvert, function));
  };
  table.push_back(widen_halves());
  add("cvt.ftz.f32.f16", [](Half x) -> f32 { return flush(to_f32(x)); });
  add("cvt.f32.bf16", [](Bfloat x) -> f32 { return to_f32(x); });
  add("cvt.f64.f16", [](Half x) -> f64 { return to_f32(x); });
  add("cvt.f64.bf16", [](Bfloat x) -> f64 { return to_f32(x); });
  add("cvt.f64.f32", [](f32 x) -> f64 { return x; });
  add("cvt.ftz.f64.f32", [](f32 x) -> f64 { return flush(x); });
  add("cvt.rn.f32.f64", [](f64 x) -> f32 { return static_cast<f32>(x); });
  add("cvt.rn.ftz.f32.f64", [](f64 x) -> f32 { return flush(static_cast<f32>(x)); });
  add("cvt.rn.f16.f64", [](f64 x) -> Half { return to_half(x); });
  add("cvt.rn.bf16.f64", [](f64 x) -> Bfloat { return to_bfloat(x); });
  add("cvt.rn.bf16.f16", [](Half x) -> Bfloat { return to_bfloat(to_f32(x)); });
  add("cvt.rn.f16.bf16", [](Bfloat x) -> Half { return to_half(to_f32(x)); });
  add("cvt.sat.f32.f32", [](f32 x) -> f32 { return saturate(x); });
  add("cvt.ftz.f32.f32", [](f32 x) -> f32 { return flush(x); });
  add("cvt.ftz.sat.f32.f32", [](f32 x) -> f32 { return saturate(flush(x)); });
  add("cvt.f32.f32", [](f32 x) -> f32 { return x; });
  add("cvt.rn.tf32.f32", [](f32 x) -> u32 { return to_tf32_even(x); });
  add("cvt.rz.tf32.f32",
      [](f32 x) -> u32 { return x != x ? kNaN32 : bits_as<u32>(x) & kTf32Bits; });
  add("cvt.rn.relu.tf32.f32", [](f32 x) -> u32 {
    return x != x ? kNaN32 : x > 0 ? to_tf32_even(x) : 0;
  });
  add("cvt.rz.relu.tf32.f32", [](f32 x) -> u32 {
    return x != x ? kNaN32 : x > 0 ? bits_as<u32>(x) & kTf32Bits : 0;
  });
  add("cvt.sat.f64.f64", [](f64 x) -> f64 { return x > 0 ? (x < 1 ? x : 1.0) : 0.0; });
  add("cvt.sat.f16.f16", [](Half x) -> Half { return to_half(saturate(to_f32(x))); });
  add("cvt.rna.tf32.f32", [](f32 x) -> u32 { return to_tf32_away(x); });
  add_directed(table, "cvt", ".f32.f64", kConvert,
               [](f64 x) -> f32 { return static_cast<f32>(x); });
  add_narrow<Half>(
      table, "f16", [](f32 x) { return to_half(x); }, [](f32 x) { return to_half_rz(x); });
  add_narrow<Bfloat>(
      table, "bf16", [](f32 x) { return to_bfloat(x); }, [](f32 x) { return to_bfloat_rz(x); });
  add_whole<f32>(table, "f32"), add_whole<Half>(table, "f16"), add_whole<Bfloat>(table, "bf16");
  add("cvt.rni.f64.f64", [](f64 x) -> f64 { return __builtin_rint(x); });
  add("cvt.rzi.f64.f64", [](f64 x) -> f64 { return __builtin_trunc(x); });
  add("cvt.rmi.f64.f64", [](f64 x) -> f64 { return __builtin_floor(x); });
  add("cvt.rpi.f64.f64", [](f64 x) -> f64 { return __builtin_ceil(x); });
  add_small<E4M3>(table, "e4m3");
  add_small<E5M2>(table, "e5m2");
  add_small<E2M3>(table, "e2m3");
  add_small<E3M2>(table, "e3m2");
  add_small<E2M1>(table, "e2m1");
  add_powers<false, false>(table, "rz");
  add_powers<true, false>(table, "rp");
  add_powers<false, true>(table, "rz.satfinite");
  add_powers<true, true>(table, "rp.satfinite");
  add_fixed(table);
  add_random<Half>(table, "f16");
  add_random<Bfloat>(table, "bf16");
  add_random_fours<E4M3>(table, "e4m3");
  add_random_fours<E5M2>(table, "e5m2");
  add_random_fours<E2M3>(table, "e2m3");
  add_random_fours<E3M2>(table, "e3m2");
  add_random_fours<E2M1>(table, "e2m1");
}

}  // namespace workbench::ptx
