#include "checks/pattern.hpp"

#include <algorithm>

namespace workbench::ptx {
namespace {

// The number of passes is that of the bank with the most distinct words. Accesses are aligned, so
// those of several words fill whole groups of banks, and one word of each is enough.
u32 bank_passes(const u64* offsets, u32 mask, u32 words) {
  const u32 shift = 2 + static_cast<u32>(__builtin_ctz(words)), groups = 32 / words;
  u8 load[32] = {};
  u32 kept[32][32];  // distinct accesses of each group of banks, as many as are loaded
  u32 worst = 0;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u32 access = static_cast<u32>(offsets[lane] >> shift), group = access & (groups - 1);
    bool known = false;
    for (u32 j = 0; j < load[group]; ++j) known |= kept[group][j] == access;
    if (known) continue;
    kept[group][load[group]++] = access;
    worst = std::max<u32>(worst, load[group]);
  }
  return worst;
}

}  // namespace

void split_into_sectors(const u64* addresses, u32 mask, u32 bytes, Pieces& pieces) {
  const u32 access = bytes >= 32 ? ~0u : (1u << bytes) - 1;
  if (mask == kAllLanes) {
    const u64 first = addresses[0];
    u64 apart = 0, unequal = 0;
    PTX_LANES {
      apart |= addresses[lane] ^ (first + static_cast<u64>(lane) * bytes);
      unequal |= addresses[lane] ^ first;
    }
    if (!apart) {
      const u64 end = first + u64{bytes} * kLanes;
      int count = 0;
      for (u64 sector = first >> 5; sector << 5 < end; ++sector, ++count)
        pieces.sector[count] = sector, pieces.bytes[count] = ~0u;
      pieces.bytes[0] &= ~0u << (first & 31);
      if (end & 31) pieces.bytes[count - 1] &= ~0u >> (32 - (end & 31));
      pieces.count = count, pieces.distinct_bytes = bytes * kLanes;
      return;
    }
    if (!unequal) {
      pieces.count = 1, pieces.distinct_bytes = bytes;
      pieces.sector[0] = first >> 5, pieces.bytes[0] = access << (first & 31);
      return;
    }
  }
  int count = 0;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 sector = addresses[lane] >> 5;
    const u32 part = access << (addresses[lane] & 31);
    int at = count;
    while (at > 0 && pieces.sector[at - 1] > sector) --at;
    if (at > 0 && pieces.sector[at - 1] == sector) {
      pieces.bytes[at - 1] |= part;
      continue;
    }
    for (int i = count; i > at; --i)
      pieces.sector[i] = pieces.sector[i - 1], pieces.bytes[i] = pieces.bytes[i - 1];
    pieces.sector[at] = sector, pieces.bytes[at] = part;
    ++count;
  }
  u32 distinct = 0;
  for (int i = 0; i < count; ++i) distinct += static_cast<u32>(__builtin_popcount(pieces.bytes[i]));
  pieces.count = count, pieces.distinct_bytes = distinct;
}

Wavefronts shared_wavefronts(const u64* offsets, u32 mask, u32 bytes, bool is_load) {
  if (!mask) return {0, 0};
  const u32 words = bytes < 4 ? 1 : bytes / 4;
  u32 phases = words;
  if (mask == kAllLanes) {
    u64 apart = 0, unequal = 0;
    PTX_LANES {
      apart |= offsets[lane] ^ (offsets[0] + static_cast<u64>(lane) * bytes);
      unequal |= offsets[lane] ^ offsets[0];
    }
    if (!apart) return {phases, phases};
    if (!unequal && is_load && phases > 1) phases /= 2;
    if (!unequal) return {phases, phases};
  }
  if (phases > 1 && is_load) {
    u64 neighbours = 0, next_neighbours = 0;
    PTX_FOR_EACH_LANE (lane, mask) {
      if (mask >> (lane ^ 1) & 1) neighbours |= offsets[lane] ^ offsets[lane ^ 1];
      if (mask >> (lane ^ 2) & 1) next_neighbours |= offsets[lane] ^ offsets[lane ^ 2];
    }
    if (!neighbours || !next_neighbours) phases /= 2;
  }
  const u32 lanes = kLanes / phases;
  Wavefronts all{0, 0};
  for (u32 phase = 0; phase < phases; ++phase) {
    const u32 part = mask & ((lanes == 32 ? kAllLanes : (1u << lanes) - 1) << (phase * lanes));
    if (part) all.taken += bank_passes(offsets, part, words), all.ideal += 1;
  }
  return all;
}

// ---- patterns ----

