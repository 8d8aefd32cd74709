#include "lane_offsets.hpp"

#include <algorithm>

namespace workbench::ptx {
namespace {

constexpr std::size_t kMost = 64;  // ways that are kept; a kernel mostly has less than ten
// An instruction learns from its second request on, as what happens once need not be known. One
// that asks in ever new ways soon learns from few of them only, and compares no more.
constexpr u32 kAtFirst = 8, kEvery = 64;

}  // namespace

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
  if (!learns_) return;
  const u32 times = ++known_[pc].times;
  const bool now = times > 1 && (times <= kAtFirst || times % kEvery == 0);
  const LaneOffsets* const offsets = now ? find(addresses, bytes) : nullptr;
  known_[pc].offsets = offsets;
}

const LaneOffsets* LaneOffsetList::find(const u64* addresses, u32 bytes) {
  auto made = std::make_unique<LaneOffsets>(addresses, bytes);
  if (!made->close()) return nullptr;
  for (const auto& known : all_)
    if (*known == *made) return known.get();
  if (all_.size() == kMost) {
    for (Known& known : known_) known.offsets = nullptr;
    all_.clear();
  }
  made->number = ++made_;
  return all_.emplace_back(std::move(made)).get();
}

}  // namespace workbench::ptx
