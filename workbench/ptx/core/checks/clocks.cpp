#include "checks/clocks.hpp"

namespace workbench::ptx {

void Clocks::resize(u32 warps_per_block, u32 blocks, u32 parts) {
  const std::size_t width = parts * std::size_t{warps_per_block} * blocks;
  width_ = width;
  agents_.resize(std::size_t{warps_per_block} * blocks);
  for (Agent& agent : agents_) {
    agent.seen.assign(width, 0);
    agent.fenced.assign(width, 0);
    agent.fenced_wide.assign(width, 0);
  }
  barriers_.assign(std::size_t{kBarriers} * blocks, std::vector<u32>(width));
}

void Clocks::begin() {
  u32 latest = start_;
  for (u32 agent = 0; agent < agents(); ++agent) latest = std::max(latest, now(agent));
  start_ = latest + 1;
  for (u32 agent = 0; agent < agents(); ++agent) {
    Agent& own = agents_[agent];
    std::fill(own.seen.begin(), own.seen.end(), latest);
    own.seen[agent] = start_;
    own.floors_are_known = false;
    own.has_fenced = own.has_fenced_wide = false;
    own.lane_order += 1;
    own.step = own.since = own.access_since = 0;
    own.touched = false;
    own.exchanges.clear();
    own.begins.clear();
  }
  for (std::vector<u32>& barrier : barriers_) std::fill(barrier.begin(), barrier.end(), 0);
  flags_.clear();
}

void Clocks::exchange(u32 agent, u32 lanes, u32 live) {
  // Limits on the steps that nothing else orders; beyond them the earlier steps count as ordered.
  constexpr u32 kMostSteps = 1 << 15;
  constexpr std::size_t kMostExchanges = 1 << 12;
  Agent& own = agents_[agent];
  if (own.touched) next_step(own);
  // No access to report.
  if (own.step == own.since) return;
  if (own.step - own.since >= kMostSteps || own.exchanges.size() >= kMostExchanges)
    return order_lanes(agent);
  const bool by_all = !(live & ~lanes);
  // This exchange covers all earlier steps.
  if (by_all) {
    if (own.exchanges.size() == 1 && own.exchanges[0].step == own.step &&
        own.exchanges[0].together == lanes)
      return;
    own.exchanges.clear();
  }
  if (own.exchanges.empty() || own.exchanges.back().step != own.step) {
    own.exchanges.push_back({own.step, 0, {}});
    for (u32 lane = 0; lane < kLanes; ++lane) own.exchanges.back().reach[lane] = 1u << lane;
  }
  for (u32& reach : own.exchanges.back().reach)
    if (reach & lanes) reach |= lanes;
  if (by_all) own.exchanges.back().together = lanes;
}

u32 Clocks::reached(u32 agent, u32 lane, u32 step) const {
  u32 lanes = 1u << lane;
  for (const Exchange& exchange : agents_[agent].exchanges) {
    if (exchange.step <= step) continue;
    u32 further = 0;
    PTX_FOR_EACH_LANE (each, lanes) further |= exchange.reach[each];
    lanes = further;
  }
  return lanes;
}

void Clocks::arrive(u32 agent, u32 barrier) {
  join(barriers_[barrier], agents_[agent].seen);
  agents_[agent].met += 1;
  tick(agent);
}

void Clocks::leave(u32 agent, u32 barrier) { see(agent, barriers_[barrier]); }

void Clocks::fence(u32 agent, bool wide) {
  Agent& own = agents_[agent];
  std::copy(own.seen.begin(), own.seen.end(), own.fenced.begin());
  own.has_fenced = true;
  if (wide) {
    std::copy(own.seen.begin(), own.seen.end(), own.fenced_wide.begin());
    own.has_fenced_wide = true;
  }
  tick(agent);
}

void Clocks::hand_on(u32 agent, u64 key) {
  publish(key, agents_[agent].seen);
  tick(agent);
}

void Clocks::proxy_fence(u32 agent, bool own) {
  std::vector<u32>& seen = agents_[agent].seen;
  for (u32 other = 0; other < agents(); ++other)
    if (!own || other == agent)
      seen[agents() + other] = std::max(seen[agents() + other], seen[other]);
  tick(agent);
}

void Clocks::complete(u32 agent, std::initializer_list<Part> parts) {
  for (const Part part : parts) agents_[agent].seen[part * agents() + agent] = now(agent);
  tick(agent);
}

void Clocks::complete_for(u32 agent, u64 key, std::initializer_list<Part> parts) {
  std::vector<u32> seen = agents_[agent].seen;
  for (const Part part : parts) seen[part * agents() + agent] = now(agent);
  publish(key, seen);
  tick(agent);
}

void Clocks::release(u32 agent, u64 key, bool with_fence, bool wide) {
  if (with_fence) fence(agent, wide);
  if (agents_[agent].has_fenced) join(flag(key), agents_[agent].fenced);
}

bool Clocks::published(u32 agent, std::vector<u32>& clocks) const {
  bool any = false;
  clocks.assign(agents(), 0);
  for (u32 each = 0; each < agents(); ++each) {
    const Agent& other = agents_[each];
    if (!other.has_fenced_wide || other.fenced_wide[each] > agents_[agent].seen[each]) continue;
    any = true;
    for (u32 i = 0; i < agents(); ++i)
      clocks[i] = std::max(clocks[i], other.fenced_wide[i] + 1 - start_);
  }
  return any;
}

void Clocks::acquire(u32 agent, u64 key) {
  if (flags_.empty()) return;
  const auto found = flags_.find(key);
  if (found != flags_.end()) see(agent, found->second);
}

}  // namespace workbench::ptx
