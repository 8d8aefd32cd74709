#include "replicas.hpp"

#include <algorithm>

namespace workbench::ptx {

void Replicas::begin_block(std::size_t instructions, std::size_t warps) {
  place_.resize(instructions), loads_.resize(warps);
  for (std::vector<Load>& loads : loads_)
    for (Load& load : loads) load.mask = 0;
}

void Replicas::load(s32 pc, u32 warp, const u64* addresses, u32 mask) {
  u32& place = place_[static_cast<std::size_t>(pc)];
  if (!place) place = ++places_;
  std::vector<Load>& loads = loads_[warp];
  if (loads.size() < place) loads.resize(places_);
  Load& latest = loads[place - 1];
  latest.pc = pc, latest.mask = mask;
  std::copy(addresses, addresses + kLanes, latest.address);
}

void Replicas::store(s32 pc, u32 warp, const u64* addresses, u32 mask) {
  const u32 first = static_cast<u32>(first_lane(mask));
  for (const Load& load : loads_[warp]) {
    if (mask & ~load.mask || load.address[first] != addresses[first]) continue;
    u32 alike = 0;
    PTX_FOR_EACH_LANE(lane, mask) alike |= (load.address[lane] == addresses[lane] ? 1u : 0u) << lane;
    if (alike == mask) in_place_.insert(pair(pc, load.pc));
  }
}

void Replicas::pass(s32 pc, u32 warp, u64 sector, u32 bytes, Lanes lanes) {
  const u64 place = key(pc, warp, sector);
  if (!suspicions_.empty()) {
    auto [from, to] = suspicions_.equal_range(place);
    while (from != to) {
      Pass& read = from->second.read;
      const bool copies = read.at(pc, warp, sector) && in_place_.contains(pair(pc, from->second.load));
      const u32 both = copies ? read.bytes & bytes : 0;
      read.bytes &= ~(both & ~read.lanes.beyond(lanes, both));
      from = read.bytes ? std::next(from) : suspicions_.erase(from);
    }
  }
  auto [from, to] = passes_.equal_range(place);
  for (; from != to; ++from) {
    Pass& known = from->second;
    if (!known.at(pc, warp, sector) || known.lanes != lanes) continue;
    known.bytes |= bytes;
    return;
  }
  passes_.emplace(place, Pass{pc, warp, sector, bytes, lanes});
}

u32 Replicas::excused(s32 pc, s32 load, u32 warp, u64 sector, u32 bytes, Lanes lanes) const {
  u32 found = 0;
  if (!in_place_.contains(pair(pc, load))) return found;
  auto [from, to] = passes_.equal_range(key(pc, warp, sector));
  for (; from != to; ++from) {
    const Pass& known = from->second;
    const u32 both = known.at(pc, warp, sector) ? known.bytes & bytes : 0;
    found |= both & ~lanes.beyond(known.lanes, both);
  }
  return found;
}

void Replicas::suspect(s32 pc, s32 load, u32 warp, u64 sector, u32 bytes, Lanes lanes, const Finding& finding) {
  if (suspicions_.size() >= kMost) return;
  suspicions_.emplace(key(pc, warp, sector), Suspicion{{pc, warp, sector, bytes, lanes}, load, finding});
}

void Replicas::end_block(FindingList& findings) {
  for (const auto& [place, suspicion] : suspicions_) findings.add(suspicion.finding);
  suspicions_.clear(), passes_.clear();
}

}  // namespace workbench::ptx
