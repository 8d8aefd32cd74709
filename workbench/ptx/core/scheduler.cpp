#include "scheduler.hpp"

#include <algorithm>
#include <climits>
#include <cstdio>

#include "access.hpp"
#include "codes.hpp"

namespace workbench::ptx {
namespace {

struct Current {
  s32 pc;
  u32 mask;
  s32 limit;    // where the next group stands
  bool forced;  // a collective that goes on without its absent lanes
};

void take(Warp& warp, std::size_t index) {
  warp.splits[index] = warp.splits.back();
  warp.splits.pop_back();
}

std::string hex(u32 mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

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

// A lane must call with a mask that names it, and all lanes that it names with the same one (PTX
// ISA, shfl.sync and bar.warp.sync). Lanes that have exited are not waited for, so a mask may name
// them.
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

// A collective whose lanes can no longer come: they exited, or wait elsewhere.
bool release_collective(Block& block, Warp& warp, Current& current) {
  for (std::size_t i = 0; i < warp.splits.size(); ++i) {
    const Split split = warp.splits[i];
    if (split.state != Split::at_collective) continue;
    u32 have = 0;
    for (const Split& other : warp.splits) {
      if (other.state != Split::at_collective || other.pc != split.pc) continue;
      have |= other.mask;
      if (other.need == split.need || !(other.mask & split.need)) continue;
      note_mismatch(block, warp, split.pc, static_cast<u32>(first_lane(split.mask)), split.need,
                    static_cast<u32>(first_lane(other.mask & split.need)), other.need);
    }
    const u32 absent = split.need & ~have & ~warp.exited & warp.all;
    if (absent && split.mask & split.need) {  // who does not name itself has been told
      block.note({.problem = Problem::absent_lane,
                  .pc = split.pc,
                  .block = block.index,
                  .thread = warp.thread(first_lane(split.mask)),
                  .other_thread = warp.thread(first_lane(absent))});
    }
    current = {split.pc, 0, INT_MAX, true};
    for (std::size_t j = 0; j < warp.splits.size();) {
      if (warp.splits[j].state == Split::at_collective && warp.splits[j].pc == split.pc) {
        current.mask |= warp.splits[j].mask;
        take(warp, j);
      } else {
        ++j;
      }
    }
    return true;
  }
  return false;
}

// The next group to run, with all others that stand at the same pc. False if every group waits.
bool pick(Block& block, Warp& warp, Current& current) {
  auto& splits = warp.splits;
  s32 best = INT_MAX, best_polled = INT_MAX;
  const Split* oldest = nullptr;
  for (const Split& split : splits) {
    if (split.state > Split::polled) continue;
    s32& lowest = split.state == Split::ready ? best : best_polled;
    if (split.pc < lowest) lowest = split.pc;
    if (!oldest || split.last_run < oldest->last_run) oldest = &split;
  }
  if (best == INT_MAX) best = best_polled;
  if (best == INT_MAX) return release_collective(block, warp, current);
  const bool starved = oldest->pc != best && oldest->last_run + kStarved < warp.tick;
  current = {starved ? oldest->pc : best, 0, INT_MAX, false};
  for (std::size_t i = 0; i < splits.size();) {
    if (splits[i].state <= Split::polled && splits[i].pc == current.pc) {
      current.mask |= splits[i].mask;
      take(warp, i);
    } else {
      ++i;
    }
  }
  if (!starved) {
    for (const Split& split : splits)
      if (split.state == Split::ready && split.pc < current.limit) current.limit = split.pc;
  }
  return true;
}

// Lanes that stand at the same collective with a member mask of their own, such as the tiles of a
// partition.
inline u32 in_other_groups(const Warp& warp, const Instruction& in, u32 active) {
  if (in.member == kNoSlot) return 0;
  const u32 first = first_lane(active);
  return active & ~at<u32>(warp.registers, in.member)[first] & ~(1u << first);
}

// Brings the lanes of a collective together. False if this group has to wait for others.
bool gather(Warp& warp, const Instruction& in, s32 pc, u32& active, u32& mask) {
  u32 need = warp.all;
  if (in.member != kNoSlot) need &= at<u32>(warp.registers, in.member)[first_lane(active)];
  if (!(need & ~active & ~warp.exited)) return true;
  u32 have = active;
  for (const Split& split : warp.splits)
    if (split.state == Split::at_collective && split.pc == pc && split.need == need)
      have |= split.mask;
  if (need & ~have & ~warp.exited) {
    warp.splits.push_back({.pc = pc,
                           .mask = active,
                           .state = Split::at_collective,
                           .need = need,
                           .last_run = warp.tick});
    return false;
  }
  for (std::size_t i = 0; i < warp.splits.size();) {
    if (warp.splits[i].state == Split::at_collective && warp.splits[i].pc == pc &&
        warp.splits[i].need == need) {
      active |= warp.splits[i].mask, mask |= warp.splits[i].mask;
      take(warp, i);
    } else {
      ++i;
    }
  }
  return true;
}

// All who meet at a barrier must expect as many threads as each other (whole warps); without a
// number, the whole block.
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

// Counts the lanes in at their barrier. bar.arrive does not wait.
bool arrive(Block& block, Warp& warp, const Instruction& in, s32 pc, u32 active, u64 clock) {
  const u32 number = at<u32>(warp.registers, in.barrier.number)[first_lane(active)] & 15;
  Barrier& barrier = block.barriers[number];
  if (block.shadow)
    block.shadow->clocks.arrive(warp.agent, block.rank * Clocks::kBarriers + number);
  if (block.recorder)
    block.recorder->event(
        {.warp = warp.index,
         .pc = pc,
         .kind = in.meeting == Meeting::arrive ? RecordedEvent::come : RecordedEvent::meet,
         .at = number,
         .phase = block.recorder->meeting(number),
         .count = 0,
         .bytes = 0,
         .to = 0,
         .tick = warp.now});
  barrier.latest = std::max(barrier.latest, clock);
  const u32 expected = in.barrier.threads != kNoSlot
                           ? at<u32>(warp.registers, in.barrier.threads)[first_lane(active)]
                           : 0;
  if (block.shadow) check_count(block, warp, pc, active, number, expected);
  if (expected) barrier.expected = expected;
  if (in.meeting == Meeting::arrive) {
    barrier.arrivals += static_cast<u32>(count_lanes(active));
    return false;
  }
  barrier.waiting += static_cast<u32>(count_lanes(active));
  if (in.meeting >= Meeting::popc) {
    const u32 votes = *at<u32>(warp.registers, in.barrier.vote) ^ in.negated;
    barrier.votes += static_cast<u32>(count_lanes(votes & active));
  }
  u32 leaving = warp.exited;
  s32 elsewhere = -1;
  for (const Split& split : warp.splits) {
    if (split.state == Split::at_barrier) continue;
    const Instruction& next = block.kernel->code[static_cast<std::size_t>(split.pc)];
    if (next.kind == Kind::exit)
      leaving |= split.mask;
    else
      elsewhere = split.pc;
  }
  warp.splits.push_back({.pc = pc,
                         .mask = active,
                         .state = Split::at_barrier,
                         .need = number,
                         .exited = leaving,
                         .elsewhere = elsewhere,
                         .last_run = warp.tick,
                         .arrived = clock});
  return true;
}

// Enters a function: `active` lanes remember where to go back to, and their frame moves up.
void enter(Block& block, Warp& warp, const Instruction& in, s32 pc, u32 active) {
  u64* frame = at<u64>(warp.registers, in.call.frame);
  PTX_FOR_EACH_LANE (lane, active) {
    frame[lane] += in.call.caller_bytes;
    if (frame[lane] + in.call.callee_bytes > block.kernel->local_bytes) {
      throw Stop{{.problem = Problem::stack_overflow,
                  .pc = pc,
                  .block = block.index,
                  .thread = warp.thread(lane),
                  .address = static_cast<u64>(warp.calls.returns[lane].size()),
                  .bytes = block.kernel->local_bytes}};
    }
    warp.calls.returns[lane].push_back(pc + 1);
  }
}

// Lanes that leave a function, by the place they go back to: the first one found and its lanes.
u32 go_back(Block& block, Warp& warp, u32 active, s32& target) {
  target = warp.calls.returns[first_lane(active)].back();
  u32 together = 0;
  PTX_FOR_EACH_LANE (lane, active)
    together |= (warp.calls.returns[lane].back() == target ? 1u : 0u) << lane;
  u64* frame = at<u64>(warp.registers, block.kernel->frame_slot);
  const Instruction& call = block.kernel->code[static_cast<std::size_t>(target - 1)];
  PTX_FOR_EACH_LANE (lane, together) {
    warp.calls.returns[lane].pop_back();
    frame[lane] -= call.call.caller_bytes;
  }
  return together;
}

}  // namespace

template <bool Statistics>
Outcome run_warp(Block& block, Warp& warp) {
  const Instruction* code = block.kernel->code.data();
  u8* const registers = warp.registers;
  Tally* const tallies = block.tallies;
  Current current;
  u64 executed = 0, lanes = 0;
  const auto leave = [&](Outcome outcome) {
    block.instructions += executed, block.lanes += lanes, warp.tick += executed;
    return outcome;
  };
  const u64 tick = warp.tick;
  const auto push = [&](s32 pc, u32 mask) {
    warp.splits.push_back(
        {.pc = pc, .mask = mask, .state = Split::ready, .last_run = tick + executed});
  };

  for (;;) {  // one round per change of group
    if (executed >= kQuantum) return leave(Outcome::yielded);
    warp.tick = tick + executed;
    const bool runnable = pick(block, warp, current);
    warp.tick = tick;
    if (!runnable) return leave(warp.splits.empty() ? Outcome::finished : Outcome::blocked);
    s32 pc = current.pc;
    u32 mask = current.mask;
    bool forced = current.forced;
    s32 limit = current.limit;

    for (;;) {
      if (__builtin_expect(pc >= limit, 0)) {
        push(pc, mask);
        break;
      }
      const Instruction& in = code[pc];
      u32 active = mask & (*at<u32>(registers, in.guard) ^ in.guard_flip);
      executed += in.counted;
      lanes += static_cast<u64>(count_lanes(active)) & (u64{0} - in.counted);
      if constexpr (Statistics) {
        tallies[pc].executions += 1;
        tallies[pc].lanes += static_cast<u64>(count_lanes(active));
      }
      if (__builtin_expect(in.kind == Kind::plain, 1)) {
        if (active) in.run(registers, in, active, warp);
        ++pc;
        continue;
      }
      if (!active) {
        ++pc;
        continue;
      }
      warp.now = tick + executed;
      if (in.kind == Kind::branch) {
        if (active == mask) {
          if (in.target <= pc && executed >= kQuantum) {
            push(in.target, mask);
            break;
          }
          pc = in.target;
          continue;
        }
        push(in.target, active);
        push(pc + 1, mask & ~active);
        break;
      }
      if (in.kind == Kind::collective) {
        if (block.shadow && !forced) check_members(block, warp, in, pc, active);
        if (const u32 others = in_other_groups(warp, in, active);
            __builtin_expect(others != 0, 0)) {
          push(pc, others);
          active &= ~others, mask &= ~others, limit = pc;
        }
        if (!forced && !gather(warp, in, pc, active, mask)) {
          if (mask & ~active) push(pc + 1, mask & ~active);
          break;
        }
        forced = false;
        in.run(registers, in, active, warp);
        ++pc;
        continue;
      }
      if (in.kind == Kind::barrier) {
        if (!arrive(block, warp, in, pc, active, warp.clock() + executed)) {
          ++pc;
          continue;
        }
        if (mask & ~active) push(pc + 1, mask & ~active);
        break;
      }
      if (in.kind == Kind::timed) {
        in.run(registers, in, active, warp);
        ++pc;
        continue;
      }
      if (in.kind == Kind::poll) {
        block.polled = false;
        in.run(registers, in, active, warp);
        ++pc;
        if (!block.polled) continue;
        push(pc, mask);
        warp.splits.back().state = Split::polled;
        return leave(Outcome::polled);
      }
      if (in.kind == Kind::wait) {
        block.polled = false;
        in.run(registers, in, active, warp);
        if (!block.polled) {
          ++pc;
          continue;
        }
        executed -= in.counted,
            lanes -= static_cast<u64>(count_lanes(active)) & (u64{0} - in.counted);
        if constexpr (Statistics) {
          tallies[pc].executions -= 1;
          tallies[pc].lanes -= static_cast<u64>(count_lanes(active));
        }
        if (mask & ~active) push(pc + 1, mask & ~active);
        push(pc, active);
        warp.splits.back().state = Split::polled;
        return leave(Outcome::polled);
      }
      if (in.kind == Kind::call) {
        enter(block, warp, in, pc, active);
        if (mask & ~active) {
          push(in.target, active);
          push(pc + 1, mask & ~active);
          break;
        }
        pc = in.target;
        continue;
      }
      if (in.kind == Kind::ret) {
        if (mask & ~active) push(pc + 1, mask & ~active);
        while (active) {
          s32 target = 0;
          const u32 together = go_back(block, warp, active, target);
          push(target, together);
          active &= ~together;
        }
        break;
      }
      if (in.kind == Kind::trap && in.run)
        in.run(registers, in, active, warp);
      else if (in.kind == Kind::trap)
        block.problem(Problem::trap, in, warp.thread(first_lane(active)), 0, 0);
      warp.exited |= active;
      mask &= ~active;
      if (!mask) break;
      ++pc;
    }
  }
}

template Outcome run_warp<false>(Block&, Warp&);
template Outcome run_warp<true>(Block&, Warp&);

}  // namespace workbench::ptx
