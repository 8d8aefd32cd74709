#include "clocks.hpp"

namespace workbench::ptx {

void Clocks::begin_block() {
  u32 latest = start_;
  for (u32 w = 0; w < warps_.size(); ++w) latest = std::max(latest, now(w));
  start_ = latest + 1;
  for (u32 w = 0; w < warps_.size(); ++w) {
    std::fill(std::begin(warps_[w].seen), std::end(warps_[w].seen), latest);
    warps_[w].seen[w] = start_;
    warps_[w].has_fenced = false;
    warps_[w].lane_order += 1;
    warps_[w].step = 0, warps_[w].begins.clear();
  }
  for (u32 barrier = 0; barrier < kBarriers; ++barrier) clear(barrier);
  flags_.clear();
}

void Clocks::arrive(u32 warp, u32 barrier) {
  join(barriers_[barrier], warps_[warp].seen);
  tick(warp);
}

void Clocks::leave(u32 warp, u32 barrier) { join(warps_[warp].seen, barriers_[barrier]); }

void Clocks::fence(u32 warp) {
  PerWarp& own = warps_[warp];
  std::copy(std::begin(own.seen), std::end(own.seen), own.fenced);
  own.has_fenced = true;
  tick(warp);
}

void Clocks::hand_on(u32 warp, u64 address) {
  publish(address, warps_[warp].seen);
  tick(warp);
}

void Clocks::proxy_fence(u32 warp) {
  u32* seen = warps_[warp].seen;
  for (u32 i = 0; i < kWarps; ++i) seen[kWarps + i] = std::max(seen[kWarps + i], seen[i]);
  tick(warp);
}

void Clocks::release(u32 warp, u64 address, bool with_fence) {
  if (with_fence) fence(warp);
  if (warps_[warp].has_fenced) join(flags_[address].published, warps_[warp].fenced);
}

bool Clocks::published(u32 warp, u32* clocks) const {
  bool any = false;
  std::fill(clocks, clocks + kWarps, 0);
  for (u32 w = 0; w < warps_.size(); ++w) {
    const PerWarp& other = warps_[w];
    if (!other.has_fenced || other.fenced[w] > warps_[warp].seen[w]) continue;
    any = true;
    for (u32 i = 0; i < kWarps; ++i) clocks[i] = std::max(clocks[i], other.fenced[i] + 1 - start_);
  }
  return any;
}

void Clocks::acquire(u32 warp, u64 address) {
  if (flags_.empty()) return;
  const auto flag = flags_.find(address);
  if (flag != flags_.end()) join(warps_[warp].seen, flag->second.published);
}

}  // namespace workbench::ptx
