// A product and the sum or difference that uses it, rounded once (see ptx/contraction.py). It is an
// fma with signs, because PTX has no signed operands: `kMinusProduct` and `kMinusAddend` in the
// immediate. Changing a sign is exact, so it may happen before the rounding.
#include "arithmetic/elementwise.hpp"
#include "arithmetic/numeric.hpp"

namespace workbench::ptx {
namespace {

constexpr s64 kMinusProduct = 1, kMinusAddend = 2;

template <class T>
inline T negated_if(T x, bool negate) {
  using Bits =
      std::conditional_t<sizeof(T) == 8, u64, std::conditional_t<sizeof(T) == 4, u32, u16>>;
  constexpr int top = 8 * static_cast<int>(sizeof(T)) - 1;
  return bits_as<T>(static_cast<Bits>(bits_as<Bits>(x) ^ static_cast<Bits>(Bits{negate} << top)));
}

// F(a, b, c) with the signs applied to its operands.
template <class F, class T>
inline T with_signs(T a, T b, T c, s64 signs) {
  return F{}(negated_if(a, (signs & kMinusProduct) != 0), b,
             negated_if(c, (signs & kMinusAddend) != 0));
}

template <class F>
void add_single(Table& table, const std::string& modifiers, F) {
  table.push_back(immediate_op(
      "contract" + modifiers + ".f32", Class::fp32, "b32,b32,b32,imm",
      [](f32 a, f32 b, f32 c, s64 signs) -> f32 { return with_signs<F>(a, b, c, signs); }));
}

template <class T, class F>
void add_half_forms(Table& table, const std::string& name, F) {
  const auto function = [](T a, T b, T c, s64 signs) -> T { return with_signs<F>(a, b, c, signs); };
  table.push_back(immediate_op(name, Class::fp16, "b16,b16,b16,imm", function));
  table.push_back(packed_immediate_op(name + "x2", Class::fp16, "b32,b32,b32,imm", function));
}

template <class F>
void add_pair(Table& table, const std::string& modifiers, F) {
  table.push_back(immediate_op(
      "contract" + modifiers + ".f32x2", Class::fp32, "b64,b64,b64,imm",
      [](u64 a, u64 b, u64 c, s64 signs) -> u64 {
        const auto half = [&](int shift) {
          const auto part = [&](u64 pair) { return bits_as<f32>(static_cast<u32>(pair >> shift)); };
          return u64{bits_as<u32>(with_signs<F>(part(a), part(b), part(c), signs))} << shift;
        };
        return half(0) | half(32);
      }));
}

constexpr auto kPlain = [](f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); };
constexpr auto kFlushed = [](f32 a, f32 b, f32 c) {
  return flush(__builtin_fmaf(flush(a), flush(b), flush(c)));
};
constexpr auto kPlainHalf = [](Half a, Half b, Half c) { return fused(a, b, c); };
constexpr auto kFlushedHalf = [](Half a, Half b, Half c) {
  return flush16(fused(flush16(a), flush16(b), flush16(c)));
};

}  // namespace

void add_contractions(Table& table) {
  add_single(table, "", kPlain);
  add_single(table, ".ftz", kFlushed);
  add_single(table, ".sat", [](f32 a, f32 b, f32 c) { return saturate(kPlain(a, b, c)); });
  add_single(table, ".ftz.sat", [](f32 a, f32 b, f32 c) { return saturate(kFlushed(a, b, c)); });
  add_pair(table, "", kPlain);
  add_pair(table, ".ftz", kFlushed);
  table.push_back(immediate_op(
      "contract.f64", Class::fp64, "b64,b64,b64,imm", [](f64 a, f64 b, f64 c, s64 signs) -> f64 {
        const auto whole = [](f64 x, f64 y, f64 z) { return __builtin_fma(x, y, z); };
        return with_signs<decltype(whole)>(a, b, c, signs);
      }));
  add_half_forms<Half>(table, "contract.f16", kPlainHalf);
  add_half_forms<Half>(table, "contract.ftz.f16", kFlushedHalf);
  add_half_forms<Half>(table, "contract.sat.f16",
                       [](Half a, Half b, Half c) { return saturate16(kPlainHalf(a, b, c)); });
  add_half_forms<Half>(table, "contract.ftz.sat.f16",
                       [](Half a, Half b, Half c) { return saturate16(kFlushedHalf(a, b, c)); });
  add_half_forms<Bfloat>(table, "contract.bf16",
                         [](Bfloat a, Bfloat b, Bfloat c) { return fused(a, b, c); });
}

}  // namespace workbench::ptx
