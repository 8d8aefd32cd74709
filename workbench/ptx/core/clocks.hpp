// What each warp of a block is known to come after: vector clocks (C. Flanagan and S. Freund, *FastTrack*, 2009).
//
// A warp's own clock grows whenever it publishes what it did: at a barrier, or when it fences and then stores, or swaps,
// a flag. Who waits at that barrier, or reads that flag with a strong access, has seen everything up to that clock.
// Rules, chosen so that correct programs are never accused: a release needs a fence (or .release) before the strong
// store or atomic, as the memory model demands; an acquire needs none; a failed atomic counts as both.
#pragma once
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

class Clocks {
 public:
  static constexpr u32 kWarps = 32;  // of the largest block
  // What a warp has seen of each warp; then, from kWarps on, what of that a proxy fence has made visible to the async proxy.
  static constexpr u32 kSeen = 2 * kWarps;
  static constexpr u32 kBarriers = 16;

  void resize(u32 warps) { warps_.resize(warps); }
  // Every warp begins with a clock of `start()`, later than all of earlier blocks, and has seen no other warp's.
  void begin_block();

  u32 start() const { return start_; }
  u32 now(u32 warp) const { return warps_[warp].seen[warp]; }
  const u32* seen(u32 warp) const { return warps_[warp].seen; }
  // A clock up to which a warp comes after all that any warp of its block did, whichever the lanes.
  u32 floor(u32 warp) const {
    u32 floor = now(warp) - 1;
    for (u32 w = 0; w < warps_.size(); ++w)
      if (w != warp) floor = std::min(floor, warps_[warp].seen[w]);
    return floor;
  }
  // Up to which clock a warp has seen another one of its block: its first is 1, 0 is nothing.
  u32 since_start(u32 warp, u32 other) const { return warps_[warp].seen[other] + 1 - start_; }

  // Lanes of one warp: accesses of different lanes are ordered if this number changed in between.
  u16 lane_order(u32 warp) const { return warps_[warp].lane_order; }
  void order_lanes(u32 warp) { ++warps_[warp].lane_order, ++warps_[warp].step; }
  // Likewise, from 0 at the start of the block.
  u32 step(u32 warp) const { return warps_[warp].step; }
  // The step of a warp with which it left a clock (since the start; 0 is none): what it did before is part of that clock.
  u32 step_after(u32 warp, u32 clock) const {
    const std::vector<u32>& begins = warps_[warp].begins;
    return clock == 0 ? 0 : clock <= begins.size() ? begins[clock - 1] : UINT32_MAX;
  }

  void arrive(u32 warp, u32 barrier);
  void leave(u32 warp, u32 barrier);
  void clear(u32 barrier) { std::fill(barriers_[barrier], barriers_[barrier] + kSeen, 0); }

  void fence(u32 warp);
  // Publishes what a warp has seen until now, with no fence of its own.
  void hand_on(u32 warp, u64 address);
  // fence.proxy.async: all that the warp has seen may be read through the async proxy.
  void proxy_fence(u32 warp);
  void release(u32 warp, u64 address, bool with_fence);
  void acquire(u32 warp, u64 address);
  // What a strong store of this warp hands on: what it had seen when it fenced last, and likewise each warp whose fence it
  // comes after, in clocks since the start of the block. False if there was no fence.
  bool published(u32 warp, u32* clocks) const;
  // Publishes what a warp had seen earlier.
  void publish(u64 address, const u32* seen) { join(flags_[address].published, seen); }

 private:
  struct PerWarp {
    u32 seen[kSeen] = {};
    u32 fenced[kSeen] = {};  // seen at the last fence
    bool has_fenced = false;
    u16 lane_order = 0;
    u32 step = 0;
    std::vector<u32> begins;  // the first step of each clock but the block's first
  };
  struct Flag {
    u32 published[kSeen] = {};
  };

  void tick(u32 warp) {
    PerWarp& own = warps_[warp];
    own.seen[warp] += 1;
    order_lanes(warp);
    own.begins.push_back(own.step);
  }
  static void join(u32* into, const u32* from) {
    for (u32 i = 0; i < kSeen; ++i) into[i] = std::max(into[i], from[i]);
  }

  std::vector<PerWarp> warps_;
  u32 barriers_[kBarriers][kSeen] = {};
  std::unordered_map<u64, Flag> flags_;
  u32 start_ = 0;
};

}  // namespace workbench::ptx
