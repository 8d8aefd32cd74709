// A condition on the registers of a warp, evaluated lane by lane.
#pragma once
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

struct Warp;

// Steps in reverse Polish notation. Values are long double, which holds every f64 and every integer
// of 64 bits on x86-64 and on arm64, so that types need no rules of promotion.
class Condition {
 public:
  enum class Op : u8 {
    number,
    lane,
    warp,
    block,
    f16,
    bf16,
    f32_,
    f64_,
    s16_,
    u16_,
    s32_,
    u32_,
    s64_,
    u64_,
    predicate,
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    modulo,
    negate,
    absolute,
    less,
    less_equal,
    greater,
    greater_equal,
    equal,
    not_equal,
    both,
    either,
    invert,
    bit_and,
    bit_or,
    bit_xor,
    shift_left,
    shift_right,
    is_nan,
    is_inf,
    minimum,
    maximum
  };
  struct Step {
    Op op;
    u32 slot = 0;           // of a register
    long double value = 0;  // of a number
  };
  static constexpr std::size_t kDepth = 32;  // values at a time; Python refuses deeper ones

  std::vector<Step> steps;
  // The lanes of `mask` for which it holds; all of them without steps.
  u32 holds(const Warp& warp, u32 mask) const;
  // Its value in one lane; it has steps.
  long double value(const Warp& warp, u32 lane) const;
};

// What a lane of a register holds: `op` is its type.
long double lane_value(const u8* registers, Condition::Op op, u32 slot, u32 lane);

}  // namespace workbench::ptx
