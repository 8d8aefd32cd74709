#include "memory/lanes.hpp"

#include <algorithm>

namespace workbench::ptx {
namespace {

inline u32 access_of(u32 width) { return width >= 32 ? ~0u : (1u << width) - 1; }

// The lanes of one sector, for which a rule is searched.
struct Group {
  u64 sector;
  u32 lanes;
  u32 bytes;
  bool repeats;  // several lanes access the same bytes
};

// Finds the rule of lanes that all access different bytes, or of which equally many share each byte
// and differ in the same bits of their numbers.
bool find_rule(const Group& group, const u64* addresses, u32 width, u32 turn, Lanes& rule) {
  const u32 lead = static_cast<u32>(first_lane(group.lanes)), first = Lanes::turned(lead, turn),
            start = addresses[lead] & 31;
  u32 free = 0;
  if (group.repeats) {
    u32 together = 0;
    PTX_FOR_EACH_LANE (lane, group.lanes) {
      if ((addresses[lane] & 31) != start) continue;
      free |= Lanes::turned(lane, turn) ^ first, together += 1;
    }
    const u32 elements = static_cast<u32>(count_lanes(group.bytes)) / width;
    if (together != 1u << count_lanes(free) ||
        static_cast<u32>(count_lanes(group.lanes)) != together * elements)
      return false;
  }
  // Try the coarsest rule first: it also serves the same lanes at other bytes of the sector.
  for (s32 shift = 5; shift >= 0 && 1u << shift >= width; --shift) {
    const s32 base =
        static_cast<s32>(Lanes::element(first, free)) - static_cast<s32>(start >> shift);
    bool fits = Lanes::fits(base);
    PTX_FOR_EACH_LANE (lane, group.lanes & (group.lanes - 1)) {
      if (!fits) break;
      const s32 element = static_cast<s32>(Lanes::element(Lanes::turned(lane, turn), free));
      fits = element - static_cast<s32>((addresses[lane] & 31) >> shift) == base;
    }
    if (!fits) continue;
    rule = Lanes(base, static_cast<u32>(shift), free, turn);
    return true;
  }
  return false;
}

bool find_rule(const Group& group, const u64* addresses, u32 width, Lanes& rule) {
  for (u32 turn = 0; turn < Lanes::kTurns; ++turn)
    if (find_rule(group, addresses, width, turn, rule)) return true;
  return false;
}

void add(LanePieces& pieces, u64 sector, u32 bytes, u32 changed, Lanes lanes) {
  pieces.all[pieces.count++] = {sector, bytes, changed, lanes};
}

// Splits a request of 32 contiguous lanes. Returns false for any other.
bool split_row(const u64* addresses, u32 width, u32 changed, LanePieces& pieces) {
  const u64 first = addresses[0];
  u64 apart = 0;
  PTX_LANES {
    apart |= addresses[lane] ^ (first + static_cast<u64>(lane) * width);
  }
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
    PTX_FOR_EACH_LANE (lane, changed)
      pieces.all[(addresses[lane] >> 5) - begin].changed |= access_of(width)
                                                            << (addresses[lane] & 31);
  return true;
}

// Splits a request of 32 lanes at one address. Returns false for any other.
bool split_same(const u64* addresses, u32 width, LanePieces& pieces) {
  u64 apart = 0;
  PTX_LANES {
    apart |= addresses[lane] ^ addresses[0];
  }
  if (apart) return false;
  add(pieces, addresses[0] >> 5, access_of(width) << (addresses[0] & 31), 0,
      Lanes(0, 5, kLanes - 1));
  pieces.repeats = true;
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
  u32 number = 0, place = 0;
  for (u32 bit = 0; bit < 5; ++bit)
    if (!(free() >> bit & 1)) number |= (element >> place++ & 1) << bit;
  u32 numbers = 1u << number;
  for (u32 bit = 0; bit < 5; ++bit)
    if (free() >> bit & 1) numbers |= numbers << (1u << bit);
  if (!turn()) return numbers;
  u32 lanes = 0;
  PTX_FOR_EACH_LANE (lane, kAllLanes) lanes |= (numbers >> turned(lane, turn()) & 1) << lane;
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
  return where(there, bytes,
               [](u32 here, u32 other) { return ((here | other) & ((here | other) - 1)) != 0; });
}

void split_by_lanes(const u64* addresses, u32 mask, u32 width, u32 changed, LanePieces& pieces) {
  pieces.count = 0, pieces.repeats = false, pieces.clashing = 0;
  const u32 access = access_of(width);
  if (mask == kAllLanes && (split_row(addresses, width, changed, pieces) ||
                            (!changed && split_same(addresses, width, pieces))))
    return;
  Group groups[kLanes];
  int count = 0;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 sector = addresses[lane] >> 5;
    const u32 part = access << (addresses[lane] & 31), bit = 1u << lane;
    // Search from the end: neighbouring lanes mostly share a sector.
    int at = count - 1;
    while (at >= 0 && groups[at].sector != sector) --at;
    if (at < 0) {
      groups[count++] = {sector, bit, part, false};
      continue;
    }
    Group& group = groups[at];
    if (group.bytes & part) {
      group.repeats = pieces.repeats = true;
      if (changed & bit) pieces.clashing |= bit;
    }
    group.lanes |= bit, group.bytes |= part;
  }
  for (int i = 0; i < count; ++i) {
    const Group& group = groups[i];
    Lanes rule;
    if (find_rule(group, addresses, width, rule)) {
      u32 bytes = 0;
      PTX_FOR_EACH_LANE (lane, group.lanes & changed) bytes |= access << (addresses[lane] & 31);
      add(pieces, group.sector, group.bytes, bytes, rule);
      continue;
    }
    PTX_FOR_EACH_LANE (lane, group.lanes) {
      const u32 part = access << (addresses[lane] & 31);
      add(pieces, group.sector, part, changed >> lane & 1 ? part : 0, Lanes::one(lane));
    }
  }
}

namespace {

// Whether these pieces are four sectors in a row, with all of their bytes, by one rule.
bool in_a_row(const LanePiece* four) {
  if (!four[0].lanes.known()) return false;
  for (u32 i = 0; i < 4; ++i)
    if (four[i].sector != four[0].sector + i || ~four[i].bytes ||
        !(four[i].lanes == four[0].lanes.from(i)))
      return false;
  return true;
}

}  // namespace

void join_lines(LanePieces& pieces) {
  int count = 0;
  pieces.lines = pieces.count > 0;
  for (int i = 0; i < pieces.count; ++i) {
    LanePiece piece = pieces.all[i];
    const bool row = i + 4 <= pieces.count && in_a_row(&pieces.all[i]);
    if (row && piece.sector % 4 == 0) piece.line = true, i += 3;
    pieces.lines &= piece.line;
    pieces.all[count++] = piece;
  }
  pieces.count = count;
}

}  // namespace workbench::ptx