bool Pattern::fits(const u64* addresses, u32 mask, u32 bytes) const {
  const u64 first = addresses[first_lane(mask)];
  if (mask != mask_ || bytes != bytes_ || (first & kInLine) != in_line_ ||
      addresses[kLanes - 1] - first != offset_[kLanes - 1])
    return false;
  u64 apart = 0;
  PTX_LANES {
    apart |= (addresses[lane] - first) ^ offset_[lane];
  }
  return !apart;
}

void Pattern::become(const u64* addresses, u32 mask, u32 bytes) {
  mask_ = mask, bytes_ = bytes, known_ = 0;
  const u64 first = addresses[first_lane(mask)];
  in_line_ = first & kInLine;
  PTX_LANES {
    offset_[lane] = addresses[lane] - first;
  }
}

const Pieces& Pattern::sectors(const u64* addresses) {
  if (!learns(has_sectors)) return sectors_;
  split_into_sectors(addresses, mask_, bytes_, sectors_);
  for (int i = 0; i < sectors_.count; ++i) sectors_.sector[i] -= base(addresses);
  return sectors_;
}

const LanePieces& Pattern::pieces(const u64* addresses) {
  if (!learns(has_pieces)) return pieces_;
  const u64 from = base(addresses);
  split_by_lanes(addresses, mask_, bytes_, 0, pieces_);
  join_lines(pieces_);
  for (int i = 0; i < pieces_.count; ++i) pieces_.all[i].sector -= from;
  return pieces_;
}

const LaneGroups& Pattern::groups(const u64* addresses) {
  if (!learns(has_groups)) return groups_;
  group_by_address(addresses, mask_, bytes_, groups_);
  return groups_;
}

const LineParts& Pattern::line_parts(const u64* addresses, LineParts::Scale scale) {
  if (!learns(has_parts) && scale == scale_) return parts_;
  const u64 first = addresses[first_lane(mask_)];
  scale_ = scale;
  parts_.count = 0, parts_.overlaps = false;
  const u32 begin = static_cast<u32>(first >> scale.line);
  PTX_FOR_EACH_LANE (lane, mask_) {
    const u32 line = static_cast<u32>(addresses[lane] >> scale.line) - begin;
    const u64 part = scale.part_of(addresses[lane], bytes_);
    u32 at = 0;
    while (at < parts_.count && parts_.line[at] != line) ++at;
    if (at == parts_.count) {
      parts_.line[at] = line, parts_.lanes[at] = 0, parts_.part[at] = 0;
      parts_.count += 1;
    }
    parts_.overlaps |= (parts_.part[at] & part) != 0;
    parts_.part[at] |= part, parts_.lanes[at] += 1;
  }
  return parts_;
}

Wavefronts Pattern::wavefronts(const u64* offsets, bool is_load) {
  if (learns(has_wavefronts)) wavefronts_ = shared_wavefronts(offsets, mask_, bytes_, is_load);
  return wavefronts_;
}

Pattern& Patterns::find_or_make(Place& place, const u64* addresses, u32 mask, u32 bytes, u64 key) {
  for (Recent& one : place.recent) {
    if (!one.pattern) break;
    if (!one.pattern->fits(addresses, mask, bytes)) continue;
    if (key) one.key = key;
    if (&one == place.recent.data()) return *one.pattern;
    std::swap(one, *(&one - 1));
    return *(&one - 1)->pattern;
  }
  if (place.made < kMostOfPlace) {
    std::copy_backward(place.recent.begin(), place.recent.end() - 1, place.recent.end());
    place.recent[0] = {&make(place, addresses, mask, bytes), key};
    return *place.recent[0].pattern;
  }
  if (!place.own) place.own = std::make_unique<Pattern>();
  if (!place.own->fits(addresses, mask, bytes)) place.own->become(addresses, mask, bytes);
  return *place.own;
}

Pattern& Patterns::make(Place& place, const u64* addresses, u32 mask, u32 bytes) {
  place.made += 1;
  const u64 first = addresses[first_lane(mask)];
  u64 key = u64{mask} << 32 | bytes << 8 | (first & Pattern::kInLine);
  for (int lane = 0; lane < kLanes; ++lane)
    key = (key ^ (addresses[lane] - first)) * 0x9e3779b97f4a7c15u;
  const auto [begin, end] = all_.equal_range(key);
  for (auto one = begin; one != end; ++one)
    if (one->second->fits(addresses, mask, bytes)) return *one->second;
  if (all_.size() >= kMost) place.made = kMostOfPlace;
  auto& made = all_.emplace(key, std::make_unique<Pattern>())->second;
  made->become(addresses, mask, bytes);
  made->stays_ = true;
  return *made;
}

}  // namespace workbench::ptx
