// f16, bf16 and their packed forms. Sums and products of two 16-bit values are computed in f32,
// where the second rounding is harmless (24 >= 2 * 11 + 2 bits); fma uses `fused`.
#include "arithmetic/elementwise.hpp"
#include "arithmetic/numeric.hpp"

namespace workbench::ptx {
namespace {

template <class T>
inline T relu(T x) {
  // Negative values and -0 become +0, NaN the canonical one.
  const f32 value = to_f32(x);
  return value != value ? T{0x7fff} : value > 0 ? x : T{0};
}

// PTX ISA, fma: .oob gives +0 where a factor is the NaN that tensor copies write outside a tensor.
// As in CUTLASS (functional.h, guarded_multiply_add), the summand is ignored.
template <class T, class F>
inline T unless_outside(T a, T b, F function) {
  return a.bits == kOutside16 || b.bits == kOutside16 ? T{0} : function();
}

// Adds an operation under `name`, with .f16 replaced by the type, scalar and packed.
template <class F>
void add_both(Table& table, const std::string& stem, const char* type, F function) {
  table.push_back(op(stem + "." + type, Class::fp16, function));
  table.push_back(packed_op(stem + "." + type + "x2", Class::fp16, function));
}

template <class T>
void add_type(Table& table, const char* type) {
  auto add = [&](const char* stem, auto function) { add_both(table, stem, type, function); };
  add("add", [](T a, T b) -> T { return from_f32<T>(to_f32(a) + to_f32(b)); });
  add("sub", [](T a, T b) -> T { return from_f32<T>(to_f32(a) - to_f32(b)); });
  add("mul", [](T a, T b) -> T { return from_f32<T>(to_f32(a) * to_f32(b)); });
  add("fma", [](T a, T b, T c) -> T { return fused(a, b, c); });
  add("fma.relu", [](T a, T b, T c) -> T { return relu(fused(a, b, c)); });
  add("fma.oob",
      [](T a, T b, T c) -> T { return unless_outside(a, b, [&] { return fused(a, b, c); }); });
  add("fma.oob.relu", [](T a, T b, T c) -> T {
    return unless_outside(a, b, [&] { return relu(fused(a, b, c)); });
  });
  add("min", [](T a, T b) -> T { return from_f32<T>(minimum(to_f32(a), to_f32(b))); });
  add("max", [](T a, T b) -> T { return from_f32<T>(maximum(to_f32(a), to_f32(b))); });
  add("min.NaN", [](T a, T b) -> T { return from_f32<T>(minimum_nan(to_f32(a), to_f32(b))); });
  add("max.NaN", [](T a, T b) -> T { return from_f32<T>(maximum_nan(to_f32(a), to_f32(b))); });
  add("min.xorsign.abs", [](T a, T b) -> T {
    return from_f32<T>(
        with_product_sign(to_f32(a), to_f32(b), [](f32 x, f32 y) { return minimum(x, y); }));
  });
  add("max.xorsign.abs", [](T a, T b) -> T {
    return from_f32<T>(
        with_product_sign(to_f32(a), to_f32(b), [](f32 x, f32 y) { return maximum(x, y); }));
  });
  add("min.NaN.xorsign.abs", [](T a, T b) -> T {
    return from_f32<T>(
        with_product_sign(to_f32(a), to_f32(b), [](f32 x, f32 y) { return minimum_nan(x, y); }));
  });
  add("max.NaN.xorsign.abs", [](T a, T b) -> T {
    return from_f32<T>(
        with_product_sign(to_f32(a), to_f32(b), [](f32 x, f32 y) { return maximum_nan(x, y); }));
  });
  add("neg", [](T a) -> T { return T{static_cast<u16>(a.bits ^ 0x8000)}; });
  add("abs", [](T a) -> T { return T{static_cast<u16>(a.bits & 0x7fff)}; });
}

}  // namespace

void add_half(Table& table) {
  add_type<Half>(table, "f16");
  add_type<Bfloat>(table, "bf16");
  auto add = [&](const char* stem, auto function) { add_both(table, stem, "f16", function); };
  add("add.sat", [](Half a, Half b) -> Half { return saturate16(to_half(to_f32(a) + to_f32(b))); });
  add("sub.sat", [](Half a, Half b) -> Half { return saturate16(to_half(to_f32(a) - to_f32(b))); });
  add("mul.sat", [](Half a, Half b) -> Half { return saturate16(to_half(to_f32(a) * to_f32(b))); });
  add("fma.sat", [](Half a, Half b, Half c) -> Half { return saturate16(fused(a, b, c)); });
  add("add.ftz", [](Half a, Half b) -> Half {
    return flush16(to_half(to_f32(flush16(a)) + to_f32(flush16(b))));
  });
  add("sub.ftz", [](Half a, Half b) -> Half {
    return flush16(to_half(to_f32(flush16(a)) - to_f32(flush16(b))));
  });
  add("mul.ftz", [](Half a, Half b) -> Half {
    return flush16(to_half(to_f32(flush16(a)) * to_f32(flush16(b))));
  });
  add("min.ftz", [](Half a, Half b) -> Half {
    return to_half(minimum(to_f32(flush16(a)), to_f32(flush16(b))));
  });
  add("max.ftz", [](Half a, Half b) -> Half {
    return to_half(maximum(to_f32(flush16(a)), to_f32(flush16(b))));
  });
  add("min.ftz.NaN", [](Half a, Half b) -> Half {
    return to_half(minimum_nan(to_f32(flush16(a)), to_f32(flush16(b))));
  });
  add("max.ftz.NaN", [](Half a, Half b) -> Half {
    return to_half(maximum_nan(to_f32(flush16(a)), to_f32(flush16(b))));
  });
  add("neg.ftz", [](Half a) -> Half { return Half{static_cast<u16>(flush16(a).bits ^ 0x8000)}; });
  add("abs.ftz", [](Half a) -> Half { return Half{static_cast<u16>(flush16(a).bits & 0x7fff)}; });
  add("fma.ftz.relu", [](Half a, Half b, Half c) -> Half {
    return relu(flush16(fused(flush16(a), flush16(b), flush16(c))));
  });
  add("add.ftz.sat", [](Half a, Half b) -> Half {
    return saturate16(flush16(to_half(to_f32(flush16(a)) + to_f32(flush16(b)))));
  });
  add("sub.ftz.sat", [](Half a, Half b) -> Half {
    return saturate16(flush16(to_half(to_f32(flush16(a)) - to_f32(flush16(b)))));
  });
  add("mul.ftz.sat", [](Half a, Half b) -> Half {
    return saturate16(flush16(to_half(to_f32(flush16(a)) * to_f32(flush16(b)))));
  });
  add("fma.ftz.sat", [](Half a, Half b, Half c) -> Half {
    return saturate16(flush16(fused(flush16(a), flush16(b), flush16(c))));
  });
  add("fma.ftz", [](Half a, Half b, Half c) -> Half {
    return flush16(fused(flush16(a), flush16(b), flush16(c)));
  });
}

}  // namespace workbench::ptx
