#include "checks/global_shadow.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "checks/source_watch.hpp"
#include "checks/written.hpp"
#include "memory/cluster.hpp"

namespace workbench::ptx {
namespace {

constexpr u16 kUnknownPc = 0xffff;
// At most kExtras extra records for every kSectors sectors.
constexpr std::size_t kExtras = 13, kSectors = 5;

inline u16 short_pc(s32 pc) { return pc < kUnknownPc ? static_cast<u16>(pc) : kUnknownPc; }
inline s32 long_pc(u16 pc) { return pc == kUnknownPc ? -1 : pc; }

bool has(const std::vector<u64>& blocks, u32 index) {
  return index / 64 < blocks.size() && (blocks[index / 64] >> index % 64 & 1);
}

constexpr u32 kLineSectors = 4;
constexpr u64 kReserved = 1 << 16;  // sectors of a buffer for whose strong writes room is reserved

inline u64 sectors_of(const Buffer& buffer) {
  return ((buffer.address + buffer.size + 31) >> 5) - (buffer.address >> 5);
}
inline u64 lines_of(const Buffer& buffer) {
  return ((buffer.address + buffer.size + 127) >> 7) - (buffer.address >> 7);
}

// The lines in each of at most 64 parts of a buffer, as a shift.
u32 part_shift_of(const Buffer& buffer) {
  const u64 lines = lines_of(buffer);
  return lines <= 64 ? 0 : 64 - static_cast<u32>(__builtin_clzll((lines - 1) / 64));
}

bool line_is_written(const Buffer& buffer, u64 first) {
  if (!buffer.written) return true;
  u32 all = ~0u;
  for (u32 k = 0; k < kLineSectors; ++k) all &= written_of(buffer, first + k);
  return all == ~0u;
}

// Converts a mask of bytes into a mask of pairs of bytes, and back.
u16 pairs_of(u32 bytes) {
  u32 pairs = 0;
  for (u32 i = 0; i < 16; ++i) pairs |= (bytes >> 2 * i & 3 ? 1u : 0u) << i;
  return static_cast<u16>(pairs);
}
u32 bytes_of(u16 pairs) {
  u32 bytes = 0;
  for (u32 i = 0; i < 16; ++i) bytes |= (pairs >> i & 1 ? 3u : 0u) << 2 * i;
  return bytes;
}

// The words of four bytes that bytes of a sector touch, and those that they fill.
u32 words_of(u32 bytes) {
  u32 words = 0;
  for (u32 i = 0; i < 8; ++i) words |= (bytes >> 4 * i & 15 ? 1u : 0u) << i;
  return words;
}
u32 whole_words_of(u32 bytes) { return ~words_of(~bytes) & 255; }
u32 bytes_of_words(u32 words) {
  u32 bytes = 0;
  for (u32 i = 0; i < 8; ++i) bytes |= (words >> i & 1 ? 15u : 0u) << 4 * i;
  return bytes;
}

// Adds blocks to a set. Returns true if some were missing.
bool unite(std::vector<u64>& into, const std::vector<u64>& from) {
  if (into.size() < from.size()) into.resize(from.size());
  u64 fresh = 0;
  for (std::size_t i = 0; i < from.size(); ++i) fresh |= from[i] & ~into[i], into[i] |= from[i];
  return fresh != 0;
}

}  // namespace

// ---- pages ----

std::mutex ShadowPages::mutex_;
ShadowPages::Pages ShadowPages::idle_;

void ShadowPages::Pages::free() {
  std::free(sectors), std::free(lines);
  *this = {};
}

ShadowPages::ShadowPages(u64 sectors, u64 lines, u64 blocks) {
  {
    std::lock_guard lock(mutex_);
    std::swap(pages_, idle_);
  }
  if (pages_.capacity < sectors || pages_.lines_capacity < lines ||
      u64{pages_.next} + blocks + 1 > UINT32_MAX) {
    pages_.free();
    pages_.sectors = zeros<GlobalSector>(sectors).release();
    pages_.lines = zeros<GlobalLine>(lines).release();
    pages_.capacity = sectors, pages_.lines_capacity = lines;
    if (!pages_.sectors || !pages_.lines) {
      pages_.free();
      throw std::bad_alloc();
    }
  }
  pages_.strong.clear();
  base_ = pages_.next;
  pages_.next += static_cast<u32>(blocks) + 1;
}

ShadowPages::~ShadowPages() {
  if (pages_.strong.capacity() > 2 * kReserved) pages_.strong = {};
  if (pages_.capacity <= kKept) {
    std::lock_guard lock(mutex_);
    if (pages_.capacity >= idle_.capacity) std::swap(pages_, idle_);
  }
  pages_.free();
}

// ---- requests ----

GlobalShadow::GlobalShadow(Launch& launch) : launch_(launch), shared_(launch.threads > 1) {
  for (const Buffer& buffer : launch.buffers) {
    const u64 sectors = sectors_of(buffer);
    sectors_ += sectors, lines_ += lines_of(buffer);
  }
  // A launch with more blocks than there are numbers runs unchecked; it would take days anyway.
  if (static_cast<u64>(launch.blocks()) >= UINT32_MAX / 2) return;
  pages_ = std::make_unique<ShadowPages>(sectors_, lines_, static_cast<u64>(launch.blocks()));
  base_ = pages_->base(), strong_ = &pages_->strong();
  most_extras_ = kExtras * sectors_ / kSectors;
  extras_.reserve(most_extras_);  // only pages that are used take memory
  GlobalSector* next = pages_->sectors();
  GlobalLine* next_line = pages_->lines();
  for (Buffer& buffer : launch.buffers) {
    buffer.shadow = next, buffer.lines = next_line;
    touched_.push_back({0, part_shift_of(buffer)});
    next += sectors_of(buffer), next_line += lines_of(buffer);
  }
}

u64 GlobalShadow::bytes() const {
  u64 total = pages_ ? sectors_ * sizeof(GlobalSector) + lines_ * sizeof(GlobalLine) +
                           extras_.size() * sizeof(Extra) + strong_->size() * sizeof(StrongWrites)
                     : 0;
  for (std::size_t i = 0; i < strong_of_.size(); ++i)
    total += strong_of_[i] ? sectors_of(launch_.buffers[i]) * sizeof(u32) : 0;
  for (const Buffer& buffer : launch_.buffers)
    total += buffer.written ? sectors_of(buffer) * sizeof(u32) : 0;
  return total;
}

GlobalShadow::Asking GlobalShadow::asking(Warp& warp, const Instruction& in, const u64* addresses,
                                          u32 mask, u32 bytes) const {
  return asking(warp, in, addresses, mask, bytes, warp.block->shadow->clocks.since(warp.agent));
}

GlobalShadow::Asking GlobalShadow::asking(Warp& warp, const Instruction& in, const u64* addresses,
                                          u32 mask, u32 bytes, u32 since) const {
  const Block& block = *warp.block;
  const Clocks& clocks = block.shadow->clocks;
  const u32 index = static_cast<u32>(warp.index);
  return {warp,
          in,
          addresses,
          mask,
          bytes,
          base_ + 1 + static_cast<u32>(block.index),
          index,
          index << kWarpShift | std::min(since, kLatest),
          index << kWarpShift | std::min(clocks.step(warp.agent), kLatest),
          short_pc(block.pc_of(in)),
          {0, 0, 0}};
}

// Calls on_sector(buffer, piece, sector of the shadow) for each piece of a request. For a line that
// is not open, first calls on_line(buffer, piece, line), and goes on to its sectors only if that
// returns false.
template <class OnSector, class OnLine>
void GlobalShadow::for_each_piece(const Asking& who, const Divided& divided, OnSector on_sector,
                                  OnLine on_line) {
  const Block& block = *who.warp.block;
  const LanePieces& pieces = divided.pieces;
  const Buffer* buffer = block.last_buffer[static_cast<std::size_t>(block.pc_of(who.in))];
  const auto held = hold();
  // The checks mostly wait for these lines to arrive, so request all of them first.
  if (buffer && buffer->shadow) {
    const u64 first = buffer->address >> 5, sectors = sectors_of(*buffer);
    for (int i = 0; i < pieces.count; ++i) {
      const u64 sector = divided.base + pieces.all[i].sector;
      if (sector - first >= sectors) continue;
      __builtin_prefetch(buffer->lines + (sector / kLineSectors - first / kLineSectors), 1);
      if (!pieces.all[i].line) __builtin_prefetch(buffer->shadow + (sector - first), 1);
    }
  }
  for (int i = 0; i < pieces.count; ++i) {
    Piece piece = pieces.all[i];
    piece.sector += divided.base, piece.changed |= piece.bytes & divided.changed;
    const u64 address = piece.sector << 5 | static_cast<u64>(__builtin_ctz(piece.bytes));
    if (!buffer || address - buffer->address >= buffer->size) buffer = block.find(address, 1);
    if (!buffer || !buffer->shadow) continue;
    touch(*buffer, piece.sector / kLineSectors - (buffer->address >> 7));
    GlobalLine& line =
        buffer->lines[piece.sector / kLineSectors - (buffer->address >> 5) / kLineSectors];
    GlobalSector* sector = buffer->shadow + (piece.sector - (buffer->address >> 5));
    const bool is_open = line.block > base_ && line.state == GlobalLine::open;
    if (piece.line && !is_open && on_line(*buffer, piece, line)) continue;
    if (!is_open) open(line, who, sector - piece.sector % kLineSectors);
    if (!piece.line) {
      on_sector(*buffer, piece, *sector);
      continue;
    }
    for (u32 k = 0; k < kLineSectors; ++k) {
      Piece part = piece;
      part.sector += k, part.lanes = piece.lanes.from(k);
      on_sector(*buffer, part, sector[k]);
    }
  }
}

// `Again`: the bytes have been read before; the read is extended to now.
template <bool Again>
void GlobalShadow::read_pieces(Warp& warp, const Instruction& in, const u64* addresses, u32 mask,
                               u32 bytes) {
  Pattern& pattern = warp.block->pattern(in, false, addresses, mask, bytes);
  const Divided divided{pattern.pieces(addresses), pattern.base(addresses), 0};
  if (divided.pieces.lines && read_lines(warp, in, divided.pieces, divided.base)) return;
  Asking who = asking(warp, in, addresses, mask, bytes);
  warp.block->shadow->clocks.touch(warp.agent);
  if (!Again && launch_.overlapped) check_overlap(who, false);
  const auto on_sector = [&](const Buffer& buffer, const Piece& piece, GlobalSector& sector) {
    if (!Again) check_written(who, buffer, piece);
    if (const StrongWrites* strong = strong_writes(buffer, piece))
      check_strong(who, piece, piece.bytes, *strong);
    if (!fresh(sector)) {
      sector = {};
      sector.read = read_of(who, piece.bytes, piece.lanes);
      return;
    }
    if (sector.write.block > base_) check_writes(who, piece, sector);
    const bool again = sector.read.block == who.block && sector.read.when == who.when &&
                       sector.read.lanes == piece.lanes && !(piece.bytes & ~sector.read.bytes);
    if (!again && !read_by_two(who, piece.bytes, sector)) record_read(who, piece, sector);
  };
  for_each_piece(who, divided, on_sector,
                 [&](const Buffer& buffer, const Piece& piece, GlobalLine& line) {
                   return line_is_written(buffer, piece.sector) && read_line(who, piece, line);
                 });
}

void GlobalShadow::read(Warp& warp, const Instruction& in, const u64* addresses, u32 mask,
                        u32 bytes) {
  read_pieces<false>(warp, in, addresses, mask, bytes);
}

void GlobalShadow::read_again(Warp& warp, const Instruction& in, const u64* addresses, u32 mask,
                              u32 bytes) {
  read_pieces<true>(warp, in, addresses, mask, bytes);
}

void GlobalShadow::check_sources(Warp& warp, const Instruction& in, const u64* addresses, u32 lanes,
                                 u32 bytes, int by) const {
  const SourceWatch* const sources = warp.block->sources;
  if (!sources || !lanes) return;
  const Asking who = asking(warp, in, addresses, lanes, bytes);
  sources->check(warp, in, addresses, lanes, bytes, by, [&](s64 block, u32 index, u32 step) {
    return published(base_ + 1 + static_cast<u32>(block),
                     index << kWarpShift | std::min(step, kLatest), who);
  });
}

void GlobalShadow::check_sources(const Asking& who, u32 lanes, const LanePieces& pieces,
                                 u64 base) const {
  const SourceWatch* const sources = who.warp.block->sources;
  if (!sources || !lanes || who.in.flags & kAsyncProxy || !sources->near(pieces, base)) return;
  check_sources(who.warp, who.in, who.addresses, lanes, who.width, -1);
}

void GlobalShadow::write(Warp& warp, const Instruction& in, const u64* addresses, u32 mask,
                         u32 bytes, u32 changed) {
  Asking who = asking(warp, in, addresses, mask, bytes);
  if (launch_.overlapped) check_overlap(who, true);
  const auto on_sector = [&](const Buffer& buffer, const Piece& piece, GlobalSector& sector) {
    mark_written(buffer, piece.sector, piece.bytes);
    if (StrongWrites* strong = strong_writes(buffer, piece); strong && piece.changed) {
      check_strong(who, piece, piece.changed, *strong);
      for (GlobalAccess& access : strong->writes) access.bytes &= ~piece.changed;
    }
    if (fresh(sector)) return write_sector(who, piece, sector);
    sector = {};
    sector.write = write_of(who, piece.bytes, piece.lanes);
  };
  const auto on_line = [&](const Buffer& buffer, const Piece& piece, GlobalLine& line) {
    if (!changed || !write_line(who, piece, line)) return false;
    for (u32 k = 0; k < kLineSectors; ++k) mark_written(buffer, piece.sector + k, ~0u);
    return true;
  };
  Pattern& pattern = warp.block->pattern(in, false, addresses, mask, bytes);
  const LanePieces& known = pattern.pieces(addresses);
  check_sources(who, changed & mask, known, pattern.base(addresses));
  if (!changed || (changed == mask && !known.repeats))
    return for_each_piece(who, {known, pattern.base(addresses), changed ? ~0u : 0u}, on_sector,
                          on_line);
  LanePieces pieces;
  split_by_lanes(addresses, mask, bytes, changed, pieces);
  if (pieces.clashing) report_clash(who, pieces.clashing);
  for_each_piece(who, {pieces, 0, 0}, on_sector, on_line);
}

void GlobalShadow::strong(Warp& warp, const Instruction& in, const u64* addresses, u32 mask,
                          u32 bytes, bool is_write, bool is_read) {
  const Clocks& clocks = warp.block->shadow->clocks;
  const bool orders = !(in.flags & (kUnordered | kAsyncProxy));
  Asking who = asking(warp, in, addresses, mask, bytes,
                      orders ? clocks.access_since(warp.agent) : clocks.since(warp.agent));
  if (launch_.overlapped) check_overlap(who, is_write);
  // An atomic acquires before it releases: it publishes what it has just acquired.
  if (is_read && (shared_ || !flags_.empty()))
    PTX_FOR_EACH_LANE (lane, mask) acquire(warp, addresses[lane], in.flags & kAcquire);
  Pattern& pattern = warp.block->pattern(in, false, addresses, mask, bytes);
  const auto on_sector = [&](const Buffer& buffer, const Piece& piece, GlobalSector& sector) {
    if (is_read) check_written(who, buffer, piece);
    if (is_write) mark_written(buffer, piece.sector, piece.bytes);
    StrongWrites* strong = strong_writes(buffer, piece);
    if (!is_write) {
      if (!strong) return;
      const bool again = strong->seen_by == who.block || !strong->seen;
      strong->seen_by = again ? who.block : StrongWrites::kAll;
      strong->seen |= static_cast<u8>(words_of(piece.bytes));
      return;
    }
    if (sector.write.block > base_) check_writes(who, piece, sector);
    if (fresh(sector)) check_reads(who, piece, sector);
    record_strong(who, piece, strong ? *strong : add_strong_writes(buffer, piece));
  };
  if (is_write) check_sources(who, mask, pattern.pieces(addresses), pattern.base(addresses));
  const auto held = hold();
  request_strong(*warp.block, warp.block->pc_of(in), pattern.pieces(addresses),
                 pattern.base(addresses));
  for_each_piece(who, {pattern.pieces(addresses), pattern.base(addresses), 0}, on_sector,
                 [](const Buffer&, const Piece&, GlobalLine&) { return false; });
  if (!is_write) return;
  if (orders) release_flags(warp, in, addresses, mask, true);
  publish(warp, addresses, mask);
}

// ---- lines ----

// Returns true if the lines had no access so far, or only one by the same lanes just now, which is
// nearly always so in a streaming kernel. If it returns false, its changes are those that read_line
// would make.
bool GlobalShadow::read_lines(const Warp& warp, const Instruction& in, const LanePieces& pieces,
                              u64 base) {
  const Block& block = *warp.block;
  const s32 pc = block.pc_of(in);
  const Buffer* const buffer = block.last_buffer[static_cast<std::size_t>(pc)];
  if (!buffer || !buffer->shadow || buffer->written || launch_.overlapped) return false;
  Clocks& clocks = block.shadow->clocks;
  clocks.touch(warp.agent);
  const u32 step = std::min(clocks.step(warp.agent), kLatest);
  GlobalLine mine{base_ + 1 + static_cast<u32>(block.index),
                  static_cast<u32>(warp.index) << kWarpShift | step, short_pc(pc)};
  const auto held = hold();
  const u64 first = buffer->address >> 7;
  for (int i = 0; i < pieces.count; ++i) {
    const u64 sector = base + pieces.all[i].sector;
    if ((sector << 5) - buffer->address >= buffer->size) return false;
    touch(*buffer, sector / kLineSectors - first);
    GlobalLine& line = buffer->lines[sector / kLineSectors - first];
    mine.lanes = pieces.all[i].lanes;
    if (line.block <= base_)
      line = mine;
    else if (line.state != GlobalLine::read || line.block != mine.block || line.when != mine.when ||
             line.lanes != mine.lanes)
      return false;
  }
  return true;
}

// Returns false if the line must be opened first: whenever more has to be recorded than one access
// that comes after another.
bool GlobalShadow::read_line(const Asking& who, const Piece& piece, GlobalLine& line) const {
  if (line.block > base_) {
    if (line.state != GlobalLine::read) return false;
    if (same(line, who)) {
      if (line.lanes != piece.lanes) return false;
      if (line.when == who.when) return true;
    } else if (!before(line, who)) {
      return false;
    }
  }
  const bool stored = line.block > base_ && line.stored;
  line = {who.block, who.when, who.pc, piece.lanes, GlobalLine::read, stored};
  return true;
}

bool GlobalShadow::write_line(const Asking& who, const Piece& piece, GlobalLine& line) const {
  if (line.block > base_) {
    const bool of_each_lane = same(line, who) && line.lanes == piece.lanes && piece.lanes.single();
    if (!of_each_lane && (same(line, who) || !before(line, who))) return false;
  }
  line = {who.block, who.since, who.pc, piece.lanes, GlobalLine::written, true};
  return true;
}

// Copies a line's record into its sectors.
void GlobalShadow::open(GlobalLine& line, const Asking& who, GlobalSector* sectors) const {
  if (line.block > base_) {
    for (u32 k = 0; k < kLineSectors; ++k) {
      sectors[k] = {};
      GlobalAccess& access = line.state == GlobalLine::read ? sectors[k].read : sectors[k].write;
      access = {line.block, line.when, ~0u, line.pc, line.lanes.from(k)};
    }
  }
  line.stored &= line.block > base_;
  line.block = who.block, line.state = GlobalLine::open;
}

// ---- one sector ----

template <class Access>
bool GlobalShadow::before(const Access& access, const Asking& who) const {
  const Block& block = *who.warp.block;
  const u32 warp = access.when >> kWarpShift;
  if (access.block == who.block && warp == who.index)
    return !same(access, who) || (who.when & kLatest) == kLatest;
  u32 rank = block.rank;
  if (access.block != who.block) {
    const auto& blocks = block.cluster->blocks;
    for (rank = 0;
         rank < blocks.size() && base_ + 1 + static_cast<u32>(blocks[rank]->index) != access.block;)
      ++rank;
    if (rank == blocks.size()) return published(access.block, access.when, who);
  }
  const Clocks& clocks = block.shadow->clocks;
  const u32 agent = rank * static_cast<u32>(block.warps->size()) + warp;
  if ((access.when & kLatest) < clocks.step_after(agent, clocks.since_start(who.warp.agent, agent)))
    return true;
  return access.block != who.block && published(access.block, access.when, who);
}

// Bytes that both accesses touch while neither comes before the other. Where both belong to one
// step, between_lanes(bytes) gives the bytes that count.
template <class F>
inline u32 GlobalShadow::unordered(const GlobalAccess& access, const Asking& who, u32 bytes,
                                   F between_lanes) const {
  const u32 both = access.bytes & bytes;
  if (!both || before(access, who)) return 0;
  return same(access, who) ? between_lanes(both) : both;
}

// Visits the extra records and drops those for which keep(extra) is false.
template <class F>
void GlobalShadow::for_each_extra(GlobalSector& sector, F keep) {
  u32 last = 0;  // last record that was kept
  for (u32 index = sector.more; index;) {
    Extra& extra = extras_[index - 1];
    const u32 next = extra.next;
    if (keep(extra)) {
      last = index;
    } else {
      if (last)
        extras_[last - 1].next = next & kMostIndex;
      else
        sector.more = next;
      extra.next = free_extra_ & kMostIndex, free_extra_ = index;
    }
    index = next;
  }
}

void GlobalShadow::add(GlobalSector& sector, const GlobalAccess& access, bool is_write) {
  u32 index = free_extra_;
  if (index) {
    free_extra_ = extras_[index - 1].next;
  } else if (extras_.size() < most_extras_) {
    extras_.emplace_back();
    index = static_cast<u32>(extras_.size());
  } else if (sector.more) {
    extras_[sector.more - 1] = {access, extras_[sector.more - 1].next, is_write};
    return;
  } else {
    return;
  }
  extras_[index - 1] = {access, sector.more & kMostIndex, is_write};
  sector.more = index;
}

// Reports bytes that are read, or changed by a strong access, before anything (or this warp) stored
// them.
void GlobalShadow::check_writes(Asking& who, const Piece& piece, const GlobalSector& sector) const {
  const auto between_lanes = [&](const GlobalAccess& access) {
    return [&, lanes = access.lanes](u32 bytes) { return piece.lanes.beyond(lanes, bytes); };
  };
  const auto for_each_write = [&](auto function) {
    function(sector.write);
    for (u32 i = sector.more; i; i = extras_[i - 1].next)
      if (extras_[i - 1].is_write) function(extras_[i - 1].access);
  };
  u32 open = 0;
  for_each_write([&](const GlobalAccess& access) {
    open |= unordered(access, who, piece.bytes, between_lanes(access));
  });
  if (sector.agreed) open &= ~bytes_of(sector.agreed);
  if (!open) return;
  u32 own = 0;  // bytes that the request stores itself
  for_each_write([&](const GlobalAccess& access) {
    if (access.block != who.block || access.when >> kWarpShift != who.index) return;
    const u32 both = access.bytes & piece.bytes;
    own |= same(access, who) ? both & ~piece.lanes.beyond(access.lanes, both) : both;
  });
  for_each_write([&](const GlobalAccess& access) {
    if (const u32 bytes = unordered(access, who, open & ~own, between_lanes(access)))
      report(who, piece, bytes, access);
  });
}

// Reports bytes that a strong access writes, and that plain loads have read which do not come
// before it.
void GlobalShadow::check_reads(Asking& who, const Piece& piece, const GlobalSector& sector) const {
  const auto meet = [&](const GlobalAccess& access) {
    const u32 open = unordered(access, who, piece.bytes,
                               [&](u32 both) { return piece.lanes.apart(access.lanes, both); });
    if (open) report(who, piece, open, access, true);
  };
  meet(sector.read);
  for (u32 i = sector.more; i; i = extras_[i - 1].next)
    if (!extras_[i - 1].is_write) meet(extras_[i - 1].access);
}

// Reports bytes of a plain access that strong ones have written which its block has not seen and
// does not come after.
void GlobalShadow::check_strong(Asking& who, const Piece& piece, u32 bytes,
                                const StrongWrites& known) const {
  if (known.seen && (known.seen_by == who.block || known.seen_by == StrongWrites::kAll))
    bytes &= ~bytes_of_words(known.seen);
  for (const GlobalAccess& access : known.writes) {
    const u32 open = unordered(access, who, bytes,
                               [&](u32 both) { return piece.lanes.apart(access.lanes, both); });
    if (open) report(who, piece, open, access);
  }
  if (known.parted == StrongWrites::kNone) return;
  GlobalAccess access = known.writes[known.parted];
  const u32 both = access.bytes & bytes;
  if (!both || !same(access, who)) return;
  for (u32 word = 0; word < 8; ++word) {
    const u32 part = both & 15u << 4 * word;
    if (!part || known.lane_of[word] == StrongWrites::kSeveral) continue;
    access.lanes = Lanes::one(known.lane_of[word]);
    if (const u32 open = piece.lanes.apart(access.lanes, part)) report(who, piece, open, access);
  }
}

// Requests the records of strong writes, for which the checks would wait otherwise.
void GlobalShadow::request_strong(const Block& block, s32 pc, const LanePieces& pieces,
                                  u64 base) const {
  const Buffer* buffer = block.last_buffer[static_cast<std::size_t>(pc)];
  if (strong_->empty() || !buffer || !buffer->shadow || !strong_of_[index_of(*buffer)]) return;
  const u32* const places = strong_of_[index_of(*buffer)].get();
  const u64 first = buffer->address >> 5, sectors = sectors_of(*buffer);
  for (int i = 0; i < pieces.count; ++i) {
    const u64 sector = base + pieces.all[i].sector - first;
    if (sector < sectors && places[sector]) __builtin_prefetch(&(*strong_)[places[sector] - 1], 1);
  }
}

StrongWrites& GlobalShadow::add_strong_writes(const Buffer& buffer, const Piece& piece) {
  if (strong_of_.empty()) strong_of_.resize(launch_.buffers.size());
  std::unique_ptr<u32[]>& places = strong_of_[index_of(buffer)];
  if (!places) {
    places = std::make_unique<u32[]>(sectors_of(buffer));
    // Only pages that are used take memory.
    strong_->reserve(strong_->size() + std::min(sectors_of(buffer), kReserved));
  }
  strong_->emplace_back();
  places[piece.sector - (buffer.address >> 5)] = static_cast<u32>(strong_->size());
  return strong_->back();
}

// Adds a piece to a write of the same step whose lanes no rule gives.
void GlobalShadow::add_lanes(StrongWrites& known, u32 which, const Piece& piece) {
  GlobalAccess& access = known.writes[which];
  const u32 at = static_cast<u32>(__builtin_ctz(piece.bytes)) / 4;
  const s32 lane = piece.lanes.only();
  if (known.parted == which && lane >= 0 && !(piece.bytes & ~(15u << 4 * at))) {
    const bool again = access.bytes >> 4 * at & 15;
    known.lane_of[at] = again ? StrongWrites::kSeveral : static_cast<u8>(lane);
    access.bytes |= piece.bytes;
    return;
  }
  u32 words = 0;  // with lanes so far
  const auto note = [&](u32 bytes, const Lanes& lanes) {
    for (u32 word = 0; word < 8; ++word) {
      const u32 part = bytes & 15u << 4 * word;
      if (!part) continue;
      const u32 first = static_cast<u32>(__builtin_ctz(part));
      const u32 by = words >> word & 1 || !lanes.known() ? 0 : lanes.at(first);
      const u32 own = by ? static_cast<u32>(first_lane(by)) : 0;
      const bool single = by && !(by & (by - 1)) && !lanes.apart(Lanes::one(own), part);
      known.lane_of[word] = single ? static_cast<u8>(own) : StrongWrites::kSeveral;
      words |= 1u << word;
    }
  };
  if (known.parted != which) {
    note(access.bytes, access.lanes);
    known.parted = static_cast<u8>(which);
  } else {
    words = words_of(access.bytes);
  }
  note(piece.bytes, piece.lanes);
  access.bytes |= piece.bytes, access.lanes = Lanes::unknown();
}

// Of one warp one record is kept. Dropping bytes of a record, or giving it an earlier step, can
// only lose a race.
void GlobalShadow::record_strong(const Asking& who, const Piece& piece, StrongWrites& known) const {
  const u32 bytes = piece.bytes;
  if (known.seen) known.seen &= static_cast<u8>(~whole_words_of(bytes));
  const GlobalAccess fresh = read_of(who, bytes, piece.lanes);
  u32 mine = StrongWrites::kNone;
  u32 inside = 0, unused = 0;  // records of the block's other warps, and those of no bytes
  for (u32 i = 0; i < StrongWrites::kNone; ++i) {
    GlobalAccess& access = known.writes[i];
    if (access.block == who.block && access.when >> kWarpShift == who.index) mine = i;
    // An atomic that uses the old value has seen all before it.
    if (who.in.flags & kUsesOld) access.bytes &= ~bytes;
    inside |= (access.block == who.block ? 1u : 0u) << i;
    unused |= (access.bytes ? 0u : 1u) << i;
  }
  if (mine != StrongWrites::kNone) {
    GlobalAccess& access = known.writes[mine];
    if (access.when == who.when && access.bytes) {
      if (access.lanes == piece.lanes && access.lanes.known())
        access.bytes |= bytes;
      else
        add_lanes(known, mine, piece);
      return;
    }
    if (known.parted == mine) known.parted = StrongWrites::kNone;
    const Clocks& clocks = who.warp.block->shadow->clocks;
    const u32 agent = who.warp.agent, clock = clocks.since_start(agent, agent);
    // Since its clock began the warp has published nothing, so that to others its steps are one.
    const bool alike = access.bytes & ~bytes && (access.when & kLatest) < kLatest &&
                       (access.when & kLatest) >= clocks.step_after(agent, clock - 1);
    if (alike)
      access.bytes |= bytes, access.lanes = Lanes::unknown();
    else
      access = fresh;
    return;
  }
  const u32 victims = unused ? unused : count_lanes(inside) > 1 ? inside : inside ? ~inside & 7 : 7;
  do known.turn = static_cast<u8>((known.turn + 1) % StrongWrites::kNone);
  while (!(victims >> known.turn & 1));
  if (known.parted == known.turn) known.parted = StrongWrites::kNone;
  known.writes[known.turn] = fresh;
}

// Whether two other blocks have read these bytes, unordered with every later access, and the asking
// block has not accessed them: then record_read would change nothing. Returns false if unsure.
bool GlobalShadow::read_by_two(const Asking& who, u32 bytes, const GlobalSector& sector) const {
  if (!flags_.empty() || who.warp.block->cluster->blocks.size() > 1) return false;
  u32 once = 0, twice = 0;
  const auto meet = [&](const GlobalAccess& access) {
    twice |= once & access.bytes, once |= access.bytes;
    return access.block > base_ && access.block != who.block;
  };
  if (!meet(sector.read)) return false;
  for (u32 i = sector.more; i; i = extras_[i - 1].next)
    if (!extras_[i - 1].is_write && !meet(extras_[i - 1].access)) return false;
  return !(bytes & ~twice);
}

// Whatever comes after this read also comes after all that this read comes after; so the latter are
// dropped for the bytes that it touches.
void GlobalShadow::record_read(const Asking& who, const Piece& piece, GlobalSector& sector) {
  const u32 bytes = piece.bytes;
  u32 once = 0, twice = 0;              // bytes with that many concurrent readers in other warps
  u32 lanes_once = 0, lanes_twice = 0;  // the same for other lanes of this warp
  bool found = false, by_others_earlier = false;
  GlobalAccess *mine_already = nullptr,
               // Read records of this warp at another instruction, and of other lanes.
      *lanes_already = nullptr;
  const auto meet = [&](GlobalAccess& access) {
    if (access.block <= base_) return false;
    if (same(access, who)) {
      if (access.lanes == piece.lanes) {
        // A write that races with the older read also races with this one.
        if (access.when != who.when)
          access.bytes &= ~bytes;
        else if (access.pc == who.pc || !(bytes & ~access.bytes))
          access.bytes |= bytes, found = true;
        else
          mine_already = &access;
      } else {
        lanes_twice |= lanes_once & access.bytes, lanes_once |= access.bytes,
            lanes_already = &access;
        by_others_earlier |= access.when != who.when;
      }
    } else if (access.bytes & bytes) {
      if (before(access, who))
        access.bytes &= ~bytes;
      else
        twice |= once & access.bytes, once |= access.bytes;
    }
    if (!access.bytes) access = {};
    return access.bytes != 0;
  };
  meet(sector.read);
  if (sector.more)
    for_each_extra(sector, [&](Extra& extra) { return extra.is_write || meet(extra.access); });
  // The values may have been handed on to other lanes.
  if (by_others_earlier && (bytes & lanes_twice)) {
    const auto forget = [&](GlobalAccess& access) {
      if (same(access, who) && access.when != who.when && access.lanes != piece.lanes)
        access.bytes &= ~(bytes & lanes_twice);
      if (!access.bytes) access = {};
      return access.bytes != 0;
    };
    forget(sector.read);
    for_each_extra(sector, [&](Extra& extra) { return extra.is_write || forget(extra.access); });
    lanes_already = nullptr, lanes_twice = 0;
  }
  const u32 left = bytes & ~twice & ~lanes_twice;
  if (found || !left) return settle(sector);
  const GlobalAccess mine =
      read_of(who, mine_already ? left & ~mine_already->bytes : left, piece.lanes);
  if (!mine.bytes) return settle(sector);
  if (sector.read.block <= base_)
    sector.read = mine;
  else if (mine_already && crowded())
    mine_already->bytes |= left;
  else if (lanes_already && crowded())
    lanes_already->bytes |= left, lanes_already->lanes = Lanes::unknown();
  else
    add(sector, mine, false);
}

// Keeps an invariant: a sector with any record has a write or a first reader.
void GlobalShadow::settle(GlobalSector& sector) {
  if (fresh(sector) || !sector.more) return;
  for_each_extra(sector, [&](Extra& extra) {
    if (sector.read.block > base_) return true;
    sector.read = extra.access;
    return false;
  });
}

// Bytes of a sector that these lanes have read and nobody has stored: a store of the value that
// they held puts it back.
u32 GlobalShadow::only_read(const Asking& who, const Piece& piece,
                            const GlobalSector& sector) const {
  u32 read = 0, written = 0;
  const auto meet = [&](const GlobalAccess& access, bool is_write) {
    if (access.block <= base_) return;
    if (is_write)
      written |= access.bytes;
    else if (access.block == who.block && access.when >> kWarpShift == who.index)
      read |= access.bytes & ~piece.lanes.beyond(access.lanes, access.bytes);
  };
  meet(sector.write, true), meet(sector.read, false);
  for (u32 i = sector.more; i; i = extras_[i - 1].next)
    meet(extras_[i - 1].access, extras_[i - 1].is_write);
  return read & ~(written & ~bytes_of(sector.agreed));
}

void GlobalShadow::write_sector(Asking& who, const Piece& piece, GlobalSector& sector) {
  // Every earlier access to these bytes either comes before this one or is reported as a race now;
  // so later accesses only need this record. Two stores of the same value are both kept.
  const u32 bytes = piece.bytes;
  const u32 put_back =
      bytes & ~piece.changed ? bytes & ~piece.changed & only_read(who, piece, sector) : 0;
  u32 once = 0, twice = 0;
  const auto meet_write = [&](GlobalAccess& access) {
    if (access.block <= base_) return false;
    if (!(access.bytes & bytes)) return true;
    const u32 open = unordered(access, who, bytes,
                               [&](u32 both) { return piece.lanes.beyond(access.lanes, both); });
    if (open & piece.changed) report(who, piece, open & piece.changed, access);
    const u32 alike = open & ~piece.changed;
    twice |= once & alike, once |= alike;
    access.bytes &= ~bytes | alike;
    if (!access.bytes) access = {};
    return access.bytes != 0;
  };
  const auto meet_read = [&](GlobalAccess& access) {
    if (access.block <= base_) return false;
    const u32 open = unordered(access, who, bytes,
                               [&](u32 both) { return piece.lanes.apart(access.lanes, both); });
    if (open & ~put_back) report(who, piece, open & ~put_back, access, true);
    access.bytes &= ~bytes | (open & put_back);
    if (!access.bytes) access = {};
    return access.bytes != 0;
  };
  meet_write(sector.write), meet_read(sector.read);
  if (sector.more)
    for_each_extra(sector, [&](Extra& extra) {
      return extra.is_write ? meet_write(extra.access) : meet_read(extra.access);
    });
  if (sector.agreed) sector.agreed &= static_cast<u16>(~pairs_of(bytes & ~once));
  if (twice | put_back)
    sector.agreed |= static_cast<u16>(pairs_of(twice | put_back) & ~pairs_of(piece.changed));
  if (same(sector.write, who) && sector.write.pc == who.pc &&
      (sector.write.lanes == piece.lanes || crowded())) {
    if (sector.write.lanes != piece.lanes) sector.write.lanes = Lanes::unknown();
    sector.write.bytes |= bytes;
    return;
  }
  if (sector.write.block > base_) {
    if (!(bytes & ~twice)) return;
    add(sector, sector.write, true);
  }
  sector.write = write_of(who, bytes, piece.lanes);
}

// ---- findings ----

void GlobalShadow::report(Asking& who, const Piece& piece, u32 bytes, const GlobalAccess& other,
                          bool is_read) const {
  Block& block = *who.warp.block;
  const Clocks& clocks = block.shadow->clocks;
  const bool inside = other.block == who.block, lanes_only = same(other, who);
  const u32 other_warp = other.when >> kWarpShift;
  const s32 asking = block.pc_of(who.in);
  PTX_FOR_EACH_LANE (lane, who.mask & ~who.reported[inside ? 0 : 1]) {
    const u32 touched = who.touched(lane, piece.sector) & bytes;
    if (!touched) continue;
    u32 others = other.lanes.known() ? other.lanes.at(static_cast<u32>(first_lane(touched))) : 1;
    if (lanes_only) others &= ~(1u << lane);
    if (!others) continue;
    u32 open = others;  // lanes whose values have not reached this lane
    if (is_read && lanes_only)
      PTX_FOR_EACH_LANE (each, others)
        if (clocks.reached(who.warp.agent, each, other.when & kLatest) >> lane & 1)
          open &= ~(1u << each);
    if (open) others = open;
    u32& reported = who.reported[open ? (inside ? 0 : 1) : 2];
    if (reported >> lane & 1) continue;
    Finding finding{.problem = Problem::global_race,
                    .pc = asking,
                    .other_pc = long_pc(other.pc),
                    .block = block.index,
                    .thread = who.warp.thread(lane),
                    .address = who.addresses[lane],
                    .bytes = who.width,
                    .exchanged = !open};
    if (inside)
      finding.other_thread = static_cast<s32>(other_warp * kLanes + first_lane(others));
    else
      finding.other_block = s64{other.block} - base_ - 1;
    reported |= 1u << lane;
    block.note(finding);
  }
}

// Before griddepcontrol.wait a launch runs beside the one that it depends on, so their accesses are
// compared.
void GlobalShadow::check_overlap(const Asking& who, bool is_write) const {
  Block& block = *who.warp.block;
  const std::vector<u32>& seen = block.shadow->clocks.seen(who.warp.agent);
  for (const auto& [agent, clock] : block.dependency_waits)
    if (agent == who.warp.agent || clock <= seen[agent]) return;
  PTX_FOR_EACH_LANE (lane, who.mask) {
    const Buffer* buffer = block.find(who.addresses[lane], who.width);
    if (!buffer || !launch_.overlapped->touches(
                       buffer->host + (who.addresses[lane] - buffer->address), who.width, is_write))
      continue;
    block.note({.problem = Problem::dependency_wait,
                .pc = block.pc_of(who.in),
                .block = block.index,
                .thread = who.warp.thread(lane),
                .address = who.addresses[lane],
                .bytes = who.width,
                .text = launch_.overlapped->kernel});
  }
}

Footprint GlobalShadow::footprint(std::string kernel) const {
  Footprint all{{}, std::move(kernel)};
  for (const Buffer& buffer : launch_.buffers) {
    if (!buffer.shadow) continue;
    const u64 first = buffer.address >> 5, sectors = sectors_of(buffer);
    Footprint::Range range{buffer.host - (buffer.address & 31), std::vector<u32>(sectors),
                           std::vector<u32>(sectors)};
    for (u64 i = 0; i < sectors; ++i) {
      const GlobalLine& line = buffer.lines[(first + i) / kLineSectors - first / kLineSectors];
      if (line.block <= base_) continue;
      if (line.state != GlobalLine::open) {
        (line.state == GlobalLine::read ? range.read : range.written)[i] = ~0u;
        continue;
      }
      const auto add = [&](const GlobalAccess& access, bool is_write) {
        if (access.block > base_) (is_write ? range.written : range.read)[i] |= access.bytes;
      };
      if (!strong_->empty() && strong_of_[index_of(buffer)])
        if (const u32 place = strong_of_[index_of(buffer)][i])
          for (const GlobalAccess& access : (*strong_)[place - 1].writes) add(access, true);
      const GlobalSector& sector = buffer.shadow[i];
      if (!fresh(sector)) continue;
      add(sector.write, true), add(sector.read, false);
      for (u32 more = sector.more; more; more = extras_[more - 1].next)
        add(extras_[more - 1].access, extras_[more - 1].is_write);
    }
    all.ranges.push_back(std::move(range));
  }
  return all;
}

namespace {

// Joins neighbouring bytes of one kind to rows of GlobalShadow::accesses.
class Rows {
 public:
  explicit Rows(u64 kind) : kind_(kind) {}
  // Adds the bytes of a sector that have a bit.
  void add(u64 sector, u32 bytes, u16 pc, std::vector<u64>& out) {
    if (bytes == ~0u) return add(sector << 5, (sector + 1) << 5, pc, out);
    for (u32 left = bytes; left;) {
      const u32 from = static_cast<u32>(__builtin_ctz(left));
      const u32 size = static_cast<u32>(__builtin_ctz(~(left >> from)));
      add((sector << 5) + from, (sector << 5) + from + size, pc, out);
      left &= ~(((1u << size) - 1) << from);
    }
  }
  void end(std::vector<u64>& out) {
    if (begin_ == end_) return;
    out.insert(out.end(), {begin_, end_, u64{pc_} << 8 | kind_});
    begin_ = end_ = 0;
  }

