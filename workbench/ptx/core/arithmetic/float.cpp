// f32 and f64 arithmetic, correctly rounded as IEEE 754 and PTX require.
#include "arithmetic/numeric.hpp"
#include "arithmetic/slow_path.hpp"

namespace workbench::ptx {
namespace {

// Adds one operation in its plain, .ftz, .sat and .ftz.sat forms.
template <class F>
void add_forms2(Table& table, const std::string& name, F) {
  table.push_back(op(name + ".f32", Class::fp32, [](f32 a, f32 b) -> f32 { return F{}(a, b); }));
  table.push_back(op(name + ".ftz.f32", Class::fp32,
                     [](f32 a, f32 b) -> f32 { return flush(F{}(flush(a), flush(b))); }));
  table.push_back(
      op(name + ".sat.f32", Class::fp32, [](f32 a, f32 b) -> f32 { return saturate(F{}(a, b)); }));
  table.push_back(op(name + ".ftz.sat.f32", Class::fp32,
                     [](f32 a, f32 b) -> f32 { return saturate(flush(F{}(flush(a), flush(b)))); }));
}

constexpr auto kMinimum = [](f32 a, f32 b) { return minimum(a, b); };
constexpr auto kMaximum = [](f32 a, f32 b) { return maximum(a, b); };
constexpr auto kMinimumNan = [](f32 a, f32 b) { return minimum_nan(a, b); };
constexpr auto kMaximumNan = [](f32 a, f32 b) { return maximum_nan(a, b); };

// "min" or "min.NaN" of the magnitudes, with the sign of the product.
template <class F>
void add_magnitudes(Table& table, const std::string& name, const std::string& nan, F) {
  table.push_back(op(name + nan + ".xorsign.abs.f32", Class::fp32,
                     [](f32 a, f32 b) -> f32 { return with_product_sign(a, b, F{}); }));
  table.push_back(
      op(name + ".ftz" + nan + ".xorsign.abs.f32", Class::fp32,
         [](f32 a, f32 b) -> f32 { return with_product_sign(flush(a), flush(b), F{}); }));
}

// "min3" or "max3" of three values; the first two are combined first. `nan` is "" or ".NaN".
template <class F>
void add_three(Table& table, const std::string& name, const std::string& nan, F) {
  const auto add = [&](const std::string& full, auto function) {
    table.push_back(op(full + ".f32", Class::fp32, function));
  };
  add(name + nan, [](f32 a, f32 b, f32 c) -> f32 { return F{}(F{}(a, b), c); });
  add(name + ".ftz" + nan,
      [](f32 a, f32 b, f32 c) -> f32 { return F{}(F{}(flush(a), flush(b)), flush(c)); });
  add(name + nan + ".abs", [](f32 a, f32 b, f32 c) -> f32 {
    return F{}(F{}(magnitude(a), magnitude(b)), magnitude(c));
  });
  add(name + ".ftz" + nan + ".abs", [](f32 a, f32 b, f32 c) -> f32 {
    return F{}(F{}(magnitude(flush(a)), magnitude(flush(b))), magnitude(flush(c)));
  });
}

// Operations in f32 with some operands of f16 or bf16.
template <class T>
void add_mixed(Table& table, const std::string& t) {
  const auto add = [&](const std::string& name, auto function) {
    table.push_back(op(name + ".f32." + t, Class::fp32, function));
  };
  add("add", [](T a, f32 c) -> f32 { return to_f32(a) + c; });
  add("sub", [](T a, f32 c) -> f32 { return to_f32(a) - c; });
  add("fma", [](T a, T b, f32 c) -> f32 { return __builtin_fmaf(to_f32(a), to_f32(b), c); });
  add("add.sat", [](T a, f32 c) -> f32 { return saturate(to_f32(a) + c); });
  add("sub.sat", [](T a, f32 c) -> f32 { return saturate(to_f32(a) - c); });
  add("fma.sat",
      [](T a, T b, f32 c) -> f32 { return saturate(__builtin_fmaf(to_f32(a), to_f32(b), c)); });
}

// Applies one operation to both halves of a pair.
template <class F, class... A>
inline u64 on_pair(F function, A... pairs) {
  const u64 low = bits_as<u32>(function(bits_as<f32>(static_cast<u32>(pairs))...));
  return u64{bits_as<u32>(function(bits_as<f32>(static_cast<u32>(pairs >> 32))...))} << 32 | low;
}

// Adds an operation on pairs in its plain and .ftz forms.
template <class F>
void add_pairs2(Table& table, const std::string& name, F) {
  table.push_back(
      op(name + ".f32x2", Class::fp32, [](u64 a, u64 b) -> u64 { return on_pair(F{}, a, b); }));
  table.push_back(op(name + ".ftz.f32x2", Class::fp32, [](u64 a, u64 b) -> u64 {
    return on_pair([](f32 x, f32 y) { return flush(F{}(flush(x), flush(y))); }, a, b);
  }));
  add_directed(table, name, ".f32x2", Class::fp32,
               [](u64 a, u64 b) -> u64 { return on_pair(F{}, a, b); });
  add_directed(table, name, ".ftz.f32x2", Class::fp32, [](u64 a, u64 b) -> u64 {
    return on_pair([](f32 x, f32 y) { return flush(F{}(flush(x), flush(y))); }, a, b);
  });
}

}  // namespace

void add_float(Table& table) {
  auto single = [&](const char* name, auto function) {
    table.push_back(op(name, Class::fp32, function));
  };
  auto wide = [&](const char* name, auto function) {
    table.push_back(op(name, Class::fp64, function));
  };
  auto rare_single = [&](const char* name, auto rare, auto function) {
    table.push_back(op_with_slow_path(name, Class::fp32, function, rare));
  };
  auto rare_wide = [&](const char* name, auto rare, auto function) {
    table.push_back(op_with_slow_path(name, Class::fp64, function, rare));
  };

  add_forms2(table, "add", [](f32 a, f32 b) { return a + b; });
  add_forms2(table, "sub", [](f32 a, f32 b) { return a - b; });
  add_forms2(table, "mul", [](f32 a, f32 b) { return a * b; });
  add_pairs2(table, "add", [](f32 a, f32 b) { return a + b; });
  add_pairs2(table, "sub", [](f32 a, f32 b) { return a - b; });
  add_pairs2(table, "mul", [](f32 a, f32 b) { return a * b; });
  const auto fused_pair = [](u64 a, u64 b, u64 c) -> u64 {
    return on_pair([](f32 x, f32 y, f32 z) { return __builtin_fmaf(x, y, z); }, a, b, c);
  };
  const auto flushed_pair = [](u64 a, u64 b, u64 c) -> u64 {
    return on_pair(
        [](f32 x, f32 y, f32 z) { return flush(__builtin_fmaf(flush(x), flush(y), flush(z))); }, a,
        b, c);
  };
  single("fma.f32x2", fused_pair);
  single("fma.ftz.f32x2", flushed_pair);
  add_directed(table, "fma", ".f32x2", Class::fp32, fused_pair);
  add_directed(table, "fma", ".ftz.f32x2", Class::fp32, flushed_pair);
  single("fma.f32", [](f32 a, f32 b, f32 c) -> f32 { return __builtin_fmaf(a, b, c); });
  single("fma.ftz.f32", [](f32 a, f32 b, f32 c) -> f32 {
    return flush(__builtin_fmaf(flush(a), flush(b), flush(c)));
  });
  single("fma.sat.f32",
         [](f32 a, f32 b, f32 c) -> f32 { return saturate(__builtin_fmaf(a, b, c)); });
  single("fma.ftz.sat.f32", [](f32 a, f32 b, f32 c) -> f32 {
    return saturate(flush(__builtin_fmaf(flush(a), flush(b), flush(c))));
  });
  add_directed(table, "add", ".f32", Class::fp32, [](f32 a, f32 b) -> f32 { return a + b; });
  add_directed(table, "sub", ".f32", Class::fp32, [](f32 a, f32 b) -> f32 { return a - b; });
  add_directed(table, "mul", ".f32", Class::fp32, [](f32 a, f32 b) -> f32 { return a * b; });
  add_directed(table, "div", ".f32", Class::fp32, [](f32 a, f32 b) -> f32 { return a / b; });
  add_directed(table, "fma", ".f32", Class::fp32,
               [](f32 a, f32 b, f32 c) -> f32 { return __builtin_fmaf(a, b, c); });
  add_directed(table, "add", ".ftz.f32", Class::fp32,
               [](f32 a, f32 b) -> f32 { return flush(flush(a) + flush(b)); });
  add_directed(table, "mul", ".ftz.f32", Class::fp32,
               [](f32 a, f32 b) -> f32 { return flush(flush(a) * flush(b)); });
  add_directed(table, "sub", ".ftz.f32", Class::fp32,
               [](f32 a, f32 b) -> f32 { return flush(flush(a) - flush(b)); });
  add_directed(table, "div", ".ftz.f32", Class::fp32,
               [](f32 a, f32 b) -> f32 { return flush(flush(a) / flush(b)); });
  add_directed_with_slow_path(
      table, "rcp", ".f32", Class::fp32, [](f32 a) -> f32 { return 1.0f / a; }, kSlowReciprocal32);
  add_directed_with_slow_path(
      table, "rcp", ".ftz.f32", Class::fp32, [](f32 a) -> f32 { return flush(1.0f / flush(a)); },
      kSlowReciprocal32);
  add_directed_with_slow_path(
      table, "sqrt", ".f32", Class::fp32, [](f32 a) -> f32 { return __builtin_sqrtf(a); },
      kSlowRoot32);
  add_directed_with_slow_path(
      table, "sqrt", ".ftz.f32", Class::fp32,
      [](f32 a) -> f32 { return __builtin_sqrtf(flush(a)); }, kSlowRoot32);
  add_magnitudes(table, "min", "", kMinimum), add_magnitudes(table, "max", "", kMaximum);
  add_magnitudes(table, "min", ".NaN", kMinimumNan),
      add_magnitudes(table, "max", ".NaN", kMaximumNan);
  add_directed(table, "fma", ".ftz.f32", Class::fp32, [](f32 a, f32 b, f32 c) -> f32 {
    return flush(__builtin_fmaf(flush(a), flush(b), flush(c)));
  });

  single("min.f32", [](f32 a, f32 b) -> f32 { return minimum(a, b); });
  single("max.f32", [](f32 a, f32 b) -> f32 { return maximum(a, b); });
  single("min.ftz.f32", [](f32 a, f32 b) -> f32 { return minimum(flush(a), flush(b)); });
  single("max.ftz.f32", [](f32 a, f32 b) -> f32 { return maximum(flush(a), flush(b)); });
  single("min.NaN.f32", [](f32 a, f32 b) -> f32 { return minimum_nan(a, b); });
  single("max.NaN.f32", [](f32 a, f32 b) -> f32 { return maximum_nan(a, b); });
  single("min.ftz.NaN.f32", [](f32 a, f32 b) -> f32 { return minimum_nan(flush(a), flush(b)); });
  single("max.ftz.NaN.f32", [](f32 a, f32 b) -> f32 { return maximum_nan(flush(a), flush(b)); });
  add_three(table, "min3", "", kMinimum);
  add_three(table, "max3", "", kMaximum);
  add_three(table, "min3", ".NaN", kMinimumNan);
  add_three(table, "max3", ".NaN", kMaximumNan);
  add_mixed<Half>(table, "f16");
  add_mixed<Bfloat>(table, "bf16");
  single("neg.f32", [](u32 a) -> u32 { return a ^ 0x80000000u; });
  single("abs.f32", [](u32 a) -> u32 { return a & 0x7fffffffu; });
  single("neg.ftz.f32", [](f32 a) -> f32 { return -flush(a); });
  single("abs.ftz.f32",
         [](f32 a) -> f32 { return bits_as<f32>(bits_as<u32>(flush(a)) & 0x7fffffffu); });
  single("copysign.f32", [](u32 a, u32 b) -> u32 { return (a & 0x80000000u) | (b & 0x7fffffffu); });
  rare_single("div.f32", kSlowDivide32, [](f32 a, f32 b) -> f32 { return a / b; });
  rare_single("div.ftz.f32", kSlowDivide32,
              [](f32 a, f32 b) -> f32 { return flush(flush(a) / flush(b)); });
  rare_single("rcp.f32", kSlowReciprocal32, [](f32 a) -> f32 { return 1.0f / a; });
  rare_single("rcp.ftz.f32", kSlowReciprocal32,
              [](f32 a) -> f32 { return flush(1.0f / flush(a)); });
  rare_single("sqrt.f32", kSlowRoot32, [](f32 a) -> f32 { return __builtin_sqrtf(a); });
  rare_single("sqrt.ftz.f32", kSlowRoot32, [](f32 a) -> f32 { return __builtin_sqrtf(flush(a)); });

  wide("add.f64", [](f64 a, f64 b) -> f64 { return a + b; });
  wide("sub.f64", [](f64 a, f64 b) -> f64 { return a - b; });
  wide("mul.f64", [](f64 a, f64 b) -> f64 { return a * b; });
  wide("fma.f64", [](f64 a, f64 b, f64 c) -> f64 { return __builtin_fma(a, b, c); });
  rare_wide("div.f64", kSlowDivide64, [](f64 a, f64 b) -> f64 { return a / b; });
  rare_wide("rcp.f64", kSlowReciprocal64, [](f64 a) -> f64 { return 1.0 / a; });
  rare_wide("sqrt.f64", kSlowRoot64, [](f64 a) -> f64 { return __builtin_sqrt(a); });
  wide("min.f64", [](f64 a, f64 b) -> f64 { return minimum(a, b); });
  wide("max.f64", [](f64 a, f64 b) -> f64 { return maximum(a, b); });
  wide("neg.f64", [](u64 a) -> u64 { return a ^ (u64{1} << 63); });
  wide("abs.f64", [](u64 a) -> u64 { return a & ~(u64{1} << 63); });
  wide("copysign.f64",
       [](u64 a, u64 b) -> u64 { return (a & (u64{1} << 63)) | (b & ~(u64{1} << 63)); });
  add_directed(table, "add", ".f64", Class::fp64, [](f64 a, f64 b) -> f64 { return a + b; });
  add_directed(table, "sub", ".f64", Class::fp64, [](f64 a, f64 b) -> f64 { return a - b; });
  add_directed(table, "div", ".f64", Class::fp64, [](f64 a, f64 b) -> f64 { return a / b; });
  add_directed(table, "rcp", ".f64", Class::fp64, [](f64 a) -> f64 { return 1.0 / a; });
  add_directed(table, "sqrt", ".f64", Class::fp64, [](f64 a) -> f64 { return __builtin_sqrt(a); });
  add_directed(table, "mul", ".f64", Class::fp64, [](f64 a, f64 b) -> f64 { return a * b; });
  add_directed(table, "fma", ".f64", Class::fp64,
               [](f64 a, f64 b, f64 c) -> f64 { return __builtin_fma(a, b, c); });
}

}  // namespace workbench::ptx
