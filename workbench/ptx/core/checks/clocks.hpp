// The order of warps by vector clocks (C. Flanagan and S. Freund, *FastTrack*, 2009).
//
// The warps of a block, or of all blocks of a cluster, are agents with consecutive numbers
// (Warp::agent). A warp's own clock grows whenever it publishes its accesses: at a barrier, or when
// it fences and then stores to, or exchanges, a flag. A warp that waits at that barrier, or reads
// that flag with a strong access, has seen everything up to that clock. The rules never accuse a
// correct program: a release needs a fence (or .release) before the strong store or atomic, as the
// memory model demands; an acquire needs none; a failed atomic counts as both.
#pragma once
#include <algorithm>
#include <array>
#include <initializer_list>
#include <unordered_map>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

class Clocks {
 public:
  static constexpr u32 kWarps = 32;  // warps of the largest block
  // The parts of seen(), each with a clock for every agent: all its accesses; those that a proxy
  // fence has made visible to the async proxy; then, of its accesses to tensor memory: complete
  // loads, complete stores, complete products and copies, and products and copies that later
  // products and copies come after.
  enum Part : u32 { all, async_proxy, tensor_loads, tensor_stores, products, issued_products };
  static constexpr u32 kParts = 2, kTensorParts = 6;
  static constexpr u32 kBarriers = 16;

  // `parts`: kParts, or kTensorParts for a kernel that uses tensor memory.
  void resize(u32 warps_per_block, u32 blocks, u32 parts);
  // Starts a block: every warp begins with the clock start(), which is later than all clocks of
  // earlier blocks, and has seen no other warp.
  void begin();

  u32 agents() const { return static_cast<u32>(agents_.size()); }
  u32 start() const { return start_; }
  u32 now(u32 agent) const { return agents_[agent].seen[agent]; }
  // The clocks up to which an agent has seen each agent, part by part.
  const std::vector<u32>& seen(u32 agent) const { return agents_[agent].seen; }
  // A clock up to which every lane of a warp comes after all accesses of every agent.
  u32 floor(u32 agent) const { return with_floors(agent).floor; }
  // The same for accesses that are also visible to the async proxy.
  u32 async_floor(u32 agent) const { return with_floors(agent).async_floor; }
  // The clock, counted from the block's start, up to which an agent has seen another one: the first
  // is 1; 0 means nothing.
  u32 since_start(u32 agent, u32 other) const { return agents_[agent].seen[other] + 1 - start_; }

  // The lanes of a warp go from step to step, counted from the start of the block. Accesses of
  // different lanes are ordered if one of them belongs to a step before since(), where something
  // last ordered the lanes. Steps from since() on have only exchanges of values, which order
  // nothing, but show that a lane's earlier reads have finished for the lanes that received its
  // value.
  u32 step(u32 agent) const { return agents_[agent].step; }
  u32 since(u32 agent) const { return agents_[agent].since; }
  // The step as records of shared memory store it: 16 bits that keep counting from block to block.
  u16 lane_order(u32 agent) const { return agents_[agent].lane_order; }
  void order_lanes(u32 agent) {
    Agent& own = agents_[agent];
    next_step(own);
    own.since = own.step;
    own.exchanges.clear();
  }
  // The same at a strong access. It does not come after the plain accesses before it by itself:
  // for it, the lanes are unordered since access_since(). What was handed on before stays known.
  void order_lanes_at_access(u32 agent) {
    Agent& own = agents_[agent];
    own.access_since = own.since;
    next_step(own);
    own.since = own.step;
  }
  u32 access_since(u32 agent) const { return agents_[agent].access_since; }
  // Notes an access of this agent: the next exchange begins another step.
  void touch(u32 agent) { agents_[agent].touched = true; }
  // `lanes`, all of which are present, exchange values; `live`: lanes that have not exited.
  void exchange(u32 agent, u32 lanes, u32 live);
  // The lanes that received, directly or through others, values that `lane` handed on after a step
  // that is not before since(); includes the lane itself.
  u32 reached(u32 agent, u32 lane, u32 step) const;
  // Lanes of one warp wait for each other, as at bar.warp.sync. Accesses ordered only by the lanes'
  // order of execution, such as volatile ones, are those between which this number, met(), stays
  // the same.
  void meet_lanes(u32 agent) {
    agents_[agent].met += 1;
    order_lanes(agent);
  }
  u32 met(u32 agent) const { return agents_[agent].met; }
  // The step of an agent at which it moved on to its next clock (clock since the start; 0 is none):
  // that clock covers its earlier accesses.
  u32 step_after(u32 agent, u32 clock) const {
    const std::vector<u32>& begins = agents_[agent].begins;
    return clock == 0 ? 0 : clock <= begins.size() ? begins[clock - 1] : UINT32_MAX;
  }

