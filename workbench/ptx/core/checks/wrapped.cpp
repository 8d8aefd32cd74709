#include "checks/wrapped.hpp"

#include <algorithm>
#include <bit>

#include "arithmetic/elementwise.hpp"

namespace workbench::ptx {
namespace {

constexpr s32 kConstant = -2;  // in place of a third source: its sum with the product is not tested

// A bound on the number of bits of all lanes' values, without the sign.
u32 width_of(const u32* values) {
  u32 bits = 0;
  PTX_LANES {
    bits |= values[lane] ^ static_cast<u32>(static_cast<s32>(values[lane]) >> 31);
  }
  return static_cast<u32>(std::bit_width(bits));
}

u32 wrapping_products(const u32* a, const u32* b) {
  if (width_of(a) + width_of(b) <= 30) return 0;
  alignas(64) u8 flags[kLanes];
  PTX_LANES {
    const s64 with_sign = s64{static_cast<s32>(a[lane])} * static_cast<s32>(b[lane]);
    const u64 without = u64{a[lane]} * b[lane];
    flags[lane] = (with_sign != static_cast<s32>(with_sign)) & (without >> 32 != 0);
  }
  return pack_mask(flags);
}

// Lanes in which the sum of two numbers that are not negative wraps; other sums may have a negative
// operand. Python names no sum with a constant.
u32 wrapping_sums(const u32* a, const u32* b) {
  u32 any = 0;
  PTX_LANES {
    any |= a[lane] & b[lane] & ~(a[lane] + b[lane]);
  }
  if (!(any >> 31)) return 0;
  u32 found = 0;
  for (u32 lane = 0; lane < kLanes; ++lane)
    found |= (a[lane] & b[lane] & ~(a[lane] + b[lane])) >> 31 << lane;
  return found;
}

u32 wrapping_shifts(const u32* a, const u32* by) {
  u32 most = 0;
  PTX_LANES {
    most |= by[lane];
  }
  if (width_of(a) + most <= 31) return 0;
  u32 found = 0;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 n = std::min(by[lane], 32u);
    const u64 without = u64{a[lane]} << n;
    const s64 with_sign = static_cast<s64>(static_cast<s32>(a[lane])) * (s64{1} << n);
    found |= u32{with_sign != static_cast<s32>(with_sign) && without >> 32 != 0} << lane;
  }
  return found;
}

u32 wrapping_lanes(const u8* registers, const Instruction& in, WrapWay way) {
  const Slot* const source = in.elementwise.source;
  const u32* const a = reinterpret_cast<const u32*>(registers + source[0]);
  const u32* const b = reinterpret_cast<const u32*>(registers + source[1]);
  switch (way) {
    case WrapWay::add: return wrapping_sums(a, b);
    case WrapWay::shift: return wrapping_shifts(a, b);
    case WrapWay::multiply: return wrapping_products(a, b);
    case WrapWay::multiply_add: {
      const u32* const c = reinterpret_cast<const u32*>(registers + source[2]);
      alignas(64) u32 product[kLanes];
      PTX_LANES {
        product[lane] = a[lane] * b[lane];
      }
      return wrapping_products(a, b) | wrapping_sums(product, c);
    }
    default: return 0;
  }
}

s64 value(const u8* registers, Slot slot, u32 lane, bool wide) {
  if (slot == kNoSlot) return 0;
  return wide ? reinterpret_cast<const s64*>(registers + slot)[lane]
              : reinterpret_cast<const s32*>(registers + slot)[lane];
}

// How many times 2**32 a signed result differs from its true value.
s64 own_turns(const u8* registers, const Instruction& in, WrapWay way, u32 lane) {
  const Slot* const source = in.elementwise.source;
  const s64 a = value(registers, source[0], lane, false),
            b = value(registers, source[1], lane, false);
  s64 exact = 0;
  switch (way) {
    case WrapWay::add: exact = a + b; break;
    case WrapWay::multiply: exact = a * b; break;
    case WrapWay::multiply_add: exact = a * b + value(registers, source[2], lane, false); break;
    case WrapWay::shift: exact = a * (s64{1} << std::min<s64>(b & 0xffffffff, 31)); break;
    default: break;
  }
  return (exact - static_cast<s32>(exact)) >> 32;
}

WrappedIndexes& indexes_of(Warp& warp) {
  if (!warp.wrapped) warp.wrapped = std::make_unique<WrappedIndexes>();
  return *warp.wrapped;
}

const WrapStep& step_of(const Warp& warp, const Instruction& in) {
  const Block& block = *warp.block;
  return block.kernel->wraps[static_cast<std::size_t>(block.pc_of(in))];
}

[[gnu::noinline]] void carry_on(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                                u32 own) {
  WrappedIndexes& indexes = indexes_of(warp);
  indexes.follow(registers, in, step_of(warp, in), mask, own, warp.block->pc_of(in));
  if (indexes.empty()) warp.wrapped.reset();
}

// Runs an instruction that only propagates wrapped values.
void followed(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  if (__builtin_expect(warp.wrapped != nullptr, 0)) carry_on(registers, in, mask, warp, 0);
  in.run(registers, in, mask, warp);
}

// Runs an instruction whose own result may wrap.
template <WrapWay Way>
void watched(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u32 own = wrapping_lanes(registers, in, Way) & mask;
  if (__builtin_expect(own != 0 || warp.wrapped != nullptr, 0))
    carry_on(registers, in, mask, warp, own);
  in.run(registers, in, mask, warp);
}

Handler handler_of(const WrapStep& step) {
  if (!step.starts) return &followed;
  switch (step.way) {
    case WrapWay::add: return &watched<WrapWay::add>;
    case WrapWay::multiply: return &watched<WrapWay::multiply>;
    case WrapWay::multiply_add:
      return step.source[2] == kConstant ? &watched<WrapWay::multiply>
                                         : &watched<WrapWay::multiply_add>;
    case WrapWay::shift: return &watched<WrapWay::shift>;
    default: return &followed;
  }
}

}  // namespace

