#include "checks/observer.hpp"

#include <cstdio>

namespace workbench::ptx {
namespace {

std::string hex(u32 mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

// Reports lanes whose member mask is wrong. A lane's mask must name the lane itself, and all lanes
// that it names must use the same mask (PTX ISA, shfl.sync and bar.warp.sync). Lanes that have
// exited are not waited for, so a mask may name them.
void check_members(Block& block, Warp& warp, const Instruction& in, s32 pc, u32 active) {
  if (in.member == kNoSlot) return;
  const u32* member = at<u32>(warp.registers, in.member);
  const u32 first = static_cast<u32>(first_lane(active));
  u32 apart = active & ~member[first];
  PTX_LANES {
    apart |= member[lane] ^ member[first];
  }
  if (!apart) return;
  u32 nameless = 0, different = 0;
  PTX_FOR_EACH_LANE (lane, active) {
    nameless |= (~member[lane] >> lane & 1) << lane;
    different |= (member[lane] != member[first] ? 1u : 0u) << lane;
  }
  PTX_FOR_EACH_LANE (lane, nameless) {
    block.note({.problem = Problem::absent_self,
                .pc = pc,
                .block = block.index,
                .thread = warp.thread(lane),
                .text = "lane " + std::to_string(lane) + " calls with mask " + hex(member[lane]) +
                        ", which does not name it"});
  }
  if (!different) return;
  PTX_FOR_EACH_LANE (lane, active & ~nameless) {
    PTX_FOR_EACH_LANE (other, member[lane] & active & ~nameless) {
      if (member[other] == member[lane]) continue;
      note_mismatch(block, warp, pc, lane, member[lane], other, member[other]);
      break;
    }
  }
}

// Reports warps that meet at a barrier with different thread counts. All must expect the same
// number of threads (whole warps); without a number, the whole block.
void check_count(Block& block, const Warp& warp, s32 pc, u32 active, u32 number, u32 count) {
  Barrier& barrier = block.barriers[number];
  const u32 threads =
      ((count ? count : block.launch->threads_per_block()) + kLanes - 1) / kLanes * kLanes;
  const s32 thread = warp.thread(first_lane(active));
  if (barrier.pc < 0) barrier.threads = threads, barrier.pc = pc, barrier.thread = thread;
  if (barrier.threads == threads) return;
  block.note({.problem = Problem::barrier_misuse,
              .pc = pc,
              .other_pc = barrier.pc,
              .block = block.index,
              .thread = thread,
              .other_thread = barrier.thread,
              .text = "barrier " + std::to_string(number) + " is for " + std::to_string(threads) +
                      " threads here, and for " + std::to_string(barrier.threads) +
                      " where others arrived"});
}

}  // namespace

void note_mismatch(Block& block, const Warp& warp, s32 pc, u32 lane, u32 mask, u32 other,
                   u32 other_mask) {
  block.note({.problem = Problem::mismatched_mask,
              .pc = pc,
              .block = block.index,
              .thread = warp.thread(lane),
              .other_thread = warp.thread(other),
              .text = "lane " + std::to_string(lane) + " calls with mask " + hex(mask) +
                      ", and lane " + std::to_string(other) + ", which that names, with " +
                      hex(other_mask)});
}

template <bool Statistics>
void Observer<Statistics>::at_collective(Warp& warp, const Instruction& in, s32 pc,
                                         u32 lanes) const {
  if (block_.launch->checks) check_members(block_, warp, in, pc, lanes);
}

template <bool Statistics>
void Observer<Statistics>::at_barrier(Warp& warp, const Instruction& in, s32 pc, u32 lanes,
                                      u32 number, u32 expected) const {
  if (block_.shadow) {
    block_.shadow->clocks.arrive(warp.agent, block_.rank * Clocks::kBarriers + number);
    check_count(block_, warp, pc, lanes, number, expected);
  }
  if (!block_.recorder) return;
  block_.recorder->event(
      {.warp = warp.index,
       .pc = pc,
       .kind = in.meeting == Meeting::arrive ? RecordedEvent::come : RecordedEvent::meet,
       .at = number,
       .phase = block_.recorder->meeting(number),
       .count = 0,
       .bytes = 0,
       .to = 0,
       .tick = warp.now});
}

template class Observer<false>;
template class Observer<true>;

}  // namespace workbench::ptx
