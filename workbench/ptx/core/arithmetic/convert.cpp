// cvt between integers, and between integers and floating point.
//
// Integer conversions have descriptive names: "extend.s8.b32.b16" extends the low 8 bits of a
// 16-bit register, with their sign, to a 32-bit register. The decoder picks one from the PTX types
// and the register widths.
#include <limits>

#include "arithmetic/numeric.hpp"
#include "arithmetic/rounding.hpp"
#include "codes.hpp"

namespace workbench::ptx {
namespace {

constexpr Class kConvert = Class::conversion;

template <class T>
std::string type_name() {
  if constexpr (std::is_same_v<T, Half>)
    return "f16";
  else if constexpr (std::is_same_v<T, Bfloat>)
    return "bf16";
  else if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 4 ? "f32" : "f64";
  else
    return (std::is_signed_v<T> ? "s" : "u") + std::to_string(8 * sizeof(T));
}

// ---- integer to integer ----

template <class Value, class Target, class Source>
void add_extend(Table& table) {
  if constexpr (sizeof(Value) <= sizeof(Target) && sizeof(Value) <= sizeof(Source)) {
    table.push_back(op(
        "extend." + type_name<Value>() + "." + width_name<Target>() + "." + width_name<Source>(),
        kConvert, [](Source x) -> Target { return static_cast<Target>(static_cast<Value>(x)); }));
  }
}

template <class Target, class Source>
void add_extends(Table& table) {
  add_extend<s8, Target, Source>(table), add_extend<u8, Target, Source>(table);
  add_extend<s16, Target, Source>(table), add_extend<u16, Target, Source>(table);
  add_extend<s32, Target, Source>(table), add_extend<u32, Target, Source>(table);
  add_extend<u64, Target, Source>(table);
}

// Limits of the destination types of a saturating conversion, by IntegerType.
constexpr s64 kLow[] = {INT8_MIN, 0, INT16_MIN, 0, INT32_MIN, 0, INT64_MIN, 0};
constexpr u64 kHigh[] = {INT8_MAX,  UINT8_MAX,  INT16_MAX, UINT16_MAX,
                         INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};

template <class Value, class Target, class Source>
void add_saturating(Table& table) {
  table.push_back(immediate_op(
      "cvt.sat." + type_name<Value>() + "." + width_name<Target>(), kConvert, width_name<Source>(),
      [](Source raw, s64 destination) -> Target {
        const Value x = static_cast<Value>(raw);
        if (std::is_signed_v<Value> && static_cast<s64>(x) < kLow[destination])
          return static_cast<Target>(kLow[destination]);
        if ((!std::is_signed_v<Value> || x > 0) && static_cast<u64>(x) > kHigh[destination])
          return static_cast<Target>(kHigh[destination]);
        return static_cast<Target>(x);
      }));
}

template <class Value, class Source>
void add_saturating_targets(Table& table) {
  add_saturating<Value, u16, Source>(table), add_saturating<Value, u32, Source>(table);
  add_saturating<Value, u64, Source>(table);
}

// ---- floating point to integer: round, then clamp ----

inline f32 round_whole(f32 x, s64 mode) {
  switch (mode & ~s64{Rounding::ftz}) {
    case Rounding::rni: return __builtin_rintf(x);
    case Rounding::rzi: return __builtin_truncf(x);
    case Rounding::rmi: return __builtin_floorf(x);
    default: return __builtin_ceilf(x);
  }
}

inline f64 round_whole(f64 x, s64 mode) {
  switch (mode & ~s64{Rounding::ftz}) {
    case Rounding::rni: return __builtin_rint(x);
    case Rounding::rzi: return __builtin_trunc(x);
    case Rounding::rmi: return __builtin_floor(x);
    default: return __builtin_ceil(x);
  }
}

// NaN gives zero; but where f64 or a 64-bit result is involved, only the sign bit set (PTX ISA,
// cvt).
template <class D, class F>
inline D clamp_whole(F x, bool wide_source) {
  using L = std::numeric_limits<D>;
  constexpr F low = static_cast<F>(L::min());
  constexpr F beyond =
      static_cast<F>(L::max() / 2 + 1) * 2;  // exact: the power of two above the largest value
  if (x != x)
    return wide_source || sizeof(D) == 8 ? static_cast<D>(u64{1} << (8 * sizeof(D) - 1)) : D(0);
  return x < low ? L::min() : x >= beyond ? L::max() : static_cast<D>(x);
}

template <class S, class D>
void add_to_integer(Table& table) {
  // 8-bit results are kept in 16-bit registers.
  using Target =
      std::conditional_t<sizeof(D) == 1, std::conditional_t<std::is_signed_v<D>, s16, u16>, D>;
  table.push_back(
      immediate_op("cvt." + type_name<D>() + "." + type_name<S>(), kConvert, width_name<S>(),
                   [](S x, s64 mode) -> Target {
                     if constexpr (std::is_same_v<S, f64>)
                       return clamp_whole<D>(round_whole(x, mode), true);
                     else {
                       const f32 value = to_f32(x);
                       return clamp_whole<D>(
                           round_whole(mode & Rounding::ftz ? flush(value) : value, mode), false);
                     }
                   }));
}

template <class S>
void add_to_integers(Table& table) {
  add_to_integer<S, s8>(table), add_to_integer<S, u8>(table), add_to_integer<S, s16>(table),
      add_to_integer<S, u16>(table);
  add_to_integer<S, s32>(table), add_to_integer<S, u32>(table), add_to_integer<S, s64>(table),
      add_to_integer<S, u64>(table);
}

// ---- integer to floating point: "cvt.f32.s32" rounds to nearest even; "cvt.rz.f32.s32" and so on
// are directed ----

// Converts a 64-bit integer to a double that rounds to 16 bits as the integer itself would: low
// bits are combined into a sticky bit.
template <class S>
inline f64 sticky(S value) {
  if constexpr (sizeof(S) <= 4)
    return static_cast<f64>(value);
  else {
    const bool negative = value < 0;
    u64 magnitude = negative ? 0 - static_cast<u64>(value) : static_cast<u64>(value);
    if (magnitude >> 40) magnitude = (magnitude >> 16 << 16) | ((magnitude & 0xffff) ? 0x8000 : 0);
    const f64 exact = static_cast<f64>(magnitude);
    return negative ? -exact : exact;
  }
}

// "cvt.rz.f16.s32" and so on: the conversion to a double loses nothing that matters for the
// rounding to 16 bits.
template <class F>
void add_narrow_directed(Table& table, const std::string& from, F) {
  using Source = std::tuple_element_t<0, typename Signature<F>::Arguments>;
  const auto add = [&]<class T, int Direction>(const char* head, std::type_identity<T>,
                                               std::integral_constant<int, Direction>) {
    table.push_back(op(head + from, kConvert,
                       [](Source x) -> T { return directed_narrow<T>(F{}(x), Direction); }));
  };
  add("cvt.rz.f16.", std::type_identity<Half>{}, std::integral_constant<int, 0>{});
  add("cvt.rm.f16.", std::type_identity<Half>{}, std::integral_constant<int, -1>{});
  add("cvt.rp.f16.", std::type_identity<Half>{}, std::integral_constant<int, 1>{});
  add("cvt.rz.bf16.", std::type_identity<Bfloat>{}, std::integral_constant<int, 0>{});
  add("cvt.rm.bf16.", std::type_identity<Bfloat>{}, std::integral_constant<int, -1>{});
  add("cvt.rp.bf16.", std::type_identity<Bfloat>{}, std::integral_constant<int, 1>{});
}

template <class S, class Source>
void add_from_integer(Table& table) {
  const std::string s = type_name<S>();
  table.push_back(op("cvt.f32." + s, kConvert,
                     [](Source x) -> f32 { return static_cast<f32>(static_cast<S>(x)); }));
  if constexpr (sizeof(S) >= 4) {
    add_directed(table, "cvt", ".f32." + s, kConvert,
                 [](Source x) -> f32 { return static_cast<f32>(static_cast<S>(x)); });
    add_directed(table, "cvt", ".f64." + s, kConvert,
                 [](Source x) -> f64 { return static_cast<f64>(static_cast<S>(x)); });
  }
  table.push_back(op("cvt.f64." + s, kConvert,
                     [](Source x) -> f64 { return static_cast<f64>(static_cast<S>(x)); }));
  table.push_back(op("cvt.f16." + s, kConvert,
                     [](Source x) -> Half { return to_half(sticky(static_cast<S>(x))); }));
  add_narrow_directed(table, s, [](Source x) { return sticky(static_cast<S>(x)); });
  table.push_back(op("cvt.bf16." + s, kConvert,
                     [](Source x) -> Bfloat { return to_bfloat(sticky(static_cast<S>(x))); }));
}

}  // namespace

void add_conversions(Table& table) {
  add_extends<u16, u16>(table), add_extends<u32, u16>(table), add_extends<u64, u16>(table);
  add_extends<u16, u32>(table), add_extends<u32, u32>(table), add_extends<u64, u32>(table);
  add_extends<u16, u64>(table), add_extends<u32, u64>(table), add_extends<u64, u64>(table);
  add_saturating_targets<s8, u16>(table), add_saturating_targets<u8, u16>(table);
  add_saturating_targets<s16, u16>(table), add_saturating_targets<u16, u16>(table);
  add_saturating_targets<s32, u32>(table), add_saturating_targets<u32, u32>(table);
  add_saturating_targets<s64, u64>(table), add_saturating_targets<u64, u64>(table);
  add_to_integers<f32>(table), add_to_integers<f64>(table), add_to_integers<Half>(table);
  add_to_integers<Bfloat>(table);
  add_narrow_directed(table, "f64", [](f64 x) { return x; });
  add_from_integer<s8, s16>(table), add_from_integer<u8, u16>(table);
  add_from_integer<s16, s16>(table), add_from_integer<u16, u16>(table);
  add_from_integer<s32, s32>(table), add_from_integer<u32, u32>(table);
  add_from_integer<s64, s64>(table), add_from_integer<u64, u64>(table);
}

}  // namespace workbench::ptx
