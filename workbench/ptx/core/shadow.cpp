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

void Shadow::resize(u32 shared_bytes, u32 granule) {
  shift_ = static_cast<u32>(__builtin_ctz(granule));
  granules_.assign((shared_bytes >> shift_) + 1, Granule{});
}

void Shadow::drop_pending() {
  for (Granule& granule : granules_) granule.pending = false;
}

// A plain access races with any write of another warp since the barrier, a strong one only with a plain write.
bool Shadow::races_with_write(const Granule& g, u16 thread, bool strong) const {
  const u32 epoch = strong ? g.weak_epoch : g.write_epoch;
  const u16 writer = strong ? g.weak_thread : g.write_thread;
  return epoch == epoch_ && writer / kLanes != thread / kLanes;
}

void Shadow::read(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes, bool strong) {
  const u16 thread = static_cast<u16>(warp.thread(lane));
  const s32 pc = warp.block->pc_of(in);
  bool reported = false;
  for (u32 i = address >> shift_; i <= (address + bytes - 1) >> shift_; ++i) {
    Granule& g = granules_[i];
    if (!reported && g.write_epoch < block_start_) {
      report(warp, in, g.pending ? Problem::pending_copy : Problem::uninitialised_shared, lane, address, bytes,
             g.pending ? g.pending_pc : -1, -1);
      reported = true;
    } else if (!reported && g.pending) {
      report(warp, in, Problem::pending_copy, lane, address, bytes, g.pending_pc, g.write_thread);
      reported = true;
    } else if (!reported && races_with_write(g, thread, strong)) {
      report(warp, in, Problem::shared_race, lane, address, bytes, strong ? g.weak_pc : g.write_pc,
             strong ? g.weak_thread : g.write_thread);
      reported = true;
    }
    if (g.read_epoch != epoch_) {
      g.read_epoch = epoch_, g.read_thread = thread, g.read_pc = pc, g.read_strong = strong, g.other_read_thread = kNobody;
    } else if (g.read_thread / kLanes != thread / kLanes) {
      g.other_read_thread = thread, g.other_read_pc = pc, g.read_strong &= strong;
    } else {
      g.read_strong &= strong;
    }
  }
}

void Shadow::write(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes, bool strong) {
  const u16 thread = static_cast<u16>(warp.thread(lane));
  const s32 pc = warp.block->pc_of(in);
  bool reported = false;
  for (u32 i = address >> shift_; i <= (address + bytes - 1) >> shift_; ++i) {
    Granule& g = granules_[i];
    if (!reported && g.pending) {
      report(warp, in, Problem::pending_copy, lane, address, bytes, g.pending_pc, g.write_thread);
      reported = true;
    }
    if (!reported && races_with_write(g, thread, strong)) {
      report(warp, in, Problem::shared_race, lane, address, bytes, strong ? g.weak_pc : g.write_pc,
             strong ? g.weak_thread : g.write_thread);
      reported = true;
    }
    if (!reported && g.read_epoch == epoch_ && !(strong && g.read_strong)) {
      if (g.read_thread / kLanes != thread / kLanes) {
        report(warp, in, Problem::shared_race, lane, address, bytes, g.read_pc, g.read_thread);
        reported = true;
      } else if (g.other_read_thread != kNobody) {
        report(warp, in, Problem::shared_race, lane, address, bytes, g.other_read_pc, g.other_read_thread);
        reported = true;
      }
    }
    g.write_epoch = epoch_, g.write_thread = thread, g.write_pc = pc;
    if (!strong) g.weak_epoch = epoch_, g.weak_thread = thread, g.weak_pc = pc;
  }
}

// The copy may land at any time from now on: whoever still reads or wrote these bytes since the barrier races with it.
void Shadow::copy_issued(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes) {
  const u16 thread = static_cast<u16>(warp.thread(lane));
  const s32 pc = warp.block->pc_of(in);
  bool reported = false;
  for (u32 i = address >> shift_; i <= (address + bytes - 1) >> shift_; ++i) {
    Granule& g = granules_[i];
    if (!reported && g.write_epoch == epoch_ && g.write_thread / kLanes != thread / kLanes) {
      report(warp, in, Problem::shared_race, lane, address, bytes, g.write_pc, g.write_thread);
      reported = true;
    }
    if (!reported && g.read_epoch == epoch_ && (g.read_thread / kLanes != thread / kLanes || g.other_read_thread != kNobody)) {
      const bool first = g.read_thread / kLanes != thread / kLanes;
      report(warp, in, Problem::shared_race, lane, address, bytes, first ? g.read_pc : g.other_read_pc,
             first ? g.read_thread : g.other_read_thread);
      reported = true;
    }
    g.pending = true, g.pending_pc = pc;
    g.write_thread = thread;
  }
}

void Shadow::copy_landed(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes) {
  const u16 thread = static_cast<u16>(warp.thread(lane));
  const s32 pc = warp.block->pc_of(in);
  for (u32 i = address >> shift_; i <= (address + bytes - 1) >> shift_; ++i) {
    Granule& g = granules_[i];
    if (!g.pending && g.write_epoch == epoch_ && g.write_thread / kLanes != thread / kLanes)
      report(warp, in, Problem::shared_race, lane, address, bytes, g.write_pc, g.write_thread);
    g.pending = false;
    g.write_epoch = epoch_, g.write_thread = thread, g.write_pc = pc;
    g.weak_epoch = epoch_, g.weak_thread = thread, g.weak_pc = pc;
  }
}

}  // namespace workbench::ptx
