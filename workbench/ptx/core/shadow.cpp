#include "shadow.hpp"

#include "warp.hpp"

namespace workbench::ptx {
namespace {

void report(Warp& warp, const Instruction& in, Problem problem, u32 lane, u32 address, u32 bytes, s32 other_pc, s32 other_thread) {
  Finding finding{.problem = problem, .pc = warp.block->pc_of(in), .other_pc = other_pc, .block = warp.block->index,
                  .thread = warp.thread(lane), .other_thread = other_thread, .address = address, .bytes = bytes};
  warp.block->note(finding);
}

}  // namespace

void Shadow::resize(u32 shared_bytes, u32 granule, u32 warps) {
  shift_ = static_cast<u32>(__builtin_ctz(granule));
  granules_.assign((shared_bytes >> shift_) + 1, Granule{});
  clocks.resize(warps);
}

void Shadow::drop_pending() {
  for (Granule& granule : granules_) granule.pending = -1;
}

Shadow::Asker Shadow::asker(const Warp& warp, const Instruction& in, u32 lane, bool strong) const {
  const u32 index = static_cast<u32>(warp.index);
  Access access;
  access.clock = clocks.now(index), access.pc = warp.block->pc_of(in);
  access.thread = static_cast<u16>(warp.thread(lane)), access.strong = strong, access.lane_order = clocks.lane_order(index);
  return {index, lane, clocks.seen(index), access, clocks.start()};
}

// `lanes`: those of the other access' warp that took part in it.
Shadow::Conflict Shadow::conflict(const Asker& who, const Access& other, u32 lanes) {
  const u32 warp = other.thread / kLanes;
  if (warp != who.warp) return other.clock > who.seen[warp] ? Conflict::warps : Conflict::none;
  if (other.clock < who.start || other.lane_order != who.access.lane_order) return Conflict::none;
  return lanes & ~(1u << who.lane) ? Conflict::lanes : Conflict::none;
}

// A plain access races with any write, a strong one only with a plain write. Who stored the same bytes reads its own.
Shadow::Conflict Shadow::with_write(const Asker& who, const Granule& g) {
  const Access& other = who.access.strong ? g.weak : g.write;
  const bool same = other.clock == g.weak.clock && other.thread == g.weak.thread;
  const u32 lanes = same ? g.weak_lanes : 1u << other.thread % kLanes;
  if (lanes >> who.lane & 1 && other.thread / kLanes == who.warp) return Conflict::none;
  if (same && other.thread / kLanes != who.warp && (g.weak_warps >> who.warp & 1)) return Conflict::none;
  return conflict(who, other, lanes);
}

Shadow::Conflict Shadow::with_reads(const Asker& who, const Granule& g, const Access*& other) {
  Conflict found = Conflict::none;
  if (!(who.access.strong && g.read.strong)) other = &g.read, found = conflict(who, g.read, g.read_lanes);
  if (found == Conflict::none && !(who.access.strong && g.other.strong)) {
    other = &g.other;
    found = conflict(who, g.other, 1u << g.other.thread % kLanes);
  }
  return found;
}

// A reader that the new one comes after may be forgotten: what is ordered after the new one is ordered after both.
void Shadow::record_read(const Asker& who, Granule& g) {
  const Access& mine = who.access;
  const u32 bit = 1u << who.lane;
  if (g.read.thread / kLanes == who.warp && g.read.clock >= who.start) {
    const bool same = g.read.clock == mine.clock && g.read.lane_order == mine.lane_order;
    g.read_lanes = same ? g.read_lanes | bit : bit;
    const bool strong = mine.strong && (!same || g.read.strong);
    if (!same || who.lane == g.read.thread % kLanes) g.read = mine;
    g.read.strong = strong;
    return;
  }
  if (conflict(who, g.read, g.read_lanes) != Conflict::none) {
    if (g.other.thread / kLanes != who.warp && conflict(who, g.other, 0) == Conflict::none) g.other = g.read;
    else if (g.other.thread / kLanes == who.warp) g.other = g.read;
    else return;
  }
  g.read = mine, g.read_lanes = bit;
}

void Shadow::record_write(const Asker& who, Granule& g) {
  g.write = who.access;
  if (who.access.strong) return;
  g.weak = who.access, g.weak_warps = 1u << who.warp, g.weak_lanes = 1u << who.lane;
}

namespace {

void report_pending(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes, s32 pending) {
  report(warp, in, Problem::pending_copy, lane, address, bytes, pending >> 10, pending & 1023);
}

constexpr Problem problem_of(bool lanes) { return lanes ? Problem::warp_race : Problem::shared_race; }

}  // namespace

void Shadow::read(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes, bool strong) {
  const Asker who = asker(warp, in, lane, strong);
  bool reported = false;
  for (u32 i = address >> shift_; i <= (address + bytes - 1) >> shift_; ++i) {
    Granule& g = granules_[i];
    if (!reported) {
      const bool pending = g.pending >= 0;
      if (pending) {
        report_pending(warp, in, lane, address, bytes, g.pending);
        reported = true;
      } else if (g.write.clock < who.start) {
        report(warp, in, Problem::uninitialised_shared, lane, address, bytes, -1, -1);
        reported = true;
      } else if (const Conflict found = with_write(who, g); found != Conflict::none) {
        const Access& other = strong ? g.weak : g.write;
        report(warp, in, problem_of(found == Conflict::lanes), lane, address, bytes, other.pc, other.thread);
        reported = true;
      }
    }
    record_read(who, g);
  }
}

void Shadow::write(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes, bool strong, bool changes) {
  const Asker who = asker(warp, in, lane, strong);
  bool reported = false;
  for (u32 i = address >> shift_; i <= (address + bytes - 1) >> shift_; ++i) {
    Granule& g = granules_[i];
    if (!reported && g.pending >= 0) {
      report_pending(warp, in, lane, address, bytes, g.pending);
      reported = true;
    }
    if (!changes && g.write.clock >= who.start) {
      if (conflict(who, g.weak, ~0u) == Conflict::none) continue;
      g.weak_warps |= 1u << who.warp;
      if (g.weak.thread / kLanes == who.warp) g.weak_lanes |= 1u << lane;
      continue;
    }
    const Access* other = strong ? &g.weak : &g.write;
    Conflict found = reported ? Conflict::none : with_write(who, g);
    // Others may have stored the same bytes as the last writer, and this one something else.
    if (!reported && found == Conflict::none && !strong && (g.weak_warps & ~(1u << who.warp)) && g.weak_warps >> who.warp & 1)
      found = g.weak.clock == who.access.clock || g.weak.clock > who.seen[g.weak.thread / kLanes] ? Conflict::warps : Conflict::none;
    if (!reported && found == Conflict::none) found = with_reads(who, g, other);
    if (found != Conflict::none) {
      report(warp, in, problem_of(found == Conflict::lanes), lane, address, bytes, other->pc, other->thread);
      reported = true;
    }
    record_write(who, g);
  }
}

// The copy may land at any time from now on: whoever still reads or wrote these bytes races with it.
void Shadow::copy_issued(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes, bool changes) {
  const Asker who = asker(warp, in, lane, false);
  bool reported = false;
  for (u32 i = address >> shift_; i <= (address + bytes - 1) >> shift_; ++i) {
    Granule& g = granules_[i];
    if (!reported && changes) {
      const Access* other = &g.write;
      Conflict found = with_write(who, g);
      if (found == Conflict::none) found = with_reads(who, g, other);
      if (found != Conflict::none) {
        report(warp, in, problem_of(found == Conflict::lanes), lane, address, bytes, other->pc, other->thread);
        reported = true;
      }
    }
    g.pending = who.access.pc << 10 | who.access.thread;
  }
}

void Shadow::copy_landed(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes, bool changes) {
  const Asker who = asker(warp, in, lane, false);
  for (u32 i = address >> shift_; i <= (address + bytes - 1) >> shift_; ++i) {
    Granule& g = granules_[i];
    if (changes && g.pending < 0 && with_write(who, g) != Conflict::none)
      report(warp, in, Problem::shared_race, lane, address, bytes, g.write.pc, g.write.thread);
    g.pending = -1;
    if (!changes && g.write.clock >= who.start && conflict(who, g.weak, ~0u) != Conflict::none) {
      g.weak_warps |= 1u << who.warp;
      continue;
    }
    record_write(who, g);
  }
}

}  // namespace workbench::ptx
