// The approximate functions of the special function unit. Each is at least as exact as PTX
// promises; none is bit-identical to the hardware.
#include <cmath>

#include "arithmetic/elementwise.hpp"
#include "arithmetic/numeric.hpp"

namespace workbench::ptx {
namespace {

// An approximate function in its plain and .ftz forms.
template <class F>
void add_forms(Table& table, const std::string& name, F) {
  table.push_back(op(name + ".f32", Class::special, [](f32 a) -> f32 { return F{}(a); }));
  table.push_back(
      op(name + ".ftz.f32", Class::special, [](f32 a) -> f32 { return flush(F{}(flush(a))); }));
}

// Beyond 2^126 the hardware's reciprocal underflows, and so does the quotient.
inline f32 divide_approx(f32 a, f32 b) {
  const f32 size = b < 0 ? -b : b;
  const bool huge = size > 0x1p126f && size < __builtin_inff();
  // Zero, or NaN for an infinite a.
  const f32 underflow = (a - a) * b;
  return huge ? bits_as<f32>((bits_as<u32>(underflow) & 0x7fffffffu) |
                             ((bits_as<u32>(a) ^ bits_as<u32>(b)) & 0x80000000u))
              : a / b;
}

}  // namespace

void add_special_functions(Table& table) {
  add_forms(table, "ex2.approx", [](f32 a) { return exp2_approx(a); });
  add_forms(table, "lg2.approx", [](f32 a) { return std::log2(a); });
  add_forms(table, "sin.approx", [](f32 a) { return std::sin(a); });
  add_forms(table, "cos.approx", [](f32 a) { return std::cos(a); });
  add_forms(table, "rcp.approx", [](f32 a) { return 1.0f / a; });
  add_forms(table, "sqrt.approx", [](f32 a) { return __builtin_sqrtf(a); });
  add_forms(table, "rsqrt.approx", [](f32 a) { return 1.0f / __builtin_sqrtf(a); });
  add_forms(table, "tanh.approx", [](f32 a) { return std::tanh(a); });
  auto add = [&](const char* name, Class group, auto function) {
    table.push_back(op(name, group, function));
  };
  add("div.approx.f32", Class::special, [](f32 a, f32 b) -> f32 { return divide_approx(a, b); });
  add("div.approx.ftz.f32", Class::special,
      [](f32 a, f32 b) -> f32 { return flush(divide_approx(flush(a), flush(b))); });
  add("div.full.f32", Class::special, [](f32 a, f32 b) -> f32 { return a / b; });
  add("div.full.ftz.f32", Class::special,
      [](f32 a, f32 b) -> f32 { return flush(flush(a) / flush(b)); });
  add("rcp.approx.ftz.f64", Class::special, [](f64 a) -> f64 {
    // The hardware computes only the upper word; the lower one is zero.
    return bits_as<f64>(bits_as<u64>(1.0 / a) & 0xffffffff00000000ull);
  });
  add("rsqrt.approx.f64", Class::special, [](f64 a) -> f64 { return 1.0 / __builtin_sqrt(a); });
  add("rsqrt.approx.ftz.f64", Class::special, [](f64 a) -> f64 {
    return bits_as<f64>(bits_as<u64>(1.0 / __builtin_sqrt(a)) & 0xffffffff00000000ull);
  });
  add("ex2.approx.f16", Class::special,
      [](Half a) -> Half { return to_half(exp2_approx(to_f32(a))); });
  add("ex2.approx.ftz.bf16", Class::special,
      [](Bfloat a) -> Bfloat { return to_bfloat(flush(exp2_approx(flush(to_f32(a))))); });
  add("tanh.approx.f16", Class::special,
      [](Half a) -> Half { return to_half(std::tanh(to_f32(a))); });
  add("tanh.approx.bf16", Class::special,
      [](Bfloat a) -> Bfloat { return to_bfloat(std::tanh(to_f32(a))); });
  auto packed = [&](const char* name, auto function) {
    table.push_back(packed_op(name, Class::special, function));
  };
  packed("ex2.approx.f16x2", [](Half a) -> Half { return to_half(exp2_approx(to_f32(a))); });
  packed("ex2.approx.ftz.bf16x2",
         [](Bfloat a) -> Bfloat { return to_bfloat(flush(exp2_approx(flush(to_f32(a))))); });
  packed("tanh.approx.f16x2", [](Half a) -> Half { return to_half(std::tanh(to_f32(a))); });
  packed("tanh.approx.bf16x2", [](Bfloat a) -> Bfloat { return to_bfloat(std::tanh(to_f32(a))); });
}

}  // namespace workbench::ptx
