// An order of a launch, from a seed: which block and which warp goes on, for how many instructions,
// and whether a copy lands when it is issued or when a thread waits for it. The same seed gives the
// same order.
#pragma once
#include <numeric>
#include <utility>

#include "machine.hpp"
#include "warp.hpp"

namespace workbench::ptx {

// Where a warp stands.
struct Place {
  s64 block = -1;
  s32 warp = -1, pc = -1;
};

class Schedule {
 public:
  // Blocks that run at the same time, as on a GPU.
  static constexpr std::size_t kResident = 16;

  // `changes` bounds how often a warp or block that could go on has to wait for the others.
  Schedule(u64 seed, u64 changes) : state_(seed), changes_left_(changes) {}

  // SplitMix64.
  u64 random() {
    u64 z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  u64 below(u64 bound) { return random() % bound; }

  // Instructions of a turn: often few, sometimes so many that the others fall far behind.
  u64 slice() { return 1 + below(u64{1} << below(12)); }
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
    if (!changes_left_ || below(4)) return false;
    --changes_left_, ++changed_;
    last_ = place, then_ = {};
    return true;
  }
  // A warp goes on: the one after the latest change is remembered.
  void goes_on(const Place& place) {
    if (changed_ && then_.pc < 0) then_ = place;
  }
  u64 changed() const { return changed_; }
  const Place& last() const { return last_; }
  const Place& then() const { return then_; }

 private:
  u64 state_, changes_left_, changed_ = 0;
  s64 step_ = 0, begin_ = 0;
  Place last_, then_;
};

// Whether a copy that is issued now lands at once.
inline bool lands_early(const Block& block) {
  const Launch& launch = *block.launch;
  return launch.copies_early || (launch.schedule && launch.schedule->lands_early());
}

}  // namespace workbench::ptx
