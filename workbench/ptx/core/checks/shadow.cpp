#include "checks/shadow.hpp"

#include <algorithm>

#include "checks/granules.hpp"
#include "memory/access.hpp"
#include "memory/cluster.hpp"

namespace workbench::ptx {
namespace {

void report(Warp& warp, const Instruction& in, Problem problem, u32 lane, u32 address, u32 bytes,
            s32 other_pc, s32 other_thread, bool exchanged = false) {
  Finding finding{.problem = problem,
                  .pc = warp.block->pc_of(in),
                  .other_pc = other_pc,
                  .block = warp.block->index,
                  .thread = warp.thread(lane),
                  .other_thread = other_thread,
                  .address = address,
                  .bytes = bytes,
                  .exchanged = exchanged};
  // The other thread is in its own block.
  if (other_thread >= 0) {
    const Block& block = *warp.block;
    const s32 threads = static_cast<s32>(block.warps->size()) * kLanes;
    const u32 rank = static_cast<u32>(other_thread / threads);
    finding.other_thread = other_thread % threads;
    if (rank != block.rank && rank < block.cluster->blocks.size())
      finding.other_block = block.cluster->blocks[rank]->index;
  }
  warp.block->note(finding);
}

// The number of a thread of the block among all threads of the cluster, as in findings and records.
s32 numbered(const Warp& warp, s32 thread) {
  return thread + static_cast<s32>(warp.agent - static_cast<u32>(warp.index)) * kLanes;
}

}  // namespace

void Shadow::resize(u32 shared_bytes, u32 granule, u32 logging, bool async) {
  async_ = async;
  shift_ = std::min(static_cast<u32>(__builtin_ctz(granule)), kUnitShift);
  per_unit_ = 1u << (kUnitShift - shift_);
  units_.assign((shared_bytes >> kUnitShift) + 1, Granule{});
  apart_.assign(units_.size(), 0);
  granules_.clear();
  kept_.clear(), swizzle_.clear();
  scale_ = granule == 1 ? LineParts::Scale{6, 0} : LineParts::Scale{7, 1};
  if (!logging) return;
  lines_.assign((shared_bytes >> scale_.line) + 1, Line{});
  most_entries_ = std::max(kLeastEntries, logging * kEntriesOfWarp);
  log_ = std::make_unique_for_overwrite<LogEntry[]>(most_entries_);
  written_ = std::make_unique_for_overwrite<u32[]>(most_entries_);
}

void Shadow::begin_block() {
  first_landing_ += static_cast<s32>(landings_.size());
  landings_.clear();
  mbarriers_.clear();
  volatile_stores_.clear();
  earlier_reads_.clear();
  begin_log();
}

void Shadow::drop_pending() {
  recorded_copies_ = false;
  for (Granule& unit : units_) unit.pending = -1;
  for (Granule& granule : granules_) granule.pending = -1;
  std::fill(kept_.begin(), kept_.end(), 0);
}

void Shadow::take_apart(u32 unit) {
  if (granules_.empty()) granules_.assign(units_.size() * per_unit_, Granule{});
  std::fill_n(granules_.begin() + unit * per_unit_, per_unit_, units_[unit]);
  if (const auto earlier = earlier_reads_.find(&units_[unit]); earlier != earlier_reads_.end()) {
    const std::vector<EarlierRead> reads = earlier->second;
    for (u32 i = 0; i < per_unit_; ++i) earlier_reads_[&granules_[unit * per_unit_ + i]] = reads;
  }
  apart_[unit] = 1;
}

// Joins a unit after a plain store to all of it, as its earlier records no longer matter.
void Shadow::join(u32 unit) {
  const Granule* parts = &granules_[unit * per_unit_];
  for (u32 i = 1; i < per_unit_; ++i)
    if (parts[i].pending != parts[0].pending || parts[i].weak_warps != parts[0].weak_warps) return;
  units_[unit] = parts[0];
  units_[unit].read = units_[unit].other = Access{}, units_[unit].read_lanes = 0;
  apart_[unit] = 0;
}

Shadow::Asker Shadow::asker(const Warp& warp, const Instruction& in, bool strong) const {
  return asker(warp, in, strong, clocks.since(warp.agent));
}

Shadow::Asker Shadow::asker(const Warp& warp, const Instruction& in, bool strong, u32 since) const {
  const u32 agent = warp.agent;
  Access access;
  access.clock = clocks.now(agent), access.pc = warp.block->pc_of(in);
  access.by = u32{clocks.lane_order(agent)} << 16 | (strong ? 0x8000u : 0);
  return {agent,
          0,
          0,
          agent < 32 ? 1u << agent : 0,
          clocks.seen(agent).data(),
          clocks.start(),
          clocks.floor(agent),
          clocks.step(agent) - since,
          warp,
          access};
}

// `lanes`: the lanes of the other access' warp that took part in it.
Shadow::Conflict Shadow::conflict(const Asker& who, const Access& other, u32 lanes) {
  const u32 warp = other.thread() / kLanes;
  if (warp != who.warp) return other.clock > who.seen[warp] ? Conflict::warps : Conflict::none;
  if (!unordered(who, other)) return Conflict::none;
  return lanes & ~(1u << who.lane) ? Conflict::lanes : Conflict::none;
}

// A faster form of the same test, for one lane.
[[gnu::always_inline]] inline bool Shadow::before(const Asker& who, const Access& other,
                                                  u32 lanes) {
  const u32 warp = other.thread() / kLanes;
  if (warp != who.warp) return other.clock <= who.seen[warp];
  return !unordered(who, other) || !(lanes & ~who.lanes);
}

s32 Shadow::other_thread(const Asker& who, const Access& other, u32 lanes) {
  if (other.thread() != who.access.thread()) return static_cast<s32>(other.thread());
  lanes &= ~(1u << who.lane);
  return static_cast<s32>(who.warp * kLanes + (lanes ? first_lane(lanes) : 0));
}

// The lanes that stored these bytes in one of the last stores, or in an equal one.
u32 Shadow::storing_lanes(const Granule& g, const Access& write) {
  const bool same = write.clock == g.weak.clock && write.thread() == g.weak.thread();
  return same ? g.weak_lanes : 1u << write.thread() % kLanes;
}

// A plain access races with any write, a strong one only with a plain write. Lanes that stored the
// same bytes may read them.
Shadow::Conflict Shadow::with_write(const Asker& who, const Granule& g) {
  const Access& other = who.access.strong() ? g.weak : g.write;
  const bool same = other.clock == g.weak.clock && other.thread() == g.weak.thread();
  const u32 lanes = storing_lanes(g, other);
  if (lanes >> who.lane & 1 && other.thread() / kLanes == who.warp) return Conflict::none;
  if (same && other.thread() / kLanes != who.warp && (g.weak_warps & who.bit))
    return Conflict::none;
  return conflict(who, other, lanes);
}

// For a read by the same warp, leaves in `lanes` those whose values have not reached the asking
// lane; all of them if all values have.
Shadow::Conflict Shadow::with_read(const Asker& who, const Granule& g, const Access& read,
                                   u32& lanes) const {
  if (who.access.strong() && read.strong()) return Conflict::none;
  const Conflict found = conflict(who, read, lanes);
  if (found != Conflict::lanes) return found;
  const auto earlier = earlier_reads_.find(&g);
  u32 open = 0;
  PTX_FOR_EACH_LANE (lane, lanes & ~(1u << who.lane)) {
    const Access* access = &read;
    if (&read == &g.read && earlier != earlier_reads_.end())
      for (const EarlierRead& one : earlier->second)
        if (one.lanes >> lane & 1 && unordered(who, one.access)) access = &one.access;
    const u32 back = static_cast<u16>(who.access.lane_order() - access->lane_order());
    const u32 reached = clocks.reached(who.warp, lane, clocks.step(who.warp) - back);
    open |= (~reached >> who.lane & 1) << lane;
  }
  if (!open) return Conflict::exchanged;
  lanes = open;
  return found;
}

Shadow::Conflict Shadow::with_reads(const Asker& who, const Granule& g, const Access*& other,
                                    u32& lanes) const {
  other = &g.read, lanes = g.read_lanes;
  const Conflict found = with_read(who, g, g.read, lanes);
  if (found != Conflict::none && found != Conflict::exchanged) return found;
  u32 one = 1u << g.other.thread() % kLanes;
  const Conflict further = with_read(who, g, g.other, one);
  if (further == Conflict::none || further == found) return found;
  other = &g.other, lanes = one;
  return further;
}

// Records a reader. An older reader that comes before the new one may be dropped: accesses ordered
// after the new one are ordered after both.
void Shadow::record_read(const Asker& who, Granule& g) {
  const Access& mine = who.access;
  const u32 bit = 1u << who.lane;
  if (g.read.thread() / kLanes == who.warp && g.read.clock >= who.start) {
    const bool same = g.read.clock == mine.clock && g.read.lane_order() == mine.lane_order();
    const u32 others = g.read_lanes & ~bit;
    if (!same && others && unordered(who, g.read)) {
      std::vector<EarlierRead>& earlier = earlier_reads_[&g];
      u32 known = bit;
      std::erase_if(earlier, [&](const EarlierRead& one) { return !unordered(who, one.access); });
      for (EarlierRead& one : earlier) one.lanes &= ~bit, known |= one.lanes;
      earlier.push_back({g.read, others & ~known});
      g.read_lanes |= bit;
    } else if (same) {
      if (const auto earlier = earlier_reads_.find(&g); earlier != earlier_reads_.end())
        for (EarlierRead& one : earlier->second) one.lanes &= ~bit;
      g.read_lanes |= bit;
    } else {
      earlier_reads_.erase(&g);
      g.read_lanes = bit;
    }
    const bool strong = mine.strong() && (!same || g.read.strong());
    if (!same || who.lane == g.read.thread() % kLanes) g.read = mine;
    if (!strong) g.read.weaken();
    return;
  }
  if (conflict(who, g.read, g.read_lanes) != Conflict::none) {
    if (g.other.thread() / kLanes != who.warp && conflict(who, g.other, 0) == Conflict::none)
      g.other = g.read;
    else if (g.other.thread() / kLanes == who.warp)
      g.other = g.read;
    else
      return;
  }
  earlier_reads_.erase(&g);
  g.read = mine, g.read_lanes = bit;
}

namespace {

void report_pending(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes,
                    s32 pending) {
  report(warp, in, Problem::pending_copy, lane, address, bytes, pending >> 10,
         numbered(warp, pending & 1023));
}

}  // namespace

// Reports lanes that race with others. A race with a read whose value was handed on is reported
// once.
void Shadow::report_conflict(Warp& warp, const Instruction& in, Asker& who, Conflict found,
                             u32 address, u32 bytes, s32 other_pc, s32 other_thread) {
  const bool exchanged = found == Conflict::exchanged;
  if (exchanged && who.noted) return;
  who.noted |= exchanged;
  report(warp, in, found == Conflict::warps ? Problem::shared_race : Problem::warp_race, who.lane,
         address, bytes, other_pc, other_thread, exchanged);
}

// A plain read of bytes that were written before it: the usual case, with the same effect as
// read_slowly. Returns false if unsure.
[[gnu::always_inline]] inline bool Shadow::read_quietly(const Asker& who, Granule& g) const {
  if (g.write.clock < who.start || who.access.strong() || !earlier_reads_.empty() ||
      (g.pending != -1 && (g.pending >= 0 || !arrived(who, g))))
    return false;
  return read_stored(who, g);
}

[[gnu::always_inline]] inline bool Shadow::stored_by_several(const Asker& who, const Granule& g) {
  return g.weak_warps & (g.weak_warps - 1) && g.weak.clock >= who.start;
}

// Whether all earlier accesses here come before the warp's current one, whichever lanes made them.
// Returns false if unsure.
[[gnu::always_inline]] inline bool Shadow::settled(const Asker& who, const Granule& g) {
  return std::max({g.write.clock, g.read.clock, g.other.clock}) <= who.floor &&
         !stored_by_several(who, g);
}

// Whether one lane's plain store, or copy, can race with nothing. Returns false if unsure.
[[gnu::always_inline]] inline bool Shadow::quiet(const Asker& who, const Granule& g) {
  if (settled(who, g)) return true;
  if (stored_by_several(who, g)) return false;
  // weak_lanes belong to the last plain store, which a strong one may have followed.
  const u32 lanes = g.write.strong() ? 1u << g.write.thread() % kLanes : g.weak_lanes;
  return before(who, g.write, lanes) && before(who, g.read, g.read_lanes) &&
         before(who, g.other, 1u << g.other.thread() % kLanes);
}

// The same for a plain store by one lane that changes memory.
[[gnu::always_inline]] inline bool Shadow::write_quietly(const Asker& who, Granule& g) const {
  if (who.access.strong() || (g.pending != -1 && (g.pending >= 0 || !arrived(who, g))) ||
      !quiet(who, g))
    return false;
  g.pending = -1;
  record_write(who, g);
  return true;
}

bool Shadow::read_slowly(Warp& warp, const Instruction& in, Asker& who, Granule& g, u32 address,
                         u32 bytes, bool reported) {
  if (!reported) {
    if (g.pending >= 0) {
      report_pending(warp, in, who.lane, address, bytes, g.pending);
      reported = true;
    } else if (g.write.clock < who.start) {
      report(warp, in, Problem::uninitialised_shared, who.lane, address, bytes, -1, -1);
      reported = true;
    } else if (!arrived_for(who, g)) {
      report_unawaited(warp, in, who, g, address, bytes);
      reported = true;
    } else if (const Conflict found = with_write(who, g); found != Conflict::none) {
      const Access& other = who.access.strong() ? g.weak : g.write;
      report_conflict(warp, in, who, found, address, bytes, other.pc,
                      other_thread(who, other, storing_lanes(g, other)));
      reported = true;
    }
  }
  record_read(who, g);
  return reported;
}

void Shadow::read(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                  bool strong) {
  clocks.touch(warp.agent);
  if (!strong && log(warp, Quiet::read, in, addresses, mask, bytes, 0)) return;
  Asker who = asker(warp, in, strong);
  const LaneGroups& groups =
      warp.block->pattern(in, true, addresses, mask, bytes).groups(addresses);
  for (int i = 0; i < groups.count; ++i) {
    const u32 lanes = groups.lanes[i];
    set_lanes(who, warp, lanes);
    const u32 address = static_cast<u32>(addresses[who.lane]);
    u32 reported = 0;
    touch(who, Quiet::read, address, bytes);
    for_each(address, bytes, false, [&](Granule& g) __attribute__((always_inline)) {
      if (read_quietly(who, g)) return;
      Asker one = who;
      PTX_FOR_EACH_LANE (lane, lanes) {
        set_lanes(one, warp, 1u << lane);
        if (read_slowly(warp, in, one, g, address, bytes, reported >> lane & 1))
          reported |= 1u << lane;
      }
    });
  }
}

// A store of the bytes that are already there: adds the warp to those that stored them. Returns
// false if it is the first store.
bool Shadow::store_alike(const Asker& who, Granule& g, bool changes) {
  if (changes || g.write.clock < who.start) return false;
  if (conflict(who, g.weak, ~0u) == Conflict::none) return true;
  g.weak_warps |= who.bit;
  if (g.weak.thread() / kLanes == who.warp) g.weak_lanes |= 1u << who.lane;
  return true;
}

bool Shadow::write_slowly(Warp& warp, const Instruction& in, Asker& who, Granule& g, u32 address,
                          u32 bytes, bool changes, bool reported) {
  const bool strong = who.access.strong();
  if (!reported && g.pending >= 0) {
    report_pending(warp, in, who.lane, address, bytes, g.pending);
    reported = true;
  }
  if (store_alike(who, g, changes)) return reported;
  if (!reported && !arrived_for(who, g)) {
    report_unawaited(warp, in, who, g, address, bytes);
    reported = true;
  }
  g.pending = -1;
  const Access* other = strong ? &g.weak : &g.write;
  u32 lanes = storing_lanes(g, *other);
  Conflict found = reported ? Conflict::none : with_write(who, g);
  // Other warps may have stored the same bytes as the last writer, and this one stores different
  // bytes.
  const u32 others = g.weak_warps & ~who.bit;
  const bool alike =
      !reported && found == Conflict::none && !strong && others && g.weak_warps & who.bit;
  if (alike)
    found = g.weak.clock == who.access.clock || g.weak.clock > who.seen[g.weak.thread() / kLanes]
                ? Conflict::warps
                : Conflict::none;
  bool like_mine = alike && found != Conflict::none && other->thread() / kLanes == who.warp;
  // Stores by one instruction may be those of replicas (findings.py), which must not hide another
  // race.
  if (!reported && (found == Conflict::none || other->pc == who.access.pc)) {
    const Access* reader = nullptr;
    u32 readers = 0;
    const Conflict read = with_reads(who, g, reader, readers);
    if (read != Conflict::none && (read != Conflict::exchanged || found == Conflict::none))
      found = read, other = reader, lanes = readers, like_mine = false;
  }
  if (found != Conflict::none) {
    const s32 thread = like_mine ? static_cast<s32>(first_lane(others) * kLanes)
                                 : other_thread(who, *other, lanes);
    report_conflict(warp, in, who, found, address, bytes, other->pc, thread);
    reported = found != Conflict::exchanged;
  }
  record_write(who, g);
  return reported;
}

void Shadow::write(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                   bool strong, u32 changed) {
  if (!strong && log(warp, Quiet::store, in, addresses, mask, bytes, changed)) return;
  // A strong access that orders its lanes comes after none of their plain ones by that.
  const bool orders = (in.flags & (kStrong | kUnordered)) == kStrong;
  Asker who =
      asker(warp, in, strong, orders ? clocks.access_since(warp.agent) : clocks.since(warp.agent));
  PTX_FOR_EACH_LANE (lane, mask) {
    set_lanes(who, warp, 1u << lane);
    const bool changes = changed >> lane & 1;
    const u32 address = static_cast<u32>(addresses[lane]);
    touch(who, Quiet::store, address, bytes);
    bool reported = !kept_.empty() && report_kept(warp, in, lane, address, bytes);
    for_each(address, bytes, changes && !strong, [&](Granule& g) __attribute__((always_inline)) {
      if (!changes || !write_quietly(who, g))
        reported = write_slowly(warp, in, who, g, address, bytes, changes, reported);
    });
  }
}

bool Shadow::report_race(Warp& warp, const Instruction& in, Asker& who, const Granule& g,
                         u32 address, u32 bytes) const {
  const Access* other = &g.write;
  u32 lanes = storing_lanes(g, *other);
  Conflict found = with_write(who, g);
  if (found == Conflict::none) found = with_reads(who, g, other, lanes);
  if (found == Conflict::none) return false;
  report_conflict(warp, in, who, found, address, bytes, other->pc,
                  other_thread(who, *other, lanes));
  return found != Conflict::exchanged;
}

// The copy may land at any time from now on: it races with unordered reads and writes of its
// destination.
void Shadow::copy_issued(Warp& warp, const Instruction& in, const PendingCopy& copy) {
  alignas(64) u64 addresses[kLanes];
  PTX_LANES {
    addresses[lane] = copy.destination[lane];
  }
  if (log(warp, Quiet::issue, in, addresses, copy.mask, copy.bytes, 0)) return;
  recorded_copies_ |= !lines_.empty();
  Asker who = asker(warp, in, false);
  const auto harmless = [&](u32 lane) { return copy.leaves_alike(lane, warp.block->shared); };
  PTX_FOR_EACH_LANE (lane, copy.mask) {
    const u32 address = copy.destination[lane];
    touch(who, Quiet::issue, address, copy.bytes);
    const bool kept = !kept_.empty() && kept_unit(address, copy.bytes) != kNoUnit;
    if (Granule* unit = whole_unit(address, copy.bytes);
        unit && !kept && settled(who, *unit) && arrived(who, *unit)) {
      unit->pending = who.access.pc << 10 | warp.thread(lane);
      continue;
    }
    set_lanes(who, warp, 1u << lane);
    bool reported = kept && (harmless(lane) || report_kept(warp, in, lane, address, copy.bytes));
    for_each(address, copy.bytes, false, [&](Granule& g) __attribute__((always_inline)) {
      if (!reported && !quiet(who, g))
        reported = harmless(lane) || report_race(warp, in, who, g, address, copy.bytes);
      if (!reported && !arrived_for(who, g)) {
        if (kept_.empty() || !harmless(lane))
          report_unawaited(warp, in, who, g, address, copy.bytes);
        reported = true;
      }
      g.pending = who.access.pc << 10 | warp.thread(lane);
    });
  }
}

void Shadow::copy_landed(Warp& warp, const Instruction& in, const u32* addresses, u32 mask,
                         u32 bytes, u32 changed, u32 clock, s32 landing) {
  const s32 landed = -2 - landing;  // -1 for kNoLanding
  Asker who = asker(warp, in, false);
  if (clock) who.access.clock = clock;
  alignas(64) u64 offsets[kLanes];
  PTX_LANES {
    offsets[lane] = addresses[lane];
  }
  if (!clock && landing == kNoLanding &&
      log(warp, Quiet::landing, in, offsets, mask, bytes, changed))
    return;
  PTX_FOR_EACH_LANE (lane, mask) {
    set_lanes(who, warp, 1u << lane);
    touch(who, Quiet::landing, addresses[lane], bytes);
    if (landing != kNoLanding && !lines_.empty()) line_at(addresses[lane]).unsure = true;
    const bool changes = changed >> lane & 1;
    if (Granule* unit = whole_unit(addresses[lane], bytes); unit && changes && unit->pending >= 0) {
      unit->pending = landed;
      record_write(who, *unit);
      continue;
    }
    for_each(addresses[lane], bytes, changes, [&](Granule& g) __attribute__((always_inline)) {
      if (changes && g.pending < 0 && with_write(who, g) != Conflict::none)
        report(warp, in, Problem::shared_race, lane, addresses[lane], bytes, g.write.pc,
               static_cast<s32>(g.write.thread()));
      g.pending = landed;
      if (!changes && g.write.clock >= who.start && conflict(who, g.weak, ~0u) != Conflict::none)
        g.weak_warps |= who.bit;
      else
        record_write(who, g);
    });
  }
}

// Reports ordinary accesses before a copy's write without a fence of the async proxy between them.
bool Shadow::report_unfenced(Warp& warp, const Instruction& in, const Asker& who, const Granule& g,
                             u32 address, u32 bytes) const {
  for (const Access* access : {&g.read, &g.other, &g.write}) {
    if (access->pc < 0 || access->clock < who.start) continue;
    const Instruction& earlier = warp.block->kernel->code[static_cast<std::size_t>(access->pc)];
    if (earlier.flags & kAsyncProxy ||
        access->clock <= who.seen[clocks.agents() + access->thread() / kLanes])
      continue;
    report(warp, in, Problem::refill_fence, who.lane, address, bytes, access->pc,
           static_cast<s32>(access->thread()));
    return true;
  }
  return false;
}

// The first unit of [address, address + bytes) that is being read asynchronously; kNoUnit if there
// is none.
u32 Shadow::kept_unit(u32 address, u32 bytes) const {
  for (u32 unit = address >> kUnitShift; unit << kUnitShift < address + bytes; ++unit)
    if (kept_[unit]) return unit;
  return kNoUnit;
}

bool Shadow::report_kept(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes) {
  const u32 unit = kept_unit(address, bytes);
  if (unit == kNoUnit) return false;
  report(warp, in, Problem::pending_read, lane, address, bytes, keeper_[unit] >> 10,
         numbered(warp, keeper_[unit] & 1023));
  return true;
}

void Shadow::async_write_issued(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes,
                                bool& reported) {
  Asker who = asker(warp, in, false);
  set_lanes(who, warp, 1u << lane);
  touch(who, Quiet::issue, address, bytes);
  if (!reported && !kept_.empty()) reported = report_kept(warp, in, lane, address, bytes);
  for_each(address, bytes, false, [&](Granule& g) {
    if (!reported && g.pending >= 0) {
      report_pending(warp, in, lane, address, bytes, g.pending);
      reported = true;
    }
    if (!reported && !quiet(who, g)) reported = report_race(warp, in, who, g, address, bytes);
    if (!reported && !arrived_for(who, g)) {
      report_unawaited(warp, in, who, g, address, bytes);
      reported = true;
    }
    if (!reported && warp.block->launch->strict)
      reported = report_unfenced(warp, in, who, g, address, bytes);
    g.pending = who.access.pc << 10 | warp.thread(lane);
  });
}

void Shadow::async_write_landed(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes,
                                u32 clock, u8 swizzle, s32 landing) {
  Asker who = asker(warp, in, false);
  who.access.clock = clock;
  set_lanes(who, warp, 1u << lane);
  if (swizzle_.empty()) swizzle_.assign(units_.size(), kNoSwizzle);
  swizzle_[address >> kUnitShift] = swizzle;
  touch(who, Quiet::landing, address, bytes);
  if (!lines_.empty()) line_at(address).unsure = true;
  for_each(address, bytes, true, [&](Granule& g) {
    g.pending = -2 - landing;
    record_write(who, g);
  });
}

u8 Shadow::swizzle_at(const Warp& warp, u32 address) const {
  const u32 unit = address >> kUnitShift;
  if (swizzle_.empty() || apart_[unit] || units_[unit].write.clock < clocks.start() ||
      units_[unit].write.pc < 0)
    return kNoSwizzle;
  const Instruction& writer =
      warp.block->kernel->code[static_cast<std::size_t>(units_[unit].write.pc)];
  return writer.flags & kAsyncProxy ? swizzle_[unit] : kNoSwizzle;
}

Shadow::AsyncReader::AsyncReader(Shadow& shadow, Warp& warp, const Instruction& in, u32 lanes)
    : shadow_(shadow), warp_(warp), in_(in), who_(shadow.asker(warp, in, false)) {
  shadow.set_lanes(who_, warp, lanes);
  shadow.clocks.touch(warp.agent);
}

void Shadow::AsyncReader::read(u32 address, u32 bytes, bool& reported) {
  const u32* const fenced_by = who_.seen + shadow_.clocks.agents();
  shadow_.touch(who_, Quiet::read, address, bytes);
  shadow_.for_each(address, bytes, false, [&](Granule& g) {
    const u32 writer = g.write.thread() / kLanes;
    const bool written = g.write.clock >= who_.start, ordered = g.write.clock <= who_.seen[writer];
    if (!reported && g.pending < 0 && written && ordered && g.write.clock > fenced_by[writer]) {
      const Instruction& store = warp_.block->kernel->code[static_cast<std::size_t>(g.write.pc)];
      if (!(store.flags & kAsyncProxy)) {
        report(warp_, in_, Problem::proxy_fence, who_.lane, address, bytes, g.write.pc,
               static_cast<s32>(g.write.thread()));
        reported = true;
      }
    }
    if (!shadow_.read_quietly(who_, g))
      reported |= shadow_.read_slowly(warp_, in_, who_, g, address, bytes, reported);
  });
}

// Only extends the reads for later accesses to come after: writes in between have been reported.
void Shadow::AsyncReader::read_again(u32 address, u32 bytes) {
  shadow_.touch(who_, Quiet::read, address, bytes);
  shadow_.for_each(address, bytes, false, [&](Granule& g) {
    if (with_write(who_, g) == Conflict::none) shadow_.record_read(who_, g);
  });
}

void Shadow::begin_keeping() {
  if (!kept_.empty()) return;
  kept_.assign(units_.size() + kUnitsOfLine, 0);
  keeper_.assign(units_.size() + kUnitsOfLine, -1);
}

void Shadow::keep(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes) {
  begin_keeping();
  for (u32 unit = address >> kUnitShift; unit << kUnitShift < address + bytes; ++unit)
    kept_[unit] += 1, keeper_[unit] = warp.block->pc_of(in) << 10 | warp.thread(lane);
}

void Shadow::let_go(u32 address, u32 bytes) {
  if (kept_.empty()) return;
  for (u32 unit = address >> kUnitShift; unit << kUnitShift < address + bytes; ++unit)
    kept_[unit] -= kept_[unit] != 0;
}

void Shadow::keep(Warp& warp, const Instruction& in, u32 lane, const Chunks& chunks, u32 base) {
  begin_keeping();
  const s32 keeper = warp.block->pc_of(in) << 10 | warp.thread(lane);
  for (const Chunks::Line& one : chunks.lines) {
    const u32 first = (base >> kUnitShift) + (one.line << (scale_.line - kUnitShift));
    u8 read[kUnitsOfLine];
    std::memcpy(read, &one.bytes, sizeof read);
    for (u32 i = 0; i < kUnitsOfLine; ++i) {
      kept_[first + i] = static_cast<u8>(kept_[first + i] + read[i]);
      keeper_[first + i] = read[i] ? keeper : keeper_[first + i];
    }
  }
}

void Shadow::let_go(const Chunks& chunks, u32 base) {
  for (const Chunks::Line& one : chunks.lines) {
    u8* kept = &kept_[(base >> kUnitShift) + (one.line << (scale_.line - kUnitShift))];
    u8 read[kUnitsOfLine];
    std::memcpy(read, &one.bytes, sizeof read);
    for (u32 i = 0; i < kUnitsOfLine; ++i)
      kept[i] = static_cast<u8>(kept[i] - (kept[i] ? read[i] : 0));
  }
}

void Shadow::volatile_store(const Warp& warp, const Instruction& in, const u64* addresses, u32 mask,
                            u32 bytes) {
  const VolatileStore store{warp.agent, 0, clocks.met(warp.agent), warp.block->pc_of(in)};
  PTX_FOR_EACH_LANE (lane, mask) {
    const u32 first = static_cast<u32>(addresses[lane]) >> shift_,
              last = (static_cast<u32>(addresses[lane]) + bytes - 1) >> shift_;
    for (u32 granule = first; granule <= last; ++granule) {
      volatile_stores_[granule] = store;
      volatile_stores_[granule].lane = lane;
    }
  }
}

void Shadow::volatile_load(Warp& warp, const Instruction& in, const u64* addresses, u32 mask,
                           u32 bytes) {
  if (volatile_stores_.empty()) return;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u32 address = static_cast<u32>(addresses[lane]);
    for (u32 granule = address >> shift_; granule <= (address + bytes - 1) >> shift_; ++granule) {
      const auto store = volatile_stores_.find(granule);
      if (store == volatile_stores_.end() || store->second.agent != warp.agent ||
          store->second.lane == lane || store->second.met != clocks.met(warp.agent))
        continue;
      report(warp, in, Problem::warp_synchronous, lane, address, bytes, store->second.pc,
             static_cast<s32>(warp.agent * kLanes + store->second.lane));
      break;
    }
  }
}