 private:
  void add(u64 from, u64 to, u16 pc, std::vector<u64>& out) {
    if (from != end_) {
      end(out);
      begin_ = from, pc_ = pc;
    }
    end_ = to;
  }

  u64 kind_, begin_ = 0, end_ = 0;
  u16 pc_ = 0;
};

}  // namespace

std::vector<u64> GlobalShadow::accesses() const {
  std::vector<u64> out;
  for (const Buffer& buffer : launch_.buffers) {
    if (!buffer.shadow) continue;
    const auto [touched, shift] = touched_[index_of(buffer)];
    if (!touched) continue;
    Rows written(writes), counted(writes | strong_only), read(reads);
    const u64 first = buffer.address >> 5, sectors = sectors_of(buffer);
    const bool has_strong = !strong_->empty() && strong_of_[index_of(buffer)];
    for (u64 i = 0; i < sectors; ++i) {
      const u64 at = (first + i) / kLineSectors - first / kLineSectors;
      if (!(touched >> (at >> shift) & 1)) {
        i = (((at >> shift) + 1) << shift) * kLineSectors - first % kLineSectors - 1;
        continue;
      }
      const GlobalLine& line = buffer.lines[at];
      if (line.block <= base_) continue;
      if (line.state != GlobalLine::open) {
        (line.stored ? written : read).add(first + i, ~0u, line.pc, out);
        continue;
      }
      u32 plain = line.stored ? ~0u : 0, strong = 0, loads = 0;
      u16 plain_pc = line.pc, strong_pc = 0, loads_pc = 0;
      const auto join = [&](const GlobalAccess& access, u32& bytes, u16& pc) {
        if (access.block <= base_ || !access.bytes) return;
        bytes |= access.bytes, pc = access.pc;
      };
      if (has_strong)
        if (const u32 place = strong_of_[index_of(buffer)][i])
          for (const GlobalAccess& access : (*strong_)[place - 1].writes)
            join(access, strong, strong_pc);
      const GlobalSector& sector = buffer.shadow[i];
      if (fresh(sector)) {
        for (u32 more = sector.more; more; more = extras_[more - 1].next) {
          const Extra& extra = extras_[more - 1];
          extra.is_write ? join(extra.access, plain, plain_pc)
                         : join(extra.access, loads, loads_pc);
        }
        join(sector.read, loads, loads_pc), join(sector.write, plain, plain_pc);
      }
      if (plain) written.add(first + i, plain, plain_pc, out);
      if (strong & ~plain) counted.add(first + i, strong & ~plain, strong_pc, out);
      if (loads & ~plain) read.add(first + i, loads & ~plain, loads_pc, out);
    }
    written.end(out), counted.end(out), read.end(out);
  }
  return out;
}

// Reports two lanes that stored different values with one instruction.
void GlobalShadow::report_clash(const Asking& who, u32 lanes) const {
  Block& block = *who.warp.block;
  PTX_FOR_EACH_LANE (lane, lanes) {
    u32 other = 0;
    while (who.addresses[other] != who.addresses[lane] || !(who.mask >> other & 1)) ++other;
    block.note({.problem = Problem::global_race,
                .pc = block.pc_of(who.in),
                .other_pc = block.pc_of(who.in),
                .block = block.index,
                .thread = who.warp.thread(lane),
                .other_thread = who.warp.thread(other),
                .address = who.addresses[lane],
                .bytes = who.width});
  }
}

void GlobalShadow::check_written(const Asking& who, const Buffer& buffer,
                                 const Piece& piece) const {
  const u32 unknown = piece.bytes & ~written_of(buffer, piece.sector);
  if (unknown && !(who.in.flags & kWordOfElement)) report_unwritten(who, piece, unknown);
}

void GlobalShadow::report_unwritten(const Asking& who, const Piece& piece, u32 bytes) const {
  PTX_FOR_EACH_LANE (lane, who.mask) {
    if (!(who.touched(lane, piece.sector) & bytes)) continue;
    who.warp.block->note({.problem = Problem::uninitialised_global,
                          .pc = who.warp.block->pc_of(who.in),
                          .block = who.warp.block->index,
                          .thread = who.warp.thread(lane),
                          .address = who.addresses[lane],
                          .bytes = who.width});
  }
}

// ---- order between blocks ----

bool GlobalShadow::published(u32 block, u32 when, const Asking& who) const {
  if (flags_.empty()) return false;
  const u32 other = block - base_ - 1;
  const auto known = acquired_.find(who.block - base_ - 1);
  if (known == acquired_.end()) return false;
  const auto clocks = published_.find(other);
  if (clocks == published_.end() || (when & kLatest) >= clocks->second.steps[when >> kWarpShift])
    return false;
  bool unfenced = false;
  for (const Acquired& acquired : known->second) {
    const u32 agent = who.warp.agent;
    const bool seen =
        acquired.agent == agent ||
        acquired.clock <= who.warp.block->shadow->clocks.since_start(agent, acquired.agent);
    if (!seen || !has(acquired.blocks, other)) continue;
    if (acquired.fenced) return true;
    unfenced = true;
  }
  if (unfenced) {
    Block& reader = *who.warp.block;
    const u32 lane = static_cast<u32>(first_lane(who.mask));
    reader.note({.problem = Problem::acquire_fence,
                 .pc = reader.pc_of(who.in),
                 .block = reader.index,
                 .thread = who.warp.thread(lane),
                 .address = who.addresses[lane],
                 .bytes = who.width,
                 .other_block = s64{other}});
  }
  return unfenced;
}

void GlobalShadow::end_block(s64 block) {
  const auto held = hold();
  acquired_.erase(static_cast<u32>(block));
}

void GlobalShadow::publish(Warp& warp, const u64* addresses, u32 mask) {
  const Block& block = *warp.block;
  const Clocks& clocks = block.shadow->clocks;
  std::vector<u32> fenced;
  if (!clocks.published(warp.agent, fenced)) return;
  const auto held = hold();
  std::vector<u64> all;  // blocks that are published
  const u32 warps = static_cast<u32>(block.warps->size());
  for (u32 agent = 0; agent < fenced.size(); ++agent) {
    if (!fenced[agent]) continue;
    const u32 of = static_cast<u32>(block.cluster->blocks[agent / warps]->index);
    u32& steps = published_[of].steps[agent % warps];
    steps = std::max(steps, clocks.step_after(agent, fenced[agent]));
    if (all.size() <= of / 64) all.resize(of / 64 + 1);
    all[of / 64] |= u64{1} << of % 64;
  }
  const auto known = acquired_.find(static_cast<u32>(block.index));
  if (known != acquired_.end())
    for (const Acquired& acquired : known->second)
      if (acquired.agent == warp.agent ||
          acquired.clock <= clocks.since_start(warp.agent, acquired.agent))
        unite(all, acquired.blocks);
  PTX_FOR_EACH_LANE (lane, mask) unite(flags_[addresses[lane]], all);
}

void GlobalShadow::acquire(const Warp& warp, u64 address, bool fenced) {
  const auto held = hold();
  const auto flag = flags_.find(address);
  if (flag != flags_.end()) learn(warp, fenced, &flag->second);
}

void GlobalShadow::fenced(const Warp& warp) {
  if (!shared_ && flags_.empty()) return;
  const auto held = hold();
  if (acquired_.contains(static_cast<u32>(warp.block->index))) learn(warp, true, nullptr);
}

// Adds to a warp's acquired blocks those that a flag publishes or, after a fence, those of flags
// that it read before.
void GlobalShadow::learn(const Warp& warp, bool fenced, const std::vector<u64>* flag) {
  const Clocks& clocks = warp.block->shadow->clocks;
  const u32 clock = clocks.since_start(warp.agent, warp.agent);
  std::vector<Acquired>& known = acquired_[static_cast<u32>(warp.block->index)];
  std::vector<u64> before, all;  // blocks that the warp has acquired; and these with the new ones
  for (const Acquired& acquired : known) {
    if (acquired.agent != warp.agent &&
        acquired.clock > clocks.since_start(warp.agent, acquired.agent))
      continue;
    if (acquired.fenced == fenced) unite(before, acquired.blocks);
    if (acquired.fenced || !fenced || !flag) unite(all, acquired.blocks);
  }
  if (flag) unite(all, *flag);
  if (!unite(before, all)) return;
  // A warp's knowledge at an earlier clock stays valid, so each entry is complete.
  for (Acquired& acquired : known) {
    if (acquired.agent != warp.agent || acquired.clock != clock || acquired.fenced != fenced)
      continue;
    acquired.blocks = std::move(before);
    return;
  }
  known.push_back({warp.agent, clock, fenced, std::move(before)});
}

}  // namespace workbench::ptx
