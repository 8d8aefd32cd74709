#include "checks/source_watch.hpp"

#include <algorithm>

#include "memory/cluster.hpp"

namespace workbench::ptx {

void SourceWatch::end(const Block& block) {
  for (Warp& warp : *block.warps)
    for (u32 i = 0; i < warp.copies.size(); ++i) remove(warp.copies[i]);
  for (OfBlock& one : blocks_) {
    if (one.block != &block) continue;
    for (; !one.loads.empty(); one.loads.pop_front()) let_go();
  }
}

void SourceWatch::keep(Load load) {
  if (load.ranges.empty()) return;
  load.low = ~u64{0}, load.high = 0;
  for (const Range& range : load.ranges) {
    load.low = std::min(load.low, range.address);
    load.high = std::max(load.high, range.address + range.bytes);
  }
  for (OfBlock& one : blocks_) {
    if (one.block != load.home) continue;
    if (one.loads.size() == kLoads) {
      one.loads.pop_front();
      let_go();
    }
    hold(load.low, load.high);
    one.loads.push_back(std::move(load));
    return;
  }
}

void SourceWatch::landed(Warp& warp, const PendingCopy& copy, u32 lanes, s32 landing) {
  Load load{warp.block, warp.block->index, copy.pc, landing, 0, 0, {}};
  const CopyDetail& detail = warp.copies.detail(copy);
  PTX_FOR_EACH_LANE (lane, lanes & copy.reading)
    load.ranges.push_back({detail.address[lane], copy.read_by(lane), warp.thread(lane)});
  keep(std::move(load));
}

void SourceWatch::add(const BulkCopy& copy, const Block& home, s32 landing) {
  Load load{&home, copy.warp->block->index, copy.pc, landing, 0, 0, {}};
  const s32 thread = copy.warp->thread(copy.lane);
  for (const BulkPiece& piece : copy.pieces) {
    if (!piece.host) continue;
    if (!load.ranges.empty() &&
        load.ranges.back().address + load.ranges.back().bytes == piece.address)
      load.ranges.back().bytes += piece.bytes;
    else
      load.ranges.push_back({piece.address, piece.bytes, thread});
  }
  keep(std::move(load));
}

bool SourceWatch::is_over(const Load& load, const Warp& warp, u32 lane,
                          const Published& published) {
  for (const Block* each : warp.block->cluster->blocks)
    if (each == load.home) return each->shadow->has_landed_for(warp, lane, load.landing);
  const auto& blocks = load.home->cluster->blocks;
  const u32 warps = static_cast<u32>(load.home->warps->size());
  return load.home->shadow->any_wait(load.landing, [&](u32 agent, u32 step) {
    return published(blocks[agent / warps]->index, agent % warps, step);
  });
}

void SourceWatch::check(Warp& warp, const Instruction& in, const u64* addresses, u32 lanes,
                        u32 bytes, int by, const Published& published) const {
  u64 low = ~u64{0}, high = 0;
  PTX_FOR_EACH_LANE (lane, lanes) {
    low = std::min(low, addresses[lane]);
    high = std::max(high, addresses[lane] + bytes);
  }
  // Reports the lanes that overlap a range, unless the copy is over for them.
  const auto meet = [&](u64 address, u32 size, s32 pc, s64 block, s32 thread, auto over) {
    if (address >= high || address + size <= low) return;
    PTX_FOR_EACH_LANE (lane, lanes) {
      const u32 writer = by < 0 ? lane : static_cast<u32>(by);
      if (address >= addresses[lane] + bytes || address + size <= addresses[lane] || over(writer))
        continue;
      report(warp, in, writer, addresses[lane], bytes, pc, block, thread);
      lanes &= ~(1u << lane);
    }
  };
  for (const OfBlock& one : blocks_) {
    for (Warp& other : *one.block->warps) {
      for (u32 i = 0; i < other.copies.size(); ++i) {
        const PendingCopy& copy = other.copies[i];
        if (!copy.reading) continue;
        const CopyDetail& detail = other.copies.detail(copy);
        if (detail.low >= high || detail.high <= low) continue;
        PTX_FOR_EACH_LANE (lane, copy.mask & copy.reading)
          meet(detail.address[lane], copy.read_by(lane), copy.pc, one.block->index,
               other.thread(lane), [](u32) { return false; });
      }
    }
    for (const Load& load : one.loads) {
      if (load.low >= high || load.high <= low) continue;
      for (const Range& range : load.ranges)
        meet(range.address, range.bytes, load.pc, load.asked_by, range.thread,
             [&](u32 lane) { return is_over(load, warp, lane, published); });
    }
  }
}

void SourceWatch::report(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes,
                         s32 pc, s64 block, s32 thread) {
  Block& writer = *warp.block;
  const bool inside = block == writer.index;
  writer.note({.problem = Problem::pending_source,
               .pc = writer.pc_of(in),
               .other_pc = pc,
               .block = writer.index,
               .thread = warp.thread(lane),
               .other_thread = inside ? thread : -1,
               .address = address,
               .bytes = bytes,
               .other_block = inside ? -1 : block});
}

}  // namespace workbench::ptx
