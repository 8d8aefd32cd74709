#include "lanes.hpp"

#include <algorithm>

namespace workbench::ptx {
namespace {

inline u32 access_of(u32 width) { return width >= 32 ? ~0u : (1u << width) - 1; }

// The lanes of one sector, to be put into one rule.
struct Group {
  u64 sector;
  u32 lanes;
  u32 bytes;
  bool repeats;  // several lanes access the same bytes
};

// The rule of lanes that all have bytes of their own, or of which each byte has as many, alike in all but some bits.
bool find_rule(const Group& group, const u64* addresses, u32 width, Lanes& rule) {
  const u32 first = static_cast<u32>(first_lane(group.lanes)), start = addresses[first] & 31;
  u32 free = 0;
  if (group.repeats) {
    u32 together = 0;
    PTX_FOR_EACH_LANE(lane, group.lanes) {
      if ((addresses[lane] & 31) != start) continue;
      free |= lane ^ first, together += 1;
    }
    const u32 elements = static_cast<u32>(count_lanes(group.bytes)) / width;
    if (together != 1u << count_lanes(free) || static_cast<u32>(count_lanes(group.lanes)) != together * elements) return false;
  }
  // The coarsest rule serves the same lanes at other bytes of the sector too.
  for (s32 shift = 5; shift >= 0 && 1u << shift >= width; --shift) {
    const s32 base = static_cast<s32>(Lanes::element(first, free)) - static_cast<s32>(start >> shift);
    bool fits = Lanes::fits(base);
    PTX_FOR_EACH_LANE(lane, group.lanes & (group.lanes - 1)) {
      if (!fits) break;
      const s32 element = static_cast<s32>(Lanes::element(lane, free));
      fits = element - static_cast<s32>((addresses[lane] & 31) >> shift) == base;
    }
    if (!fits) continue;
    rule = Lanes(base, static_cast<u32>(shift), free);
    return true;
  }
  return false;
}

void add(LanePieces& pieces, u64 sector, u32 bytes, u32 changed, Lanes lanes) {
  pieces.all[pieces.count++] = {sector, bytes, changed, lanes};
}

// All 32 lanes in a row. False if they are not.
bool split_row(const u64* addresses, u32 width, u32 changed, LanePieces& pieces) {
  const u64 first = addresses[0];
  u64 apart = 0;
  PTX_LANES { apart |= addresses[lane] ^ (first + static_cast<u64>(lane) * width); }
  if (apart) return false;
  const u64 end = first + u64{width} * kLanes, begin = first >> 5;
  const u32 shift = static_cast<u32>(__builtin_ctz(width));
  const s32 per_sector = 32 >> shift;
  s32 base = -static_cast<s32>((first & 31) >> shift);
  for (u64 sector = begin; sector << 5 < end; ++sector, base += per_sector) {
    u32 bytes = ~0u;
    if (sector == begin) bytes &= ~0u << (first & 31);
    if (end - (sector << 5) < 32) bytes &= ~0u >> (32 - (end & 31));
    add(pieces, sector, bytes, changed == kAllLanes ? bytes : 0, Lanes(base, shift, 0));
  }
  if (changed && changed != kAllLanes)
    PTX_FOR_EACH_LANE(lane, changed) pieces.all[(addresses[lane] >> 5) - begin].changed |= access_of(width) << (addresses[lane] & 31);
  return true;
}

}  // namespace

u32 Lanes::element(u32 lane, u32 free) {
  if (!free) return lane;
  u32 found = 0, place = 0;
  for (u32 bit = 0; bit < 5; ++bit)
    if (!(free >> bit & 1)) found |= (lane >> bit & 1) << place++;
  return found;
}

u32 Lanes::at(u32 byte) const {
  const u32 element = static_cast<u32>(base() + static_cast<s32>(byte >> shift()));
  u32 lane = 0, place = 0;
  for (u32 bit = 0; bit < 5; ++bit)
    if (!(free() >> bit & 1)) lane |= (element >> place++ & 1) << bit;
  u32 lanes = 1u << lane;
  for (u32 bit = 0; bit < 5; ++bit)
    if (free() >> bit & 1) lanes |= lanes << (1u << bit);
  return lanes;
}

template <class F>
u32 Lanes::where(const Lanes& there, u32 bytes, F differ) const {
  if (!known() || !there.known()) return 0;
  const u32 step = 1u << std::min(shift(), there.shift());
  u32 found = 0;
  for (u32 byte = 0; byte < 32; byte += step) {
    const u32 part = bytes & access_of(step) << byte;
    if (part && differ(at(byte), there.at(byte))) found |= part;
  }
  return found;
}

u32 Lanes::beyond(const Lanes& there, u32 bytes) const {
  if (*this == there) return 0;
  return where(there, bytes, [](u32 here, u32 other) { return (here & ~other) != 0; });
}

u32 Lanes::apart(const Lanes& there, u32 bytes) const {
  if (*this == there) return single() || !known() ? 0 : bytes;
  return where(there, bytes, [](u32 here, u32 other) { return ((here | other) & ((here | other) - 1)) != 0; });
}

void split_by_lanes(const u64* addresses, u32 mask, u32 width, u32 changed, LanePieces& pieces) {
  pieces.count = 0, pieces.clashing = 0;
  const u32 access = access_of(width);
  if (mask == kAllLanes && split_row(addresses, width, changed, pieces)) return;
  Group groups[kLanes];
  int count = 0;
  PTX_FOR_EACH_LANE(lane, mask) {
    const u64 sector = addresses[lane] >> 5;
    const u32 part = access << (addresses[lane] & 31), bit = 1u << lane;
    int at = count - 1;  // lanes next to each other mostly share a sector
    while (at >= 0 && groups[at].sector != sector) --at;
    if (at < 0) {
      groups[count++] = {sector, bit, part, false};
      continue;
    }
    Group& group = groups[at];
    if (group.bytes & part) {
      group.repeats = true;
      if (changed & bit) pieces.clashing |= bit;
    }
    group.lanes |= bit, group.bytes |= part;
  }
  for (int i = 0; i < count; ++i) {
    const Group& group = groups[i];
    Lanes rule;
    if (find_rule(group, addresses, width, rule)) {
      u32 bytes = 0;
      PTX_FOR_EACH_LANE(lane, group.lanes & changed) bytes |= access << (addresses[lane] & 31);
      add(pieces, group.sector, group.bytes, bytes, rule);
      continue;
    }
    PTX_FOR_EACH_LANE(lane, group.lanes) {
      const u32 part = access << (addresses[lane] & 31);
      add(pieces, group.sector, part, changed >> lane & 1 ? part : 0, Lanes::one(lane));
    }
  }
}

}  // namespace workbench::ptx
