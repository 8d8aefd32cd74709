// Requests to shared memory that cannot race with anything, so that they are only logged.
//
// A request is quiet if, by the latest clocks of the lines that it touches, every earlier access to
// them comes before it. Its changes to the records of granules wait in the log until a request that
// is not quiet touches one of its lines: then the log is worked off in order, with the clocks that
// each warp had at the time. A barrier of all warps discards the log instead, as no later access
// can race with an entry; only the fact that a store happened is remembered. So a tile that is
// written, read many times and written again costs one look at its lines per request.
//
// Bytes that the async proxy reads, such as an operand of wgmma, must also come after a proxy
// fence. A store that a barrier does not make visible to that proxy stays in the log, because a
// finding names it.
#include <algorithm>
#include <bit>

#include "checks/granules.hpp"
#include "warp.hpp"

namespace workbench::ptx {

// Logs a plain request if it is quiet. `changed`: lanes that change memory.
bool Shadow::log(const Warp& warp, Quiet kind, const Instruction& in, const u64* addresses,
                 u32 mask, u32 bytes, u32 changed) {
  if (lines_.empty() || times_worked_off_ > 2 * times_forgotten_ + 8192) return false;
  Pattern& pattern = warp.block->pattern(in, true, addresses, mask, bytes);
  if (!pattern.stays()) return false;
  const LineParts& parts = pattern.line_parts(addresses, scale_);
  if (parts.overlaps && kind != Quiet::read) {
    if (kind != Quiet::store) return false;
    const LaneGroups& groups = pattern.groups(addresses);
    for (int i = 0; i < groups.count; ++i)
      if (count_lanes(groups.lanes[i] & changed) > 1) return false;
  }
  // Never races: see store_alike.
  const bool is_alike = kind == Quiet::store && !changed;
  const bool writes = kind == Quiet::store || kind == Quiet::issue;
  const u32 agent = warp.agent, clock = clocks.now(agent), floor = clocks.floor(agent),
            since = clocks.since(agent);
  const u32 begin = static_cast<u32>(addresses[first_lane(mask)] >> scale_.line);
  for (u32 i = 0; i < parts.count; ++i) {
    const Line& line = line_at((begin + parts.line[i]) << scale_.line);
    const u64 part = parts.part[i];
    if (line.unsure || (writes && !kept_.empty() && kept_of(begin + parts.line[i]))) return false;
    const bool comes_after_stores = line.latest_store <= floor || !(line.new_stores & part) ||
                                    line.storing.before(agent, since);
    if (kind == Quiet::landing) {
      if (part & ~line.pending_parts || !(changed == mask || comes_after_stores)) return false;
    } else if (part & line.pending_parts) {
      return false;
    } else if (is_alike) {
      if (part & ~line.stored) return false;
    } else if (!comes_after_stores) {
      return false;
    } else if (kind == Quiet::read ? (part & ~line.stored) != 0
                                   : line.latest_read > floor && (line.new_reads & part) &&
                                         !line.reading.before(agent, since)) {
      return false;
    }
  }
  if (logged_ == most_entries_) make_room();
  const bool replaces = kind == Quiet::landing || (kind == Quiet::store && changed == mask);
  for (u32 i = 0; i < parts.count; ++i) {
    Line& line = lines_[begin + parts.line[i]];
    line.logged = log_number_;
    if (replaces)
      line.forgotten |= parts.part[i];
    else if (kind == Quiet::store)
      line.forgotten |= parts.part[i] & ~line.stored;
    note(line, kind, parts.part[i], parts.lanes[i], clock, agent);
  }
  // Without a change, the last store stays the same.
  if (kind == Quiet::store && !replaces)
    PTX_FOR_EACH_LANE (lane, changed)
      lines_[addresses[lane] >> scale_.line].forgotten |= scale_.part_of(addresses[lane], bytes);
  LogEntry& entry = add_entry(warp, kind, mask, static_cast<u32>(addresses[first_lane(mask)]),
                              warp.block->pc_of(in));
  entry.changed = changed;
  entry.pattern = &pattern;
  return true;
}

// The same for chunks that are read through the async proxy.
bool Shadow::log(const Asker& who, const Chunks& chunks, u32 base) {
  if (lines_.empty() || times_worked_off_ > 2 * times_forgotten_ + 8192) return false;
  const u32 floor = clocks.async_floor(who.warp), begin = base >> scale_.line;
  for (const Chunks::Line& one : chunks.lines) {
    const Line& line = line_at((begin + one.line) << scale_.line);
    if (line.unsure || line.latest_store > floor || one.part & (line.pending_parts | ~line.stored))
      return false;
  }
  if (logged_ == most_entries_) make_room();
  for (const Chunks::Line& one : chunks.lines) {
    Line& line = lines_[begin + one.line];
    line.logged = log_number_;
    note(line, Quiet::read, one.part, 1, who.access.clock, who.warp);
  }
  add_entry(who.self, Quiet::read_chunks, who.lanes, base, who.access.pc).chunks = &chunks;
  return true;
}

// Fills in everything that all entries have; the caller adds the lanes that changed something.
Shadow::LogEntry& Shadow::add_entry(const Warp& warp, Quiet kind, u32 mask, u32 first, s32 pc) {
  const u32 agent = warp.agent, clock = clocks.now(agent);
  latest_[agent] = std::max(latest_[agent], clock);
  if (knowledge_of_[agent] == kNoKnowledge) {
    if (knowledge_count_ == knowledge_.size()) knowledge_.emplace_back();
    knowledge_[knowledge_count_].clear();
    knowledge_of_[agent] = static_cast<u32>(knowledge_count_++);
  }
  if (kind > Quiet::read_chunks) written_[written_count_++] = static_cast<u32>(logged_);
  // Field by field: a copy of the whole entry would stall on its fields that were just written.
  LogEntry& entry = log_[logged_++];
  entry.warp = &warp;
  entry.mask = mask;
  entry.changed = 0;
  entry.first = first;
  entry.knowledge = knowledge_of_[agent];
  entry.clock = clock;
  entry.pc = pc;
  entry.lane_order = clocks.lane_order(agent);
  entry.steps = static_cast<u16>(std::min(clocks.step(agent) - clocks.since(agent), 0xffffu));
  entry.kind = kind;
  return entry;
}

Shadow::Access Shadow::LogEntry::access() const {
  return {clock, pc, u32{lane_order} << 16 | warp->agent * kLanes};
}

void Shadow::make_room() {
  if (clocks.agents() == 1) drop_repeated_reads();
  if (logged_ > most_entries_ / 2) work_off_log();
}

// Drops repeated reads, as of a warp that works on its own and reads much before its lanes wait for
// each other. A read adds nothing if there is an equal one of the same step.
void Shadow::drop_repeated_reads() {
  std::vector<u32> places(std::bit_ceil(4 * logged_), ~0u);
  std::size_t kept = 0;
  written_count_ = 0;
  for (std::size_t at = 0; at < logged_; ++at) {
    const LogEntry& entry = log_[at];
    if (entry.kind == Quiet::read) {
      u64 hash = reinterpret_cast<std::uintptr_t>(entry.pattern) + entry.first;
      hash = (hash ^ u64{entry.lane_order} << 40) * 0x9e3779b97f4a7c15u >> 32;
      const auto repeats = [&](const LogEntry& other) {
        return other.pattern == entry.pattern && other.first == entry.first &&
               other.mask == entry.mask && other.clock == entry.clock &&
               other.lane_order == entry.lane_order;
      };
      std::size_t place = hash % places.size();
      while (places[place] != ~0u && !repeats(log_[places[place]]))
        place = (place + 1) % places.size();
      if (places[place] != ~0u) continue;
      places[place] = static_cast<u32>(kept);
    } else if (!entry.is_read()) {
      written_[written_count_++] = static_cast<u32>(kept);
    }
    if (kept != at) log_[kept] = entry;
    ++kept;
  }
  times_forgotten_ += logged_ - kept;
  logged_ = kept;
}

void Shadow::forget_knowledge() {
  knowledge_count_ = 0;
  std::fill(knowledge_of_.begin(), knowledge_of_.end(), kNoKnowledge);
}

void Shadow::clear_log() {
  logged_ = 0;
  written_count_ = 0;
  log_number_ += 1;
  forget_knowledge();
}

void Shadow::begin_log() {
  knowledge_of_.resize(clocks.agents());
  clear_log();
  latest_.fill(0);
}

void Shadow::forget_log(u32 barrier) {
  if (lines_.empty()) return;
  for (u32 agent = 0; agent < clocks.agents(); ++agent)
    if (latest_[agent] > clocks.at_barrier(barrier, agent)) return;
  forget_entries(async_ ? clocks.async_at_barrier(barrier) : nullptr);
}

void Shadow::meet_lanes(u32 agent) {
  clocks.meet_lanes(agent);
  if (!lines_.empty() && clocks.agents() == 1) forget_entries(nullptr);
}

// Discards entries, because all earlier accesses come before all later ones. Keeps copies that are
// still under way and, if the async proxy reads at all, stores that are not visible to it: those
// later than the clocks of `visible`, by agent.
void Shadow::forget_entries(const u32* visible) {
  period_ += 1;
  if (!logged_) return;
  times_forgotten_ += logged_;
  // Entries kept; and copies at the front of these that have all landed.
  std::size_t kept = 0, landed = 0;
  for (std::size_t i = 0; i < written_count_; ++i) {
    const std::size_t at = written_[i];
    const LogEntry& entry = log_[at];
    const bool is_issue = entry.kind == Quiet::issue;
    if (entry.kind == Quiet::landing) {
      u32 left = entry.mask;
      for (std::size_t of = landed; of < kept && left; ++of)
        left &= ~take_landed(log_[of], entry, left);
      while (landed < kept && !log_[landed].mask) ++landed;
    }
    const bool stays = is_issue || (visible && entry.clock > visible[entry.warp->agent]);
    if (!is_issue && !stays) forgotten_ = entry.access();
    if (stays && kept++ != at) log_[kept - 1] = entry;
  }
  const auto last = std::copy_if(log_.get() + landed, log_.get() + kept, log_.get(),
                                 [](const LogEntry& entry) { return entry.mask != 0; });
  logged_ = static_cast<std::size_t>(last - log_.get());
  written_count_ = logged_;
  log_number_ += 1;
  forget_knowledge();  // all entries that are left come before the next access of any warp
  for (std::size_t at = 0; at < logged_; ++at) {
    written_[at] = static_cast<u32>(at);
    log_[at].knowledge = kNoKnowledge;
    const LineParts& parts = log_[at].pattern->line_parts();
    for (u32 i = 0; i < parts.count; ++i)
      lines_[(log_[at].first >> scale_.line) + parts.line[i]].logged = log_number_;
  }
}

// Removes from a copy under way those of `lanes` that a landing belongs to, and returns them.
u32 Shadow::take_landed(LogEntry& issued, const LogEntry& landing, u32 lanes) {
  if (issued.kind != Quiet::issue || issued.warp != landing.warp || issued.pc != landing.pc)
    return 0;
  lanes &= issued.mask;
  if (issued.pattern != landing.pattern || issued.first != landing.first) {
    u32 here[kLanes], there[kLanes], same = 0;
    issued.pattern->addresses_from(issued.first, here);
    landing.pattern->addresses_from(landing.first, there);
    PTX_FOR_EACH_LANE (lane, lanes) same |= (here[lane] == there[lane] ? 1u : 0u) << lane;
    lanes = same;
  }
  issued.mask &= ~lanes;
  return lanes;
}

void Shadow::work_off_log() {
  if (!logged_) return;
  times_worked_off_ += logged_;
  for (std::size_t at = 0; at < logged_; ++at) work_off(log_[at]);
  clear_log();
}

// Works off an entry with the clocks that its warp had at the time.
void Shadow::work_off(const LogEntry& entry) {
  const u32 agent = entry.warp->agent;
  const u32* seen = clocks.seen(agent).data();
  if (entry.knowledge != kNoKnowledge && !knowledge_[entry.knowledge].empty())
    seen = knowledge_[entry.knowledge].data();
  u32 floor = entry.clock - 1;
  for (u32 other = 0; other < clocks.agents(); ++other)
    if (other != agent) floor = std::min(floor, seen[other]);
  Asker who{.warp = agent,
            .lane = 0,
            .lanes = 0,
            .bit = agent < 32 ? 1u << agent : 0,
            .seen = seen,
            .start = clocks.start(),
            .floor = floor,
            .steps = entry.steps,
            .self = *entry.warp,
            .access = entry.access()};
  if (entry.kind == Quiet::read_chunks) return work_off_chunks(who, entry);
  const u32 bytes = entry.pattern->bytes();
  alignas(64) u32 addresses[kLanes];
  entry.pattern->addresses_from(entry.first, addresses);
  if (entry.kind == Quiet::read) {
    LaneGroups groups;
    group_by_address(addresses, entry.mask, bytes, groups);
    for (int i = 0; i < groups.count; ++i) {
      const u32 lanes = groups.lanes[i];
      set_lanes(who, *entry.warp, lanes);
      const u32 address = addresses[who.lane];
      recall(lines_[address >> scale_.line], address, bytes);
      for_each(address, bytes, false, [&](Granule& g) {
        if (read_stored(who, g)) return;
        Asker one = who;
        PTX_FOR_EACH_LANE (lane, lanes) {
          set_lanes(one, *entry.warp, 1u << lane);
          record_read(one, g);
        }
      });
    }
    return;
  }
  PTX_FOR_EACH_LANE (lane, entry.mask) {
    set_lanes(who, *entry.warp, 1u << lane);
    const u32 address = addresses[lane];
    Line& line = lines_[address >> scale_.line];
    if (entry.kind == Quiet::issue) {
      recall(line, address, bytes);
      recorded_copies_ = true;
      for_each(address, bytes, false,
               [&](Granule& g) { g.pending = entry.pc << 10 | entry.warp->thread(lane); });
      continue;
    }
    const bool changes = entry.changed >> lane & 1;
    if (!changes) recall(line, address, bytes);
    for_each(address, bytes, changes, [&](Granule& g) {
      if (entry.kind == Quiet::landing || !store_alike(who, g, changes)) {
        g.pending = -1;
        record_write(who, g);
      }
    });
    line.forgotten &= ~scale_.part_of(address, bytes);
  }
}

void Shadow::work_off_chunks(Asker& who, const LogEntry& entry) {
  set_lanes(who, *entry.warp, entry.mask);
  for (const u32 offset : entry.chunks->offsets) {
    const u32 address = entry.first + offset;
    recall(lines_[address >> scale_.line], address, Chunks::kBytes);
    for_each(address, Chunks::kBytes, false, [&](Granule& g) {
      if (!read_stored(who, g)) record_read(who, g);
    });
  }
}

// Restores a last store to the granules of an access whose own was discarded: any store that comes
// before all later accesses.
void Shadow::recall(Line& line, u32 address, u32 bytes) {
  const u64 all = scale_.part_of(address, bytes), lost = line.forgotten & all;
  if (!lost) return;
  const u32 warp = forgotten_.thread() / kLanes;
  const auto give = [&](u32 from, u32 size) {
    if (!(lost & scale_.part_of(from, size))) return;
    for_each(from, size, false, [&](Granule& g) {
      g.write = g.weak = forgotten_;
      g.weak_warps = 1u << warp, g.weak_lanes = 1, g.pending = -1;
    });
  };
  const u32 granule = std::max(1u << shift_, 1u << scale_.part), unit = 1u << kUnitShift;
  for (u32 at = address; at < address + bytes;) {
    const bool whole =
        at + unit <= address + bytes && at % unit == 0 && !(scale_.part_of(at, unit) & ~lost);
    give(at, whole ? unit : granule);
    at += whole ? unit : granule;
  }
  line.forgotten &= ~all;
}

}  // namespace workbench::ptx
