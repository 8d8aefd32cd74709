// What each warp is known to come after: vector clocks (C. Flanagan and S. Freund, *FastTrack*,
// 2009).
//
// The warps of a block, or of all blocks of a cluster, are agents, numbered through (Warp::agent).
// A warp's own clock grows whenever it publishes what it did: at a barrier, or when it fences and
// then stores, or swaps, a flag. Who waits at that barrier, or reads that flag with a strong
// access, has seen everything up to that clock. Rules, chosen so that correct programs are never
// accused: a release needs a fence (or .release) before the strong store or atomic, as the memory
// model demands; an acquire needs none; a failed atomic counts as both.
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
  static constexpr u32 kWarps = 32;  // of the largest block
  // What seen() has of each agent, one part after the other: all that it did, what a proxy fence
  // has made visible to the async proxy; then of its accesses to tensor memory the loads and the
  // stores that are complete, the products and copies that are, and those that other products and
  // copies come after.
  enum Part : u32 { all, async_proxy, tensor_loads, tensor_stores, products, issued_products };
  static constexpr u32 kParts = 2, kTensorParts = 6;
  static constexpr u32 kBarriers = 16;

  // `parts`: kParts, or kTensorParts for a kernel that uses tensor memory.
  void resize(u32 warps_per_block, u32 blocks, u32 parts);
  // Every warp begins with a clock of `start()`, later than all of earlier blocks, and has seen no
  // other warp's.
  void begin();

  u32 agents() const { return static_cast<u32>(agents_.size()); }
  u32 start() const { return start_; }
  u32 now(u32 agent) const { return agents_[agent].seen[agent]; }
  // What an agent has seen of each agent, part by part.
  const std::vector<u32>& seen(u32 agent) const { return agents_[agent].seen; }
  // A clock up to which a warp comes after all that any agent did, whichever the lanes.
  u32 floor(u32 agent) const { return with_floors(agent).floor; }
  // Likewise of what is also visible to the async proxy.
  u32 async_floor(u32 agent) const { return with_floors(agent).async_floor; }
  // Up to which clock an agent has seen another one: the first is 1, 0 is nothing.
  u32 since_start(u32 agent, u32 other) const { return agents_[agent].seen[other] + 1 - start_; }

  // Lanes of one warp go from step to step, counted from the start of the block. Accesses of
  // different lanes are ordered if one is of a step before since(), where something last ordered
  // them. Of the steps from there on only exchanges of values are known, which order nothing: what
  // a lane read before one has been read for whoever it reaches.
  u32 step(u32 agent) const { return agents_[agent].step; }
  u32 since(u32 agent) const { return agents_[agent].since; }
  // The step as records of shared memory have it: 16 bits, which go on from block to block.
  u16 lane_order(u32 agent) const { return agents_[agent].lane_order; }
  void order_lanes(u32 agent) {
    Agent& own = agents_[agent];
    next_step(own);
    own.since = own.step;
    own.exchanges.clear();
  }
  // An access of this agent is told of: the next exchange begins another step.
  void touch(u32 agent) { agents_[agent].touched = true; }
  // `lanes`, all of which are here, hand values to each other; `live`: those that have not exited.
  void exchange(u32 agent, u32 lanes, u32 live);
  // The lanes that have had values, at first or second hand, which `lane` handed on after a step
  // that is not before since(); with itself.
  u32 reached(u32 agent, u32 lane, u32 step) const;
  // Lanes of one warp wait for each other, as at bar.warp.sync. Accesses that only their own order
  // of execution orders, such as volatile ones, are those between which this number, met(), is the
  // same.
  void meet_lanes(u32 agent) {
    agents_[agent].met += 1;
    order_lanes(agent);
  }
  u32 met(u32 agent) const { return agents_[agent].met; }
  // The step of an agent with which it left a clock (since the start; 0 is none): what it did
  // before is part of that clock.
  u32 step_after(u32 agent, u32 clock) const {
    const std::vector<u32>& begins = agents_[agent].begins;
    return clock == 0 ? 0 : clock <= begins.size() ? begins[clock - 1] : UINT32_MAX;
  }

  // Barriers are numbered through, kBarriers for each block.
  void arrive(u32 agent, u32 barrier);
  void leave(u32 agent, u32 barrier);
  // What those who are at a barrier have done is known there up to this clock.
  u32 at_barrier(u32 barrier, u32 agent) const { return barriers_[barrier][agent]; }
  // Likewise what of that is also visible to the async proxy, by agent.
  const u32* async_at_barrier(u32 barrier) const { return &barriers_[barrier][agents()]; }
  void clear(u32 barrier) { std::fill(barriers_[barrier].begin(), barriers_[barrier].end(), 0); }

  // `wide`: for other blocks too.
  void fence(u32 agent, bool wide = false);
  // Publishes what an agent has seen until now, with no fence of its own.
  void hand_on(u32 agent, u64 key);
  // fence.proxy.async: all that the agent has seen may be read through the async proxy; with `own`
  // only what it did itself.
  void proxy_fence(u32 agent, bool own);
  // What the agent did of a part is complete: whoever comes after it comes after that too.
  void complete(u32 agent, std::initializer_list<Part> parts);
  // The same for those alone who come to know of a flag.
  void complete_for(u32 agent, u64 key, std::initializer_list<Part> parts);
  u32 seen_of(u32 agent, Part part, u32 other) const {
    return agents_[agent].seen[part * agents() + other];
  }
  // Flags are known by keys: an address in global memory, or a place in shared memory
  // (Block::flag).
  void release(u32 agent, u64 key, bool with_fence, bool wide = false);
  // Whether acquire(agent, key) would tell anything.
  bool has_flag(u64 key) const { return !flags_.empty() && flags_.contains(key); }
  void acquire(u32 agent, u64 key);
  void forget(u64 key) { flags_.erase(key); }
  // What a strong store of this agent hands on to other blocks: what it had seen when it made its
  // last wide fence, and that of each agent whose wide fence it comes after, in clocks since the
  // start of the block. False if there was none.
  bool published(u32 agent, std::vector<u32>& clocks) const;
  // Publishes what an agent had seen earlier.
  void publish(u64 key, const std::vector<u32>& seen) { join(flag(key), seen); }

 private:
  // By lane, those that it reached between the step before this one and this one.
  struct Exchange {
    u32 step;
    u32 together;  // lanes that all reached each other
    std::array<u32, kLanes> reach;
  };
  struct Agent {
    std::vector<u32> seen, fenced,
        fenced_wide;  // seen at the last fence, and at the last one for other blocks
    bool has_fenced = false, has_fenced_wide = false;
    mutable bool floors_are_known = false;  // as the floors, until `seen` changes
    mutable u32 floor = 0, async_floor = 0;
    u32 met = 0;
    u16 lane_order = 0;
    u32 step = 0, since = 0;
    bool touched = false;             // since this step began
    std::vector<Exchange> exchanges;  // after `since`, by step
    std::vector<u32> begins;          // the first step of each clock but the block's first
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
  std::size_t width_ = 0;  // of seen()
};

}  // namespace workbench::ptx
