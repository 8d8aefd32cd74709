// How the shadow of shared memory visits granules, and what it records in them.
#pragma once
#include "checks/shadow.hpp"
#include "warp.hpp"

namespace workbench::ptx {

// The record of the 16 bytes if they were only ever accessed as a whole; null for other accesses.
[[gnu::always_inline]] inline Shadow::Granule* Shadow::whole_unit(u32 address, u32 bytes) {
  return bytes == 1u << kUnitShift && !apart_[address >> kUnitShift]
             ? &units_[address >> kUnitShift]
             : nullptr;
}

template <class F>
inline void Shadow::for_each(u32 address, u32 bytes, bool joins, const F& function) {
  if (Granule* unit = whole_unit(address, bytes)) return function(*unit);
  const u32 end = address + bytes;
  for (u32 unit = address >> kUnitShift; unit << kUnitShift < end; ++unit) {
    const u32 first = std::max(address, unit << kUnitShift),
              last = std::min(end, (unit + 1) << kUnitShift);
    const bool whole = last - first == 1u << kUnitShift;
    Granule* record = &units_[unit];
    u32 count = 1;
    if (apart_[unit] || !(whole || per_unit_ == 1)) {
      if (!apart_[unit]) take_apart(unit);
      record = &granules_[first >> shift_], count = ((last - 1) >> shift_) - (first >> shift_) + 1;
    }
    for (; count; --count) function(*record++);
    if (whole && joins && apart_[unit]) join(unit);
  }
}

inline void Shadow::set_lanes(Asker& who, const Warp& warp, u32 lanes) const {
  who.lanes = lanes, who.lane = static_cast<u32>(first_lane(lanes)), who.noted = false;
  who.access.by = (who.access.by & ~0x7fffu) | (warp.agent * kLanes + who.lane);
}

inline void Shadow::record_write(const Asker& who, Granule& g) {
  who.record(g.write);
  if (who.access.strong()) return;
  who.record(g.weak), g.weak_warps = who.bit, g.weak_lanes = 1u << who.lane;
}

[[gnu::always_inline]] inline bool Shadow::read_stored(const Asker& who, Granule& g) const {
  if (g.write.clock <= who.floor && g.read.clock <= who.floor) {
    who.record(g.read), g.read_lanes = who.lanes;
    return true;
  }
  const u32 writer = g.write.thread() / kLanes;
  if (writer != who.warp ? g.write.clock > who.seen[writer] : unordered(who, g.write)) return false;
  const u32 reader = g.read.thread() / kLanes;
  if (reader == who.warp) {
    if (g.read.clock == who.access.clock && g.read.lane_order() == who.access.lane_order()) {
      g.read_lanes |= who.lanes, g.read.weaken();
      return true;
    }
    if (g.read_lanes & ~who.lanes && unordered(who, g.read)) return false;
  } else if (g.read.clock > who.seen[reader]) {
    const u32 other = g.other.thread() / kLanes;
    if (other != who.warp && g.other.clock > who.seen[other]) return true;
    g.other = g.read;
  }
  who.record(g.read), g.read_lanes = who.lanes;
  return true;
}

}  // namespace workbench::ptx
