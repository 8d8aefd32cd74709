// Who looks on as the scheduler runs a warp. Each kind of observer is a way to compile the
// scheduler, so that a bare launch asks after none of them.
#pragma once
#include "checks/waits.hpp"
#include "scheduler.hpp"

namespace workbench::ptx {

class Unobserved {
 public:
  explicit Unobserved(Block&) {}
  // Instructions of a turn.
  static constexpr u64 quantum() { return kQuantum; }
  static Handler handler(const Instruction& in) { return in.run; }
  // Lanes execute an instruction, or after all do not yet.
  void issued(s32, u32) const {}
  void withdrawn(s32, u32) const {}
  // Lanes come to a collective with their member masks.
  void at_collective(Warp&, const Instruction&, s32, u32) const {}
  // Lanes come to a barrier; `expected` threads are to, 0 for all of the block.
  void at_barrier(Warp&, const Instruction&, s32, u32, u32, u32) const {}
};

// Checks and a recording look on, each perhaps; statistics too, or not.
template <bool Statistics>
class Observer {
 public:
  explicit Observer(Block& block) : block_(block), tallies_(block.tallies) {}
  static constexpr u64 quantum() { return kQuantum; }
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

// Beside another observer, whether the block waits in plain memory (waits.hpp).
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

// Tells of a lane that calls with a mask, and of another one, which that names, with another mask.
void note_mismatch(Block& block, const Warp& warp, s32 pc, u32 lane, u32 mask, u32 other,
                   u32 other_mask);

}  // namespace workbench::ptx