// ---- mbarriers ----

s32 Shadow::landing(u32 mbarrier) {
  Mbarrier& known = mbarriers_[mbarrier];
  if (known.open == kNoLanding) {
    known.open = first_landing_ + static_cast<s32>(landings_.size());
    landings_.push_back({mbarrier, 0, {}});
  }
  return known.open;
}

void Shadow::phase_over(u32 mbarrier) {
  const auto known = mbarriers_.find(mbarrier);
  if (known == mbarriers_.end()) return;
  known->second.over = known->second.open;
  known->second.open = kNoLanding;
}

void Shadow::waited(const Warp& warp, u32 lanes, u32 mbarrier) {
  const auto known = mbarriers_.find(mbarrier);
  if (known == mbarriers_.end() || known->second.over == kNoLanding) return;
  Landing& landing = landings_[static_cast<std::size_t>(known->second.over - first_landing_)];
  const u32 since = clocks.since(warp.agent);
  if (warp.agent < 64 && lanes == (warp.all & ~warp.exited)) landing.warps |= u64{1} << warp.agent;
  for (Wait& wait : landing.waits) {
    if (wait.agent != warp.agent || wait.since != since) continue;
    wait.lanes |= lanes;
    return;
  }
  landing.waits.push_back({warp.agent, clocks.now(warp.agent), lanes, since});
}

