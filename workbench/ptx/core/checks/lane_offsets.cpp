#include "checks/lane_offsets.hpp"

namespace workbench::ptx {

LaneOffsets::LaneOffsets(const u64* addresses, u32 bytes) {
  u64 gaps = 0;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u64 offset = addresses[lane] - addresses[0];
    from_first[lane] = offset, low_bits[lane] = static_cast<u32>(offset);
    lowest = std::min(lowest, static_cast<s64>(offset));
    highest = std::max(highest, static_cast<s64>(offset));
    bits |= offset;
    gaps |= offset ^ (u64{lane} * bytes);
  }
  order = !gaps ? Order::row : !bits ? Order::same : Order::other;
}

bool LaneOffsets::operator==(const LaneOffsets& other) const {
  return order == other.order && std::equal(from_first, from_first + kLanes, other.from_first);
}

void LaneOffsetList::learn(std::size_t pc, const u64* addresses, u32 bytes) {
  // Learns nothing from the first kIgnored requests, because a small launch ends before learning
  // pays; nor from the first request of an instruction, as it may be the only one.
  constexpr u32 kIgnored = 64, kEvery = 64;
  if (!learns_ || (known_.empty() && ++ignored_ < kIgnored)) return;
  known_.resize(instructions_);
  Known& known = known_[pc];
  if (++known.times == 1) return;
  if (known.times % kEvery == 0) known.credit += 2 * kPrice;
  if (known.credit < kPrice) {
    std::fill(std::begin(known.ways), std::end(known.ways), nullptr);
    known.next = 0;
    return;
  }
  known.credit -= kPrice;
  const LaneOffsets made(addresses, bytes);
  if (!made.close()) return;
  const LaneOffsets* const kept = keep(made);
  known.ways[known.next] = kept, known.next = (known.next + 1) % kWays;
}

const LaneOffsets* LaneOffsetList::keep(const LaneOffsets& made) {
  constexpr std::size_t kMost = 64;  // limit of layouts; most kernels have fewer than ten
  for (const auto& known : all_)
    if (*known == made) return known.get();
  if (all_.size() == kMost) {
    for (Known& known : known_) {
      std::fill(std::begin(known.ways), std::end(known.ways), nullptr);
      known.next = 0;
    }
    all_.clear();
  }
  all_.push_back(std::make_unique<LaneOffsets>(made));
  all_.back()->number = ++made_;
  return all_.back().get();
}

}  // namespace workbench::ptx