const WrappedIndexes::Lanes& WrappedIndexes::of(s32 number) const {
  static const Lanes none{};
  const auto found = registers_.find(number);
  return found == registers_.end() ? none : found->second;
}

void WrappedIndexes::follow(const u8* registers, const Instruction& in, const WrapStep& step,
                            u32 mask, u32 own, s32 pc) {
  const Lanes a = of(step.source[0]), b = of(step.source[1]), c = of(step.source[2]);
  const Slot* const source = in.elementwise.source;
  Lanes result = of(step.result);
  PTX_FOR_EACH_LANE (lane, mask) {
    const auto factor = [&](int which) {
      return value(registers, source[which], lane, step.wide_factors);
    };
    s64 turns = 0;
    switch (step.way) {
      case WrapWay::move: turns = a[lane].turns; break;
      case WrapWay::choose: {
        const u32 choice = *reinterpret_cast<const u32*>(registers + source[2]);
        turns = choice >> lane & 1 ? a[lane].turns : b[lane].turns;
        break;
      }
      case WrapWay::add: turns = a[lane].turns + b[lane].turns; break;
      case WrapWay::subtract: turns = a[lane].turns - b[lane].turns; break;
      case WrapWay::multiply:
      case WrapWay::multiply_add: {
        const u64 products = static_cast<u64>(a[lane].turns) * static_cast<u64>(factor(1)) +
                             static_cast<u64>(factor(0)) * static_cast<u64>(b[lane].turns);
        turns = static_cast<s64>(products + static_cast<u64>(c[lane].turns));
        break;
      }
      case WrapWay::shift:
        turns = a[lane].turns * (s64{1} << (value(registers, source[1], lane, false) & 31));
        break;
      default: break;
    }
    const bool wraps = own >> lane & 1;
    if (wraps) turns += own_turns(registers, in, step.way, lane);
    s32 begun = pc;
    for (const Lanes* from : {&c, &b, &a})
      if (!wraps && (*from)[lane].turns) begun = (*from)[lane].pc;
    result[lane] = {turns, begun};
  }
  if (std::ranges::any_of(result, [](const Lane& lane) { return lane.turns != 0; }))
    registers_[step.result] = result;
  else
    registers_.erase(step.result);
}

s32 WrappedIndexes::begun(s32 number, u32 lane) const {
  const Lane& value = of(number)[lane];
  return value.turns ? value.pc : -1;
}

void follow_indexes(Kernel& kernel, std::vector<WrapStep> steps) {
  for (std::size_t pc = 0; pc < steps.size(); ++pc)
    if (steps[pc].way != WrapWay::none && steps[pc].way != WrapWay::access)
      kernel.code[pc].run_observed = handler_of(steps[pc]);
  kernel.wraps = std::move(steps);
}

}  // namespace workbench::ptx
