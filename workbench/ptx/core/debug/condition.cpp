#include "debug/condition.hpp"

#include <algorithm>
#include <cmath>

#include "arithmetic/half.hpp"
#include "warp.hpp"

namespace workbench::ptx {
namespace {

using Op = Condition::Op;
using Number = long double;

template <class T>
T lane_of(const u8* registers, u32 slot, u32 lane) {
  T value;
  std::memcpy(&value, registers + slot + lane * sizeof(T), sizeof value);
  return value;
}

u64 bits_of(Number value) {
  return value < 0 ? static_cast<u64>(static_cast<s64>(value)) : static_cast<u64>(value);
}

// As in Python: the quotient is rounded down.
Number modulo(Number a, Number b) { return b == 0 ? NAN : a - b * std::floor(a / b); }

Number of_two(Op op, Number a, Number b) {
  switch (op) {
    case Op::add: return a + b;
    case Op::subtract: return a - b;
    case Op::multiply: return a * b;
    case Op::divide: return a / b;
    case Op::floor_divide: return std::floor(a / b);
    case Op::modulo: return modulo(a, b);
    case Op::less: return a < b;
    case Op::less_equal: return a <= b;
    case Op::greater: return a > b;
    case Op::greater_equal: return a >= b;
    case Op::equal: return a == b;
    case Op::not_equal: return a != b;
    case Op::both: return a != 0 && b != 0;
    case Op::either: return a != 0 || b != 0;
    case Op::bit_and: return static_cast<Number>(bits_of(a) & bits_of(b));
    case Op::bit_or: return static_cast<Number>(bits_of(a) | bits_of(b));
    case Op::bit_xor: return static_cast<Number>(bits_of(a) ^ bits_of(b));
    case Op::shift_left: return static_cast<Number>(bits_of(a) << (bits_of(b) & 63));
    case Op::shift_right: return static_cast<Number>(bits_of(a) >> (bits_of(b) & 63));
    case Op::minimum: return std::fmin(a, b);
    case Op::maximum: return std::fmax(a, b);
    default: return NAN;
  }
}

Number of_one(Op op, Number a) {
  switch (op) {
    case Op::negate: return -a;
    case Op::absolute: return std::fabs(a);
    case Op::invert: return a == 0;
    case Op::is_nan: return std::isnan(a);
    case Op::is_inf: return std::isinf(a);
    default: return NAN;
  }
}

bool is_unary(Op op) {
  return op == Op::negate || op == Op::absolute || op == Op::invert || op == Op::is_nan ||
         op == Op::is_inf;
}

}  // namespace

long double lane_value(const u8* registers, Op op, u32 slot, u32 lane) {
  switch (op) {
    case Op::f16: return to_f32(lane_of<Half>(registers, slot, lane));
    case Op::bf16: return to_f32(lane_of<Bfloat>(registers, slot, lane));
    case Op::f32_: return lane_of<f32>(registers, slot, lane);
    case Op::f64_: return lane_of<f64>(registers, slot, lane);
    case Op::s16_: return lane_of<s16>(registers, slot, lane);
    case Op::u16_: return lane_of<u16>(registers, slot, lane);
    case Op::s32_: return lane_of<s32>(registers, slot, lane);
    case Op::u32_: return lane_of<u32>(registers, slot, lane);
    case Op::s64_: return static_cast<Number>(lane_of<s64>(registers, slot, lane));
    case Op::u64_: return static_cast<Number>(lane_of<u64>(registers, slot, lane));
    case Op::predicate: return lane_of<u32>(registers, slot, 0) >> lane & 1;
    default: return NAN;
  }
}

long double Condition::value(const Warp& warp, u32 lane) const {
  Number stack[kDepth] = {};
  std::size_t count = 0;
  for (const Step& step : steps) {
    if (step.op < Op::add) {
      Number& next = stack[count++];
      switch (step.op) {
        case Op::number: next = step.value; break;
        case Op::lane: next = lane; break;
        case Op::warp: next = warp.index; break;
        case Op::block: next = static_cast<Number>(warp.block->index); break;
        default: next = lane_value(warp.registers, step.op, step.slot, lane);
      }
    } else if (is_unary(step.op)) {
      stack[count - 1] = of_one(step.op, stack[count - 1]);
    } else {
      --count;
      stack[count - 1] = of_two(step.op, stack[count - 1], stack[count]);
    }
  }
  return stack[0];
}

u32 Condition::holds(const Warp& warp, u32 mask) const {
  if (steps.empty()) return mask;
  u32 found = 0;
  PTX_FOR_EACH_LANE (lane, mask) {
    const Number one = value(warp, lane);
    found |= (one != 0 && !std::isnan(one) ? 1u : 0u) << lane;
  }
  return found;
}

}  // namespace workbench::ptx
