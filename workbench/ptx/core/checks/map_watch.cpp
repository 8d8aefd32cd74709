#include "checks/map_watch.hpp"

#include <algorithm>

#include "memory/cluster.hpp"
#include "memory/tensor_map.hpp"

namespace workbench::ptx {
namespace {

constexpr u32 kBytes = kMapBytes;

// The block of an index if it runs in the cluster of `block`; null for other clusters, whose worker
// may be another one.
const Block* find_in_cluster(const Block& block, s64 index) {
  for (const Block* each : block.cluster->blocks)
    if (each->index == index) return each;
  return nullptr;
}

}  // namespace

MapWatch::Key MapWatch::key_of(const Warp& warp, u64 address) {
  return {address, address >> 56 == kSharedWindow >> 56 ? warp.block->index : -1};
}

// The map that contains an address, or null.
MapWatch::Map* MapWatch::find(const Warp& warp, u64 address) {
  const u64 half = address & ~u64{kBytes / 2 - 1};
  for (const u64 begin : {half, half - kBytes / 2}) {
    const auto known = maps_.find(key_of(warp, begin));
    if (known != maps_.end()) return &known->second;
  }
  return nullptr;
}

bool MapWatch::knows(const Warp& warp, const Map& map) {
  const std::vector<u32>& seen = warp.block->shadow->clocks.seen(warp.agent);
  return std::any_of(map.acquired.begin(), map.acquired.end(), [&](const Acquired& each) {
    return each.version == map.version && find_in_cluster(*warp.block, each.block) &&
           (each.agent == warp.agent || each.clock <= seen[each.agent]);
  });
}

void MapWatch::copied(Warp& warp, const Instruction& in, u32 lane, u64 address, const Block& home,
                      s32 landing) {
  // Parameters cannot change.
  if (address >> 56 == kParamWindow >> 56) return;
  Block& block = *warp.block;
  const std::lock_guard lock(mutex_);
  any_ = true;
  Map* known = find(warp, address);
  Map& map = known ? *known : maps_[key_of(warp, address)];
  if (map.version && !knows(warp, map)) {
    Finding finding{.problem = Problem::unknown_map,
                    .pc = block.pc_of(in),
                    .other_pc = map.pc,
                    .block = block.index,
                    .thread = warp.thread(lane),
                    .other_thread = map.block == block.index ? map.thread : -1,
                    .address = address,
                    .bytes = kBytes,
                    .other_block = map.block == block.index ? -1 : map.block};
    finding.text = map.released == map.version
                       ? "no fence.proxy.tensormap::generic.acquire of it comes between"
                       : "no fence.proxy.tensormap::generic.release follows that change";
    block.note(finding);
  }
  // Warp::bulk_stores has the stores under way.
  if (landing == Shadow::kNoLanding) return;
  std::erase_if(map.uses,
                [&](const Use& use) { return use.block == home.index && use.landing == landing; });
  if (map.uses.size() == kUses) map.uses.erase(map.uses.begin());
  map.uses.push_back({home.index, block.pc_of(in), landing, warp.thread(lane)});
}

void MapWatch::report_use(Warp& warp, const Instruction& in, u32 lane, u64 address, s32 pc,
                          s32 thread) {
  Block& block = *warp.block;
  block.note({.problem = Problem::map_in_use,
              .pc = block.pc_of(in),
              .other_pc = pc,
              .block = block.index,
              .thread = warp.thread(lane),
              .other_thread = thread,
              .address = address,
              .bytes = kBytes});
}

void MapWatch::changed(Warp& warp, const Instruction& in, u32 lane, u64 address, bool released) {
  Block& block = *warp.block;
  const std::lock_guard lock(mutex_);
  any_ = true;
  Map* known = find(warp, address);
  Map& map = known ? *known : maps_[key_of(warp, address)];
  for (const Use& use : map.uses) {
    const Block* home = find_in_cluster(block, use.block);
    if (!home || home->shadow->has_landed_for(warp, lane, use.landing)) continue;
    report_use(warp, in, lane, address, use.pc, use.thread);
    break;
  }
  for (const Block* each : block.cluster->blocks)
    for (const Warp& other : *each->warps)
      for (const BulkCopy& copy : other.bulk_stores)
        if (copy.map && !copy.released && find(other, copy.map) == &map)
          report_use(warp, in, lane, address, copy.pc, other.thread(copy.lane));
  map.version += 1;
  map.pc = block.pc_of(in);
  map.block = block.index;
  map.thread = warp.thread(lane);
  if (released) map.released = map.version;
  map.acquired.clear();
}

void MapWatch::stored(Warp& warp, const Instruction& in, const u64* addresses, u32 mask) {
  if (!any_) return;
  PTX_FOR_EACH_LANE (lane, mask) {
    bool here;
    {
      const std::lock_guard lock(mutex_);
      here = find(warp, addresses[lane]);
    }
    if (here) changed(warp, in, lane, addresses[lane], false);
  }
}

void MapWatch::release(const Warp& warp) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, map] : maps_)
    if (map.block == warp.block->index) map.released = map.version;
}

void MapWatch::acquire(const Warp& warp, u64 address) {
  const std::lock_guard lock(mutex_);
  Map* map = find(warp, address);
  if (!map || !map->version) return;
  map->acquired.push_back(
      {warp.block->index, warp.agent, warp.block->shadow->clocks.now(warp.agent), map->released});
}

}  // namespace workbench::ptx
