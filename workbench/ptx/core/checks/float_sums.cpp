#include "checks/float_sums.hpp"

#include <bit>
#include <cmath>

namespace workbench::ptx {
namespace {

// The exponent of the lowest set bit of a value that is finite and not 0.
int lowest_bit(f64 value) {
  int exponent = 0;
  const f64 fraction = std::frexp(value, &exponent);
  const u64 digits = static_cast<u64>(std::abs(std::ldexp(fraction, 53)));
  return exponent - 53 + std::countr_zero(digits);
}

}  // namespace

FloatSums::FloatSums(const Kernel& kernel)
    : told_(std::make_unique<std::atomic<bool>[]>(kernel.code.size())) {}

void FloatSums::take(Sum& sum, f64 term) {
  if (term == 0) return;
  const int lowest = lowest_bit(term);
  sum.lowest = sum.terms ? std::min(sum.lowest, lowest) : lowest;
  sum.magnitude += std::abs(term);
  sum.terms += 1;
}

bool FloatSums::is_ordered(const Sum& sum, const Warp& warp) {
  if (sum.block != warp.block->index) return false;
  return sum.agent == warp.agent ||
         warp.block->shadow->clocks.seen(warp.agent)[sum.agent] >= sum.clock;
}

void FloatSums::add(const Warp& warp, s32 pc, const FloatAddition& addition) {
  if (addition.value == 0 || !std::isfinite(addition.value) || !std::isfinite(addition.old)) return;
  Block& block = *warp.block;
  const u8* const shared = block.shared;
  const bool own = addition.where >= shared && addition.where < shared + block.launch->shared_bytes;
  const s64 owner = own ? block.index : -1;
  const std::lock_guard lock(mutex_);
  const auto found = sums_.find(addition.where);
  if (found == sums_.end() && sums_.size() >= kMost) return;
  Sum& sum = found == sums_.end() ? sums_[addition.where] : found->second;
  // Another value than the last sum means that a new sum has begun.
  if (!sum.terms || sum.owner != owner || sum.value != addition.old) {
    sum = {.owner = owner, .first = addition.value};
    take(sum, addition.old);
  } else if (!is_ordered(sum, warp)) {
    sum.several = true;
  }
  take(sum, addition.value);
  sum.distinct |= addition.value != sum.first;
  const s32 thread = warp.thread(addition.lane);
  if (sum.several && sum.distinct && sum.terms > 2 && watches(pc) &&
      sum.magnitude > std::ldexp(1.0, sum.lowest + addition.digits)) {
    told_[static_cast<std::size_t>(pc)] = true;
    const bool apart = sum.block != block.index;
    block.note({.problem = Problem::order_of_additions,
                .pc = pc,
                .other_pc = sum.pc,
                .block = block.index,
                .thread = thread,
                .other_thread = sum.thread,
                .address = addition.address,
                .bytes = addition.bytes,
                .other_block = apart ? sum.block : -1});
  }
  sum.value = addition.sum;
  sum.block = block.index;
  sum.agent = warp.agent;
  sum.clock = block.shadow->clocks.now(warp.agent);
  sum.pc = pc;
  sum.thread = thread;
}

}  // namespace workbench::ptx
