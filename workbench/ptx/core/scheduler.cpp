#include "scheduler.hpp"

#include <algorithm>
#include <climits>

#include "checks/observer.hpp"
#include "checks/waits.hpp"
#include "memory/access.hpp"

namespace workbench::ptx {
namespace {

// Lanes that run together.
struct Group {
  s32 pc;
  u32 mask;
  s32 limit;    // pc at which the next group stands
  bool forced;  // whether a collective goes on without its absent lanes
};

void take(Warp& warp, std::size_t index) {
  warp.splits[index] = warp.splits.back();
  warp.splits.pop_back();
}

// Releases a collective for which the missing lanes can no longer arrive: they exited, or wait
// elsewhere.
bool release_collective(Block& block, Warp& warp, Group& current) {
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
    // A mask that does not name its own lane has been reported already.
    if (absent && split.mask & split.need) {
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

// Picks the next group to run, with all others at the same pc. Returns false if every group waits.
bool pick(Block& block, Warp& warp, Group& current) {
  auto& splits = warp.splits;
  // All lanes are together.
  if (splits.size() == 1 && splits[0].state <= Split::polled) {
    current = {splits[0].pc, splits[0].mask, INT_MAX, false};
    splits.clear();
    return true;
  }
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

// The lanes at the same collective that use another member mask, such as the tiles of a partition.
inline u32 in_other_groups(const Warp& warp, const Instruction& in, u32 active) {
  if (in.member == kNoSlot) return 0;
  const u32 first = first_lane(active);
  return active & ~at<u32>(warp.registers, in.member)[first] & ~(1u << first);
}

// Collects the lanes of a collective. Returns false if this group has to wait for others.
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

// Counts the lanes in at their barrier. bar.arrive does not wait.
bool arrive(Block& block, Warp& warp, const Instruction& in, s32 pc, u32 active, u32 number,
            u32 expected) {
  Barrier& barrier = block.barriers[number];
  block.barriers_met |= 1u << number;
  const u64 clock = warp.now + warp.waited;
  barrier.latest = std::max(barrier.latest, clock);
  if (expected) barrier.expected = expected;
  if (in.meeting == Meeting::arrive) {
    barrier.arrivals += static_cast<u32>(count_lanes(active));
    return false;
  }
  barrier.waiting += static_cast<u32>(count_lanes(active));
  barrier.warps |= 1u << warp.index;
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

// Enters a function: `active` lanes store their return address, and their frame pointer moves up.
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

// Picks a return address among the lanes that leave a function, and returns the lanes that go
// there.
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

// What follows an instruction: the group's next instruction, another group, or other warps.
// `again`: other warps, and then the same instruction, which has not happened. `barrier`: other
// warps, since all lanes wait. `held`: other warps, since a schedule stops this one.
enum class Next : u8 { instruction, group, others, again, barrier, held };

// A warp's turn. run_group executes plain instructions and branches itself; each other kind has a
// function.
template <class Observer>
class Turn {
 public:
  Turn(Block& block, Warp& warp) : block_(block), warp_(warp), observer_(block), tick_(warp.tick) {}

  Outcome run() {
    for (Group group;;) {
      if (executed_ >= observer_.quantum()) return leave(Outcome::yielded);
      warp_.tick = tick_ + executed_;
      const bool runnable = pick(block_, warp_, group);
      warp_.tick = tick_;
      if (!runnable) return leave(warp_.splits.empty() ? Outcome::finished : Outcome::blocked);
      const Next next = run_group(group);
      if (next == Next::others) return leave(Outcome::polled);
      if (next == Next::held) return leave(Outcome::yielded);
      if (next == Next::barrier && executed_ < observer_.quantum()) return leave(Outcome::blocked);
    }
  }

 private:
  Outcome leave(Outcome outcome) {
    block_.instructions += executed_;
    block_.lanes += lanes_;
    warp_.tick += executed_;
    return outcome;
  }

  void push(s32 pc, u32 mask, u64 now) {
    warp_.splits.push_back({.pc = pc, .mask = mask, .state = Split::ready, .last_run = now});
  }
  // Lets some of a warp's lanes wait at an instruction until the others wait for them, if all are
  // together there.
  void part(Schedule& schedule, s32 pc, u32& mask, u64 now) {
    if (mask != (warp_.all & ~warp_.exited)) return;
    const u32 held = schedule.held_lanes(warp_, mask);
    if (!held) return;
    warp_.splits.push_back({.pc = pc, .mask = held, .state = Split::polled, .last_run = now});
    mask &= ~held;
  }
  // Lets the lanes of a group that its guard excluded continue behind the instruction.
  void push_rest(const Group& group, u32 active) {
    if (group.mask & ~active) push(group.pc + 1, group.mask & ~active, warp_.now);
  }
  void execute(const Instruction& in, u32 active) {
    Observer::handler(in)(warp_.registers, in, active, warp_);
  }

  [[gnu::noinline]] Next run_group(Group group) {
    const Instruction* const code = block_.kernel->code.data();
    u8* const registers = warp_.registers;
    const Observer observer = observer_;
    u64 executed = executed_, lanes = lanes_;
    s32 pc = group.pc, limit = group.limit;
    u32 mask = group.mask;
    Next next = Next::group;
    for (;;) {
      if (__builtin_expect(pc >= limit, 0)) {
        push(pc, mask, tick_ + executed);
        break;
      }
      if (Schedule* const schedule = observer.stops(pc)) {
        if (schedule->parts_lanes()) {
          part(*schedule, pc, mask, tick_ + executed);
        } else if (schedule->holds(warp_)) {
          push(pc, mask, tick_ + executed);
          next = Next::held;
          break;
        }
      }
      const Instruction& in = code[pc];
      const u32 active = mask & (*at<u32>(registers, in.guard) ^ in.guard_flip);
      executed += in.counted;
      lanes += static_cast<u64>(count_lanes(active)) & (u64{0} - in.counted);
      observer.issued(pc, active);
      if (__builtin_expect(in.kind == Kind::plain, 1)) {
        if (active) Observer::handler(in)(registers, in, active, warp_);
        ++pc;
        if (observer.cuts(executed)) {
          push(pc, mask, tick_ + executed);
          break;
        }
        continue;
      }
      if (!active) {
        ++pc;
        continue;
      }
      warp_.now = tick_ + executed;
      if (in.kind == Kind::branch) {
        if (active != mask) {
          push(in.target, active, warp_.now);
          push(pc + 1, mask & ~active, warp_.now);
          break;
        }
        if (in.target <= pc && executed >= observer.quantum()) {
          push(in.target, mask, warp_.now);
          break;
        }
        pc = in.target;
        continue;
      }
      group.pc = pc, group.mask = mask, group.limit = limit;
      next = special(in, active, group);
      if (next == Next::again) {
        executed -= in.counted;
        lanes -= static_cast<u64>(count_lanes(active)) & (u64{0} - in.counted);
        observer.withdrawn(pc, active);
        next = Next::others;
      }
      if (next != Next::instruction) break;
      pc = group.pc, mask = group.mask, limit = group.limit;
    }
    executed_ = executed, lanes_ = lanes;
    return next;
  }

  [[gnu::noinline]] Next special(const Instruction& in, u32 active, Group& group) {
    switch (in.kind) {
      case Kind::plain:
      // run_group executes these.
      case Kind::branch: break;
      case Kind::timed: return timed(in, active, group);
      case Kind::collective: return collective(in, active, group);
      case Kind::barrier: return barrier(in, active, group);
      case Kind::poll: return poll(in, active, group);
      case Kind::wait: return wait(in, active, group);
      case Kind::call: return call(in, active, group);
      case Kind::ret: return leave_function(active, group);
      case Kind::trap: trap(in, active); [[fallthrough]];
      case Kind::exit: return exit(active, group);
    }
    __builtin_unreachable();
  }

  Next timed(const Instruction& in, u32 active, Group& group) {
    execute(in, active);
    ++group.pc;
    return Next::instruction;
  }

  Next collective(const Instruction& in, u32 active, Group& group) {
    if (!group.forced) observer_.at_collective(warp_, in, group.pc, active);
    if (const u32 others = in_other_groups(warp_, in, active); __builtin_expect(others != 0, 0)) {
      push(group.pc, others, warp_.now);
      active &= ~others, group.mask &= ~others, group.limit = group.pc;
    }
    if (!group.forced && !gather(warp_, in, group.pc, active, group.mask)) {
      push_rest(group, active);
      return Next::group;
    }
    group.forced = false;
    return timed(in, active, group);
  }

  Next barrier(const Instruction& in, u32 active, Group& group) {
    const u32 first = first_lane(active),
              number = at<u32>(warp_.registers, in.barrier.number)[first] & 15;
    const u32 expected =
        in.barrier.threads != kNoSlot ? at<u32>(warp_.registers, in.barrier.threads)[first] : 0;
    observer_.at_barrier(warp_, in, group.pc, active, number, expected);
    if (arrive(block_, warp_, in, group.pc, active, number, expected)) {
      push_rest(group, active);
      return warp_.splits.size() == 1 ? Next::barrier : Next::group;
    }
    ++group.pc;
    return Next::instruction;
  }

  Next poll(const Instruction& in, u32 active, Group& group) {
    block_.polled = false;
    timed(in, active, group);
    if (!block_.polled) return Next::instruction;
    push(group.pc, group.mask, warp_.now);
    warp_.splits.back().state = Split::polled;
    return Next::others;
  }

  Next wait(const Instruction& in, u32 active, Group& group) {
    block_.polled = false;
    execute(in, active);
    if (!block_.polled) {
      ++group.pc;
      return Next::instruction;
    }
    const u64 before = warp_.now - in.counted;
    if (group.mask & ~active) push(group.pc + 1, group.mask & ~active, before);
    push(group.pc, active, before);
    warp_.splits.back().state = Split::polled;
    return Next::again;
  }

  Next call(const Instruction& in, u32 active, Group& group) {
    enter(block_, warp_, in, group.pc, active);
    if (group.mask & ~active) {
      push(in.target, active, warp_.now);
      push_rest(group, active);
      return Next::group;
    }
    group.pc = in.target;
    return Next::instruction;
  }

  Next leave_function(u32 active, const Group& group) {
    push_rest(group, active);
    while (active) {
      s32 target = 0;
      const u32 together = go_back(block_, warp_, active, target);
      push(target, together, warp_.now);
      active &= ~together;
    }
    return Next::group;
  }

  void trap(const Instruction& in, u32 active) {
    if (in.run)
      execute(in, active);
    else
      block_.problem(Problem::trap, in, warp_.thread(first_lane(active)), 0, 0);
  }

  Next exit(u32 active, Group& group) {
    warp_.exited |= active;
    block_.exited += static_cast<u32>(count_lanes(active));
    group.mask &= ~active;
    if (!group.mask) return Next::group;
    ++group.pc;
    return Next::instruction;
  }

  Block& block_;
  Warp& warp_;
  const Observer observer_;
  const u64 tick_;  // the warp's tick at the beginning of the turn
  u64 executed_ = 0, lanes_ = 0;
};

// Under a debugger, which takes no statistics.
Outcome run_debugged(Block& block, Warp& warp) {
  block.launch->debugger->enter(block, warp);
  if (block.proof) {
    block.proof->warp = &warp;
    return block.observed ? Turn<Debugged<Proving<Observer<false>>>>(block, warp).run()
                          : Turn<Debugged<Proving<Unobserved>>>(block, warp).run();
  }
  return block.observed ? Turn<Debugged<Observer<false>>>(block, warp).run()
                        : Turn<Debugged<Unobserved>>(block, warp).run();
}

}  // namespace

Outcome run_warp(Block& block, Warp& warp) {
  if (__builtin_expect(block.launch->schedule != nullptr, 0))
    for (LateStores& late : block.launch->schedule->late) late.enter(warp);
  if (__builtin_expect(block.launch->debugger != nullptr, 0)) return run_debugged(block, warp);
  if (__builtin_expect(block.proof != nullptr, 0)) {
    block.proof->warp = &warp;
    if (!block.observed) return Turn<Proving<Unobserved>>(block, warp).run();
    return block.counts ? Turn<Proving<Observer<true>>>(block, warp).run()
                        : Turn<Proving<Observer<false>>>(block, warp).run();
  }
  if (__builtin_expect(block.launch->schedule != nullptr, 0)) {
    if (!block.observed) return Turn<Scheduled<Unobserved>>(block, warp).run();
    return block.counts ? Turn<Scheduled<Observer<true>>>(block, warp).run()
                        : Turn<Scheduled<Observer<false>>>(block, warp).run();
  }
  if (!block.observed) return Turn<Unobserved>(block, warp).run();
  return block.counts ? Turn<Observer<true>>(block, warp).run()
                      : Turn<Observer<false>>(block, warp).run();
}

}  // namespace workbench::ptx
