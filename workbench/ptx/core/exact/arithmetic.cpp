// Sums, products, quotients, functions, minima and maxima of elements.
#include <algorithm>

#include "exact/handlers.hpp"
#include "exact/lanes.hpp"

namespace workbench::ptx::exact {
namespace {

constexpr s64 kMinusProduct = 1, kMinusAddend = 2;  // of `contract`

// An operation: `plain` on residues, in loops that are vectorised; `any` on symbols too.
struct Add {
  static constexpr int operands = 2;
  static u16 plain(u16 a, u16 b, u16, s64) { return sum_of(a, b); }
  static u16 any(u16 a, u16 b, u16, s64) { return sum(a, b); }
};
struct Subtract {
  static constexpr int operands = 2;
  static u16 plain(u16 a, u16 b, u16, s64) { return sum_of(a, negative_of(b)); }
  static u16 any(u16 a, u16 b, u16, s64) { return sum(a, negative(b)); }
};
struct Multiply {
  static constexpr int operands = 2;
  static u16 plain(u16 a, u16 b, u16, s64) { return product_of(a, b); }
  static u16 any(u16 a, u16 b, u16, s64) { return product(a, b); }
};
struct MultiplyAdd {
  static constexpr int operands = 3;
  static u16 plain(u16 a, u16 b, u16 c, s64) { return sum_of(product_of(a, b), c); }
  static u16 any(u16 a, u16 b, u16 c, s64) { return sum(product(a, b), c); }
};
// The same with signs, where the machine contracts a product and a sum.
struct Contract {
  static constexpr int operands = 3;
  static u16 plain(u16 a, u16 b, u16 c, s64 signs) {
    const u16 whole = product_of(a, b);
    return sum_of(signs & kMinusProduct ? negative_of(whole) : whole,
                  signs & kMinusAddend ? negative_of(c) : c);
  }
  static u16 any(u16 a, u16 b, u16 c, s64 signs) {
    const u16 whole = product(a, b);
    return sum(signs & kMinusProduct ? negative(whole) : whole,
               signs & kMinusAddend ? negative(c) : c);
  }
};
struct Negate {
  static constexpr int operands = 1;
  static u16 plain(u16 a, u16, u16, s64) { return negative_of(a); }
  static u16 any(u16 a, u16, u16, s64) { return negative(a); }
};

// ---- by tables: no loop over them is vectorised, so one form serves all

template <auto Table>
struct Function {
  static constexpr int operands = 1;
  static u16 plain(u16 a, u16, u16, s64) { return (tables->*Table)[a]; }
  static u16 any(u16 a, u16, u16, s64) { return (tables->*Table)[a]; }
};
struct Divide {
  static constexpr int operands = 2;
  static u16 plain(u16 a, u16 b, u16, s64) { return any(a, b, 0, 0); }
  static u16 any(u16 a, u16 b, u16, s64) { return product(a, tables->inverse[b]); }
};
// What is undefined stays so: it need not be so in a kernel that divides elsewhere.
template <bool Greater, int Operands>
struct Choose {
  static constexpr int operands = Operands;
  static u16 plain(u16 a, u16 b, u16 c, s64) {
    const u16 first = Greater ? greater(a, b) : lesser(a, b);
    return Operands == 2 ? first : Greater ? greater(first, c) : lesser(first, c);
  }
  static u16 any(u16 a, u16 b, u16 c, s64) {
    const bool known = a < kUndefined && b < kUndefined && (Operands == 2 || c < kUndefined);
    return known ? plain(a, b, c, 0) : kUndefined;
  }
};

// ---- what follows an operation

template <class Op>
struct Saturated {
  static constexpr int operands = Op::operands;
  static u16 clamp(u16 x) { return x >= kUndefined ? x : greater(lesser(x, kOne), 0); }
  static u16 plain(u16 a, u16 b, u16 c, s64 i) { return clamp(Op::plain(a, b, c, i)); }
  static u16 any(u16 a, u16 b, u16 c, s64 i) { return clamp(Op::any(a, b, c, i)); }
};
template <class Op>
struct Positive {  // .relu
  static constexpr int operands = Op::operands;
  static u16 plain(u16 a, u16 b, u16 c, s64 i) { return greater(Op::plain(a, b, c, i), 0); }
  static u16 any(u16 a, u16 b, u16 c, s64 i) {
    const u16 x = Op::any(a, b, c, i);
    return x >= kUndefined ? x : greater(x, 0);
  }
};

template <class Op>
inline void apply(const Codes& a, const Codes& b, const Codes& c, s64 immediate, Codes& out) {
  const bool special =
      a.special || (Op::operands > 1 && b.special) || (Op::operands > 2 && c.special);
  if (special) {
    for (int lane = 0; lane < kLanes; ++lane)
      out.at[lane] = Op::any(a.at[lane], b.at[lane], c.at[lane], immediate);
  } else {
    PTX_LANES {
      out.at[lane] = Op::plain(a.at[lane], b.at[lane], c.at[lane], immediate);
    }
  }
  out.special = any_special(out.at);
}

template <class Op, class T, int Pack>
void run(u8* registers, const Instruction& in, u32 mask, Warp&) {
  using Bits = typename T::Bits;
  const Bits* source[3];
  for (int i = 0; i < Op::operands; ++i)
    source[i] = at<const Bits>(registers, in.elementwise.source[i]);
  alignas(64) Bits out[static_cast<std::size_t>(kLanes * Pack)];
  Codes operand[3], result;
  for (int part = 0; part < Pack; ++part) {
    for (int i = 0; i < Op::operands; ++i) T::read(source[i] + kLanes * part, operand[i]);
    const s64 immediate = std::is_same_v<Op, Contract> ? in.immediate : 0;
    apply<Op>(operand[0], operand[Op::operands > 1 ? 1 : 0], operand[Op::operands - 1], immediate,
              result);
    T::write(result, out + kLanes * part);
  }
  write_register<T, Pack>(registers, in.elementwise.destination, mask, out);
}

// An f32 operation with 16-bit operands: the factors, or the first term of a sum.
template <class Op, class T>
void run_mixed(u8* registers, const Instruction& in, u32 mask, Warp&) {
  constexpr int shorts = Op::operands - 1;
  Codes operand[3], result;
  for (int i = 0; i < shorts; ++i)
    T::read(at<const u16>(registers, in.elementwise.source[i]), operand[i]);
  Single::read(at<const u32>(registers, in.elementwise.source[shorts]), operand[shorts]);
  apply<Op>(operand[0], operand[1], operand[Op::operands - 1], 0, result);
  alignas(64) u32 out[kLanes];
  Single::write(result, out);
  write_register<Single, 1>(registers, in.elementwise.destination, mask, out);
}

using Found = std::optional<Handlers>;

template <class Op>
Found of_type(const std::string& type) {
  if (type == "f32") return Handlers(&run<Op, Single, 1>);
  if (type == "f32x2") return Handlers(&run<Op, Single, 2>);
  if (type == "f16") return Handlers(&run<Op, HalfCode, 1>);
  if (type == "f16x2") return Handlers(&run<Op, HalfCode, 2>);
  if (type == "bf16") return Handlers(&run<Op, BfloatCode, 1>);
  if (type == "bf16x2") return Handlers(&run<Op, BfloatCode, 2>);
  if (type == "f64") return Handlers(&run<Op, Double, 1>);
  return std::nullopt;
}

// With .sat and .relu; roundings and .ftz do not matter.
template <class Op>
Found arithmetic_of(const Name& name) {
  if (!name.only({"rz", "rm", "rp", "ftz", "sat", "relu", "approx", "full"})) return std::nullopt;
  if (name.has("sat")) return of_type<Saturated<Op>>(name.type);
  if (name.has("relu")) return of_type<Positive<Op>>(name.type);
  return of_type<Op>(name.type);
}

template <class Op>
Found function_of(const Name& name) {
  if (!name.only({"rz", "rm", "rp", "ftz", "approx", "full"})) return std::nullopt;
  return of_type<Op>(name.type);
}

template <bool Greater, int Operands>
Found choice_of(const Name& name) {
  if (!name.only({"ftz", "NaN"})) return std::nullopt;
  return of_type<Choose<Greater, Operands>>(name.type);
}

template <class Op>
Found mixed_of(const Name& name) {
  if (!name.only({"f32", "sat"})) return std::nullopt;
  const bool half = name.type == "f16";
  if (name.has("sat"))
    return Handlers(half ? &run_mixed<Saturated<Op>, HalfCode>
                         : &run_mixed<Saturated<Op>, BfloatCode>);
  return Handlers(half ? &run_mixed<Op, HalfCode> : &run_mixed<Op, BfloatCode>);
}

}  // namespace

Found arithmetic(const Name& name) {
  const std::string& base = name.base;
  if (name.has("f32")) {  // with operands of 16 bits
    if (base == "add") return mixed_of<Add>(name);
    if (base == "sub") return mixed_of<Subtract>(name);
    if (base == "fma") return mixed_of<MultiplyAdd>(name);
    return std::nullopt;
  }
  if (base == "add") return arithmetic_of<Add>(name);
  if (base == "sub") return arithmetic_of<Subtract>(name);
  if (base == "mul") return arithmetic_of<Multiply>(name);
  if (base == "fma") return arithmetic_of<MultiplyAdd>(name);
  if (base == "contract" && !name.has("sat")) return arithmetic_of<Contract>(name);
  if (base == "div") return function_of<Divide>(name);
  if (base == "neg") return function_of<Negate>(name);
  if (base == "abs") return function_of<Function<&Tables::magnitude>>(name);
  if (base == "rcp") return function_of<Function<&Tables::inverse>>(name);
  if (base == "sqrt") return function_of<Function<&Tables::root>>(name);
  if (base == "rsqrt") return function_of<Function<&Tables::inverse_root>>(name);
  if (base == "ex2") return function_of<Function<&Tables::power_of_two>>(name);
  if (base == "lg2") return function_of<Function<&Tables::logarithm>>(name);
  if (base == "tanh") return function_of<Function<&Tables::hyperbolic_tangent>>(name);
  if (base == "sin") return function_of<Function<&Tables::sine>>(name);
  if (base == "cos") return function_of<Function<&Tables::cosine>>(name);
  if (base == "min") return choice_of<false, 2>(name);
  if (base == "max") return choice_of<true, 2>(name);
  if (base == "min3") return choice_of<false, 3>(name);
  if (base == "max3") return choice_of<true, 3>(name);
  return std::nullopt;
}

}  // namespace workbench::ptx::exact
