// cvt between floating point formats, and rounding to whole numbers within one.
#include "numeric.hpp"
#include "rounding.hpp"
#include "small_float.hpp"

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

template <class Format>
void add_small(Table& table, const std::string& name) {
  auto add = [&](const std::string& full, auto function) {
    table.push_back(op(full, kConvert, function));
  };
  add("cvt." + name + "x2.f32", [](f32 high, f32 low) -> u16 {
    return static_cast<u16>(Format::encode(high) << 8 | Format::encode(low));
  });
  add("cvt.relu." + name + "x2.f32", [](f32 high, f32 low) -> u16 {
    return static_cast<u16>(Format::encode(high < 0 ? 0.0f : high) << 8 |
                            Format::encode(low < 0 ? 0.0f : low));
  });
  add("cvt." + name + "x2.f16x2", [](u32 x) -> u16 {
    return static_cast<u16>(Format::encode(to_f32(Half{static_cast<u16>(x >> 16)})) << 8 |
                            Format::encode(to_f32(Half{static_cast<u16>(x)})));
  });
  add("cvt.relu." + name + "x2.f16x2", [](u32 x) -> u16 {
    const f32 high = to_f32(Half{static_cast<u16>(x >> 16)}),
              low = to_f32(Half{static_cast<u16>(x)});
    return static_cast<u16>(Format::encode(high < 0 ? 0.0f : high) << 8 |
                            Format::encode(low < 0 ? 0.0f : low));
  });
  add("cvt.relu.f16x2." + name + "x2", [](u16 x) -> u32 {
    const f32 high = Format::decode(static_cast<u8>(x >> 8)),
              low = Format::decode(static_cast<u8>(x));
    return pair_of(relu(high, to_half(high)), relu(low, to_half(low)));
  });
  add("cvt.f16x2." + name + "x2", [](u16 x) -> u32 {
    return u32{to_half(Format::decode(static_cast<u8>(x >> 8))).bits} << 16 |
           to_half(Format::decode(static_cast<u8>(x))).bits;
  });
}

// f32 to f16 or bf16, one or two at a time.
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
// f16 to f32 as the processor does it. False if there is a NaN, which it would make quiet.
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
  add_small<E4M3>(table, "e4m3"), add_small<E5M2>(table, "e5m2");
}

}  // namespace workbench::ptx