const Shadow::Landing* Shadow::landing_of(const Granule& g) const {
  const s32 place = -2 - g.pending - first_landing_;
  const bool here = g.pending < -1 && place >= 0 && place < static_cast<s32>(landings_.size());
  return here ? &landings_[static_cast<std::size_t>(place)] : nullptr;
}

bool Shadow::has_landed_for(const Landing& landing, u32 agent, u32 lane) const {
  const std::vector<u32>& seen = clocks.seen(agent);
  for (const Wait& wait : landing.waits) {
    if (wait.agent != agent ? wait.clock <= seen[wait.agent]
                            : wait.lanes >> lane & 1 || wait.since != clocks.since(agent))
      return true;
  }
  return false;
}

bool Shadow::has_landed_for(const Warp& warp, u32 lane, s32 landing) const {
  const s32 place = landing - first_landing_;
  if (landing == kNoLanding || place < 0 || place >= static_cast<s32>(landings_.size()))
    return true;
  return has_landed_for(landings_[static_cast<std::size_t>(place)], warp.agent, lane);
}

bool Shadow::arrived_for(const Asker& who, const Granule& g) const {
  if (g.pending >= -1 || g.write.clock < who.start || arrived(who, g)) return true;
  return has_landed_for(*landing_of(g), who.warp, who.lane);
}

