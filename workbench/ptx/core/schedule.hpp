// An order of a launch, from a seed: which block and which warp goes on, for how many instructions,
// and whether a copy lands when it is issued or when a thread waits for it. The same seed gives the
// same order.
//
// An aimed order has an instruction, one side of a race, at which warps have to wait: the others
// run as far ahead as their barriers let them.
#pragma once
#include <algorithm>
#include <numeric>
#include <utility>

#include "machine.hpp"
#include "memory/late_stores.hpp"
#include "warp.hpp"

namespace workbench::ptx {

// Where a warp stands.
struct Place {
  s64 block = -1;
  s32 warp = -1, pc = -1;
};

// An instruction at which an order lets warps, or lanes, wait for others.
struct Aim {
  enum Between : u32 { lanes, warps, blocks };  // whose accesses race
  s32 pc = -1;
  u32 between = warps;
};

class Schedule {
 public:
  // Blocks that run at the same time, as on a GPU.
  static constexpr std::size_t kResident = 16;

  // `changes` bounds how often a warp or block that could go on has to wait for the others.
  // `aims`: the instructions of which the seed chooses one; none for an order at random.
  Schedule(u64 seed, u64 changes, const std::vector<Aim>& aims)
      : state_(seed), changes_left_(changes) {
    if (aims.empty()) return;
    aim_ = aims[seed % aims.size()];
    part_ = seed / aims.size() % kParts;
    salt_ = random();
  }

  // SplitMix64.
  u64 random() {
    u64 z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  u64 below(u64 bound) { return random() % bound; }

  // Instructions of a turn: often few, sometimes so many that the others fall far behind.
  u64 slice() { return is_aimed() ? kAhead : 1 + below(u64{1} << below(12)); }
  bool lands_early() { return random() & 1; }

  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }
  // A block's place in the launch, from its number in the order in which blocks start.
  s64 start_of(s64 number, s64 count) {
    if (!step_) {
      begin_ = static_cast<s64>(below(static_cast<u64>(count)));
      do step_ = 1 + static_cast<s64>(below(static_cast<u64>(count)));
      while (std::gcd(step_, count) != 1);
    }
    return static_cast<s64>((static_cast<__int128>(number) * step_ + begin_) % count);
  }

  // Whether the warp at `place`, whose turn is over, waits for all others now.
  bool changes(const Place& place) {
    return changes_left_ && !below(is_aimed() ? 32 : 4) && change(place);
  }

  // Whether the warp has to let others go on although no change is left: it may wait for them in
  // plain memory.
  bool tires() { return !changes_left_ && !(++turns_ % kMostTurns); }

  bool is_aimed() const { return aim_.pc >= 0; }
  bool aims_at(s32 pc) const { return pc == aim_.pc; }
  // Whether lanes of a warp race there, not warps.
  bool parts_lanes() const { return aim_.between == Aim::lanes; }
  // Whether the warp, which stands at the aim, has to wait for the others before it goes on.
  bool holds(const Warp& warp) {
    const auto known = std::find(held_.begin(), held_.end(), &warp);
    if (known != held_.end()) {
      held_.erase(known);
      return false;
    }
    if (!changes_left_ || !chosen(warp)) return false;
    change({warp.block->index, warp.index, aim_.pc});
    held_.push_back(&warp);
    stopped_ = &warp;
    return true;
  }
  // Whether that warp was stopped at the aim just now.
  bool stopped(const Warp& warp) { return std::exchange(stopped_, nullptr) == &warp; }
  // The lanes of a warp at the aim, all of which are together, that wait for the others.
  u32 held_lanes(const Warp& warp, u32 lanes) {
    constexpr u32 kHalves[] = {0x0000ffff, 0xffff0000, 0x55555555};
    const u32 held = lanes & (part_ < 3 ? kHalves[part_] : static_cast<u32>(random()));
    if (!held || held == lanes || !changes_left_) return 0;
    const Place place{warp.block->index, warp.index, aim_.pc};
    change(place), then_ = place;
    return held;
  }
  // Whether the block of a warp that was stopped waits for other blocks, too.
  bool holds_block() { return std::exchange(holds_block_, false); }
  // A warp goes on: the one after the latest change is remembered.
  void goes_on(const Place& place) {
    if (changed_ && then_.pc < 0) then_ = place;
  }
  u64 changed() const { return changed_; }
  const Place& last() const { return last_; }
  const Place& then() const { return then_; }

  // The stores that other blocks, or other warps, see late.
  std::vector<LateStores> late;

 private:
  static constexpr u64 kAhead = 1 << 12, kParts = 4, kMostTurns = 64;

  bool change(const Place& place) {
    --changes_left_, ++changed_;
    last_ = place, then_ = {};
    holds_block_ = aim_.between == Aim::blocks;
    return true;
  }
  // Whether a warp is among those that wait: all, a half, a quarter, or all of a half of the
  // blocks.
  bool chosen(const Warp& warp) const {
    u64 number = salt_ + static_cast<u64>(warp.block->index) * 0x9E3779B97F4A7C15u;
    if (part_ < 3) number += static_cast<u64>(warp.index) * 0xBF58476D1CE4E5B9u;
    number = (number ^ (number >> 31)) * 0x94D049BB133111EBu >> 40;
    return part_ == 0 || number % (part_ == 2 ? 4 : 2) == 0;
  }

  u64 state_, changes_left_, changed_ = 0, turns_ = 0;
  Aim aim_;
  u64 part_ = 0, salt_ = 0;        // who waits there
  std::vector<const Warp*> held_;  // warps that wait at the aim
  const Warp* stopped_ = nullptr;  // the latest of them
  bool holds_block_ = false;
  s64 step_ = 0, begin_ = 0;
  Place last_, then_;
};

// Whether a copy that is issued now lands at once.
inline bool lands_early(const Block& block) {
  const Launch& launch = *block.launch;
  return launch.copies_early || (launch.schedule && launch.schedule->lands_early());
}

}  // namespace workbench::ptx