  // Barriers have consecutive numbers, kBarriers for each block.
  void arrive(u32 agent, u32 barrier);
  void leave(u32 agent, u32 barrier);
  // The clock of an agent up to which its accesses are known at a barrier.
  u32 at_barrier(u32 barrier, u32 agent) const { return barriers_[barrier][agent]; }
  // The same for accesses that are also visible to the async proxy, by agent.
  const u32* async_at_barrier(u32 barrier) const { return &barriers_[barrier][agents()]; }
  void clear(u32 barrier) { std::fill(barriers_[barrier].begin(), barriers_[barrier].end(), 0); }

  // `wide`: also for other blocks.
  void fence(u32 agent, bool wide = false);
  // Publishes what an agent has seen so far, without a fence of its own.
  void hand_on(u32 agent, u64 key);
  // fence.proxy.async: makes visible to the async proxy all that the agent has seen, or with `own`
  // only its own accesses.
  void proxy_fence(u32 agent, bool own);
  // Notes that the agent's accesses of these parts are complete: agents that come after it come
  // after them too.
  void complete(u32 agent, std::initializer_list<Part> parts);
  // The same, but only for agents that acquire a flag.
  void complete_for(u32 agent, u64 key, std::initializer_list<Part> parts);
  u32 seen_of(u32 agent, Part part, u32 other) const {
    return agents_[agent].seen[part * agents() + other];
  }
  // Keys name flags: an address in global memory, or a place in shared memory (Block::flag).
  void release(u32 agent, u64 key, bool with_fence, bool wide = false);
  // Whether acquire(agent, key) could have an effect.
  bool has_flag(u64 key) const { return !flags_.empty() && flags_.contains(key); }
  void acquire(u32 agent, u64 key);
  void forget(u64 key) { flags_.erase(key); }
  // The clocks, since the start of the block, that a strong store of this agent publishes to other
  // blocks: what it had seen at its last wide fence, with the wide fences of agents that it comes
  // after. Returns false if there was none.
  bool published(u32 agent, std::vector<u32>& clocks) const;
  // Publishes clocks that an agent had seen earlier.
  void publish(u64 key, const std::vector<u32>& seen) { join(flag(key), seen); }

 private:
  // By lane, the lanes that received its value between the previous step and this one.
  struct Exchange {
    u32 step;
    u32 together;  // lanes that all reached each other
    std::array<u32, kLanes> reach;
  };
  struct Agent {
    std::vector<u32> seen, fenced,
        fenced_wide;  // clocks seen at the last fence, and at the last one for other blocks
    bool has_fenced = false, has_fenced_wide = false;
    mutable bool floors_are_known = false;  // whether the floors are up to date with `seen`
    mutable u32 floor = 0, async_floor = 0;
    u32 met = 0;
    u16 lane_order = 0;
    u32 step = 0, since = 0, access_since = 0;
    bool touched = false;             // an access was noted since this step began
    std::vector<Exchange> exchanges;  // those after `since`, by step
    std::vector<u32> begins;          // first step of each clock, without the block's first clock
  };

  const Agent& with_floors(u32 agent) const {
    const Agent& own = agents_[agent];
    if (own.floors_are_known) return own;
    own.floor = now(agent) - 1;
    for (u32 other = 0; other < agents(); ++other)
      if (other != agent) own.floor = std::min(own.floor, own.seen[other]);
    own.async_floor = own.floor;
    for (u32 each = agents(); each < 2 * agents(); ++each)
      own.async_floor = std::min(own.async_floor, own.seen[each]);
    own.floors_are_known = true;
    return own;
  }
  std::vector<u32>& flag(u64 key) {
    std::vector<u32>& clocks = flags_[key];
    if (clocks.empty()) clocks.resize(width_);
    return clocks;
  }
  void tick(u32 agent) {
    Agent& own = agents_[agent];
    own.seen[agent] += 1;
    own.floors_are_known = false;
    order_lanes(agent);
    own.begins.push_back(own.step);
  }
  void see(u32 agent, const std::vector<u32>& clocks) {
    join(agents_[agent].seen, clocks);
    agents_[agent].floors_are_known = false;
  }
  static void next_step(Agent& own) { own.lane_order += 1, own.step += 1, own.touched = false; }
  static void join(std::vector<u32>& into, const std::vector<u32>& from) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
  }

  std::vector<Agent> agents_;
  std::vector<std::vector<u32>> barriers_;
  std::unordered_map<u64, std::vector<u32>> flags_;
  u32 start_ = 0;
  std::size_t width_ = 0;  // length of seen()
};

}  // namespace workbench::ptx