void Shadow::report_unawaited(Warp& warp, const Instruction& in, const Asker& who, const Granule& g,
                              u32 address, u32 bytes) const {
  Finding finding{.problem = Problem::unawaited_copy,
                  .pc = warp.block->pc_of(in),
                  .other_pc = g.write.pc,
                  .block = warp.block->index,
                  .thread = warp.thread(who.lane),
                  .address = address,
                  .bytes = bytes};
  finding.text = "this thread has not waited for the mbarrier at offset " +
                 std::to_string(landing_of(g)->mbarrier) + ", nor comes after one that has";
  warp.block->note(finding);
}

void Shadow::initialised(const Warp& warp, const Instruction& in, u32 mbarrier) {
  mbarriers_[mbarrier] = {
      .pc = warp.block->pc_of(in), .agent = warp.agent, .clock = clocks.now(warp.agent)};
}

void Shadow::make_initialised_known(const Warp& warp) {
  for (auto& [offset, mbarrier] : mbarriers_)
    if (mbarrier.pc >= 0 && mbarrier.clock <= clocks.seen(warp.agent)[mbarrier.agent])
      mbarrier.pc = -1;
}

void Shadow::check_initialised(Warp& warp, const Instruction& in, u32 lane, u32 mbarrier) {
  const auto known = mbarriers_.find(mbarrier);
  if (known == mbarriers_.end() || known->second.pc < 0) return;
  report(warp, in, Problem::unknown_mbarrier, lane, mbarrier, 8, known->second.pc, -1);
  const u32 agent = known->second.agent;  // an agent whose one fence would make all of them known
  for (auto& [offset, other] : mbarriers_)
    if (other.agent == agent) other.pc = -1;
}

}  // namespace workbench::ptx
