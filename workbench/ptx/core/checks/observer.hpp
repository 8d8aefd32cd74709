// Observers of the scheduler while it runs a warp. The scheduler is compiled once for each kind of
// observer, so that a bare launch has no tests for them.
#pragma once
#include "checks/waits.hpp"
#include "debug/debugger.hpp"
#include "schedule.hpp"
#include "scheduler.hpp"

namespace workbench::ptx {

class Unobserved {
 public:
  explicit Unobserved(Block&) {}
  // Instructions of one turn.
  static constexpr u64 quantum() { return kQuantum; }
  // Whether the turn ends between two plain instructions.
  static constexpr bool cuts(u64) { return false; }
  // The schedule that stops warps at an instruction, if this is the one; otherwise null.
  static constexpr Schedule* stops(s32) { return nullptr; }
  static Handler handler(const Instruction& in) { return in.run; }
  // Lanes execute an instruction, or (for a poll) find that it has not happened yet.
  void issued(s32, u32) const {}
  void withdrawn(s32, u32) const {}
  // Lanes arrive at a collective with their member masks.
  void at_collective(Warp&, const Instruction&, s32, u32) const {}
  // Lanes arrive at a barrier that waits for `expected` threads (0: the whole block).
  void at_barrier(Warp&, const Instruction&, s32, u32, u32, u32) const {}
};

// Observes for checks and a recording, either of which may be absent; with statistics or without.
template <bool Statistics>
class Observer {
 public:
  explicit Observer(Block& block) : block_(block), tallies_(block.tallies) {}
  static constexpr u64 quantum() { return kQuantum; }
  static constexpr bool cuts(u64) { return false; }
  static constexpr Schedule* stops(s32) { return nullptr; }
  static Handler handler(const Instruction& in) { return in.run_observed; }
  void issued(s32 pc, u32 lanes) const {
    if constexpr (Statistics) {
      tallies_[pc].executions += 1;
      tallies_[pc].lanes += static_cast<u64>(count_lanes(lanes));
    }
  }
  void withdrawn(s32 pc, u32 lanes) const {
    if constexpr (Statistics) {
      tallies_[pc].executions -= 1;
      tallies_[pc].lanes -= static_cast<u64>(count_lanes(lanes));
    }
  }
  void at_collective(Warp& warp, const Instruction& in, s32 pc, u32 lanes) const;
  void at_barrier(Warp& warp, const Instruction& in, s32 pc, u32 lanes, u32 number,
                  u32 expected) const;

 private:
  Block& block_;
  Tally* const tallies_;
};

// As another observer, but a turn has as many instructions as the schedule says.
template <class Other>
class Scheduled : public Other {
 public:
  explicit Scheduled(Block& block)
      : Other(block), schedule_(block.launch->schedule), slice_(schedule_->slice()) {}
  u64 quantum() const { return slice_; }
  bool cuts(u64 executed) const { return executed >= slice_; }
  Schedule* stops(s32 pc) const { return schedule_->aims_at(pc) ? schedule_ : nullptr; }
  void issued(s32 pc, u32 lanes) const {
    Other::issued(pc, lanes);
    for (LateStores& late : schedule_->late) late.before(pc, lanes);
  }

 private:
  Schedule* const schedule_;
  const u64 slice_;
};

// In addition to another observer, watches whether the block waits in plain memory (waits.hpp).
template <class Other>
class Proving : public Other {
 public:
  explicit Proving(Block& block) : Other(block), proof_(*block.proof) {}
  u64 quantum() const { return proof_.quantum; }
  void issued(s32 pc, u32 lanes) const {
    Other::issued(pc, lanes);
    proof_.look(pc, lanes);
  }

 private:
  Proof& proof_;
};

// In addition to another observer, shows each instruction to a debugger, which may stop there.
template <class Other>
class Debugged : public Other {
 public:
  explicit Debugged(Block& block) : Other(block), debugger_(*block.launch->debugger) {}
  void issued(s32 pc, u32 lanes) const {
    debugger_.look(pc, lanes);
    Other::issued(pc, lanes);
  }

 private:
  Debugger& debugger_;
};

// Reports a lane that uses one member mask while another lane, which that mask names, uses another
// mask.
void note_mismatch(Block& block, const Warp& warp, s32 pc, u32 lane, u32 mask, u32 other,
                   u32 other_mask);

}  // namespace workbench::ptx
