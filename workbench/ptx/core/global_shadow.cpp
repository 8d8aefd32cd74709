#include "global_shadow.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "warp.hpp"

namespace workbench::ptx {
namespace {

constexpr u16 kUnknownPc = 0xffff;
constexpr std::size_t kExtrasPerSector = 2;

inline u16 short_pc(s32 pc) { return pc < kUnknownPc ? static_cast<u16>(pc) : kUnknownPc; }
inline s32 long_pc(u16 pc) { return pc == kUnknownPc ? -1 : pc; }

inline bool same(const GlobalAccess& a, u32 block, u32 when) { return a.block == block && a.when == when; }

bool has(const std::vector<u64>& blocks, u32 index) {
  return index / 64 < blocks.size() && (blocks[index / 64] >> index % 64 & 1);
}

// Which pairs of bytes of a sector some bytes lie in, and back.
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

// Adds blocks to a set; true if some were missing.
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

ShadowPages::ShadowPages(u64 sectors, u64 blocks) {
  {
    std::lock_guard lock(mutex_);
    std::swap(pages_, idle_);
  }
  if (pages_.capacity < sectors || u64{pages_.next} + blocks + 1 > UINT32_MAX) {
    std::free(pages_.memory);
    // calloc: pages that the kernel does not touch cost nothing.
    pages_ = {static_cast<GlobalSector*>(std::calloc(std::max<u64>(sectors, 1), sizeof(GlobalSector))), sectors, 0};
    if (!pages_.memory) throw std::bad_alloc();
  }
  base_ = pages_.next;
  pages_.next += static_cast<u32>(blocks) + 1;
}

ShadowPages::~ShadowPages() {
  if (pages_.capacity <= kKept) {
    std::lock_guard lock(mutex_);
    if (pages_.capacity >= idle_.capacity) std::swap(pages_, idle_);
  }
  std::free(pages_.memory);
}

// ---- requests ----

GlobalShadow::GlobalShadow(Launch& launch) : launch_(launch), shared_(launch.threads > 1) {
  for (const Buffer& buffer : launch.buffers) {
    const u64 sectors = ((buffer.address + buffer.size + 31) >> 5) - (buffer.address >> 5);
    sectors_ += sectors;
    written_.emplace_back(buffer.uninitialised ? sectors : 0);
  }
  // A launch with more blocks than there are numbers runs unchecked; it would take days.
  if (static_cast<u64>(launch.blocks()) >= UINT32_MAX / 2) return;
  pages_ = std::make_unique<ShadowPages>(sectors_, static_cast<u64>(launch.blocks()));
  base_ = pages_->base();
  most_extras_ = kExtrasPerSector * sectors_;
  extras_.reserve(most_extras_);  // only what is used is ever touched
  GlobalSector* next = pages_->sectors();
  for (Buffer& buffer : launch.buffers) {
    buffer.shadow = next;
    next += ((buffer.address + buffer.size + 31) >> 5) - (buffer.address >> 5);
  }
}

u64 GlobalShadow::bytes() const {
  u64 total = pages_ ? sectors_ * sizeof(GlobalSector) + extras_.size() * sizeof(Extra) : 0;
  for (const auto& bytes : written_) total += bytes.size() * sizeof(u32);
  return total;
}

GlobalShadow::Asking GlobalShadow::asking(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes) const {
  const Block& block = *warp.block;
  const Clocks& clocks = block.shadow->clocks;
  const u32 index = static_cast<u32>(warp.index), clock = std::min(clocks.since_start(index, index), kLatest);
  return {warp, in, addresses, mask, bytes, base_ + 1 + static_cast<u32>(block.index), index, index << kWarpShift | clock,
          short_pc(block.pc_of(in)), 0};
}

// Calls function(buffer index, number of the sector in the address space, sector, bytes).
template <class F>
void GlobalShadow::for_each_sector(const Asking& who, u32 lanes, F function) {
  const Block& block = *who.warp.block;
  const std::vector<Buffer>& buffers = launch_.buffers;
  const Buffer* buffer = block.last_buffer[static_cast<std::size_t>(block.pc_of(who.in))];
  Pieces pieces;
  split_into_sectors(who.addresses, lanes, who.width, pieces);
  std::unique_lock lock(mutex_, std::defer_lock);
  if (shared_) lock.lock();
  if (buffer && buffer->shadow) {  // the checks mostly wait for these lines, so ask for all of them first
    const u64 first = buffer->address >> 5, sectors = ((buffer->address + buffer->size + 31) >> 5) - first;
    for (int i = 0; i < pieces.count; ++i)
      if (pieces.sector[i] - first < sectors) __builtin_prefetch(buffer->shadow + (pieces.sector[i] - first), 1);
  }
  for (int i = 0; i < pieces.count; ++i) {
    const u64 address = pieces.sector[i] << 5 | static_cast<u64>(__builtin_ctz(pieces.bytes[i]));
    if (!buffer || address < buffer->address || address >= buffer->address + buffer->size) buffer = block.find(address, 1);
    if (!buffer || !buffer->shadow) continue;
    GlobalSector& sector = buffer->shadow[pieces.sector[i] - (buffer->address >> 5)];
    function(static_cast<std::size_t>(buffer - buffers.data()), pieces.sector[i], sector, pieces.bytes[i]);
  }
}

void GlobalShadow::read(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes) {
  Asking who = asking(warp, in, addresses, mask, bytes);
  for_each_sector(who, mask, [&](std::size_t buffer, u64 index, GlobalSector& sector, u32 touched) {
    if (!written_[buffer].empty()) {
      const u32 known = written_[buffer][index - (launch_.buffers[buffer].address >> 5)];
      if (touched & ~known) report_unwritten(who, index, touched & ~known);
    }
    if (!fresh(sector)) {
      sector = {};
      sector.read = {who.block, who.when, touched}, sector.read_pc = who.pc;
      return;
    }
    const u32 own = sector.agreed ? bytes_of(sector.agreed) : 0;
    if (sector.write.block > base_ && touched & ~own) check_writes(who, index, sector, touched & ~own);
    const bool again = same(sector.read, who.block, who.when) && !(touched & ~sector.read.bytes);
    if (!again) record_read(who, sector, touched);
  });
}

void GlobalShadow::write(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes, u32 changed) {
  Asking who = asking(warp, in, addresses, mask, bytes);
  const auto note_written = [&](std::size_t buffer, u64 index, u32 touched) {
    if (!written_[buffer].empty()) written_[buffer][index - (launch_.buffers[buffer].address >> 5)] |= touched;
  };
  if (changed) {
    for_each_sector(who, changed, [&](std::size_t buffer, u64 index, GlobalSector& sector, u32 touched) {
      note_written(buffer, index, touched);
      if (fresh(sector)) return write_sector(who, index, sector, touched);
      sector = {};
      sector.write = {who.block, who.when, touched}, sector.write_pc = who.pc;
    });
  }
  if (!(mask & ~changed)) return;
  for_each_sector(who, mask & ~changed, [&](std::size_t buffer, u64 index, GlobalSector& sector, u32 touched) {
    note_written(buffer, index, touched);
    const bool again = sector.write.block > base_ && sector.write.bytes & touched && !before(sector.write, who);
    if (again) sector.agreed |= pairs_of(sector.write.bytes & touched);
  });
}

void GlobalShadow::strong(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes, bool is_write, bool is_read) {
  Asking who = asking(warp, in, addresses, mask, bytes);
  // An atomic acquires before it releases: it hands on what it learnt.
  if (is_read && (shared_ || !flags_.empty())) PTX_FOR_EACH_LANE(lane, mask) acquire(warp, addresses[lane]);
  for_each_sector(who, mask, [&](std::size_t buffer, u64 index, GlobalSector& sector, u32 touched) {
    if (!written_[buffer].empty()) {
      u32& known = written_[buffer][index - (launch_.buffers[buffer].address >> 5)];
      if (is_read && touched & ~known) report_unwritten(who, index, touched & ~known);
      if (is_write) known |= touched;
    }
    if (is_write && sector.write.block > base_) check_writes(who, index, sector, touched);
  });
  if (is_write) PTX_FOR_EACH_LANE(lane, mask) publish(warp, addresses[lane]);
}

// ---- one sector ----

bool GlobalShadow::before(const GlobalAccess& access, const Asking& who) const {
  const u32 warp = access.when >> kWarpShift, clock = access.when & kLatest;
  if (access.block != who.block) return published(access, who);
  return warp == who.index || clock <= who.warp.block->shadow->clocks.since_start(who.index, warp);
}

// Goes through the extra records; drops those for which keep(extra) is false.
template <class F>
void GlobalShadow::for_each_extra(GlobalSector& sector, F keep) {
  u32* link = &sector.more;
  while (*link) {
    Extra& extra = extras_[*link - 1];
    if (keep(extra)) {
      link = &extra.next;
      continue;
    }
    const u32 gone = *link;
    *link = extra.next;
    extra.next = free_extra_, free_extra_ = gone;
  }
}

void GlobalShadow::add(GlobalSector& sector, const GlobalAccess& access, u16 pc, bool is_write) {
  u32 index = free_extra_;
  if (index) {
    free_extra_ = extras_[index - 1].next;
  } else if (extras_.size() < most_extras_) {
    extras_.emplace_back();
    index = static_cast<u32>(extras_.size());
  } else if (sector.more) {
    extras_[sector.more - 1] = {access, pc, is_write, extras_[sector.more - 1].next};
    return;
  } else {
    return;
  }
  extras_[index - 1] = {access, pc, is_write, sector.more};
  sector.more = index;
}

void GlobalShadow::check_writes(Asking& who, u64 index, const GlobalSector& sector, u32 bytes) const {
  if (sector.write.bytes & bytes && !before(sector.write, who))
    report(who, index, sector.write.bytes & bytes, sector.write, sector.write_pc);
  for (u32 i = sector.more; i; i = extras_[i - 1].next) {
    const Extra& extra = extras_[i - 1];
    if (extra.is_write && extra.access.bytes & bytes && !before(extra.access, who))
      report(who, index, extra.access.bytes & bytes, extra.access, extra.pc);
  }
}

// What comes after this read comes after all that it comes after: those can be forgotten for the bytes it touches.
void GlobalShadow::record_read(const Asking& who, GlobalSector& sector, u32 bytes) {
  u32 once = 0, twice = 0;  // bytes with that many concurrent readers
  bool found = false;
  GlobalAccess* mine_already = nullptr;  // at another instruction
  const auto meet = [&](GlobalAccess& access, u16 pc) {
    if (access.block <= base_) return false;
    if (same(access, who.block, who.when)) {
      if (pc == who.pc || !(bytes & ~access.bytes)) access.bytes |= bytes, found = true;
      else mine_already = &access;
    } else if (access.bytes & bytes) {
      if (before(access, who)) access.bytes &= ~bytes;
      else twice |= once & access.bytes, once |= access.bytes;
    }
    if (!access.bytes) access = {};
    return access.bytes != 0;
  };
  meet(sector.read, sector.read_pc), meet(sector.other, sector.other_pc);
  if (sector.more) for_each_extra(sector, [&](Extra& extra) { return extra.is_write || meet(extra.access, extra.pc); });
  const u32 left = bytes & ~twice;
  if (found || !left) return settle(sector);
  const GlobalAccess mine{who.block, who.when, mine_already ? left & ~mine_already->bytes : left};
  if (sector.read.block <= base_) sector.read = mine, sector.read_pc = who.pc;
  else if (sector.other.block <= base_) sector.other = mine, sector.other_pc = who.pc;
  else if (mine_already && extras_.size() >= most_extras_ / 2) mine_already->bytes |= left;
  else add(sector, mine, who.pc, false);
}

// A sector that knows of anything knows of a write or has a first reader.
void GlobalShadow::settle(GlobalSector& sector) {
  if (fresh(sector)) return;
  if (sector.other.block > base_) {
    sector.read = sector.other, sector.read_pc = sector.other_pc, sector.other = {};
  } else if (sector.more) {
    for_each_extra(sector, [&](Extra& extra) {
      if (sector.read.block > base_) return true;
      sector.read = extra.access, sector.read_pc = extra.pc;
      return false;
    });
  }
}

void GlobalShadow::write_sector(Asking& who, u64 index, GlobalSector& sector, u32 bytes) {
  // Every earlier access to these bytes either comes before, or races now: later ones need to know of this one only.
  const auto meet = [&](GlobalAccess& access, u16 pc) {
    if (access.block <= base_) return false;
    const u32 both = access.bytes & bytes;
    if (both && !before(access, who)) report(who, index, both, access, pc);
    access.bytes &= ~bytes;
    if (!access.bytes) access = {};
    return access.bytes != 0;
  };
  meet(sector.write, sector.write_pc), meet(sector.read, sector.read_pc), meet(sector.other, sector.other_pc);
  if (sector.more) for_each_extra(sector, [&](Extra& extra) { return meet(extra.access, extra.pc); });
  if (sector.agreed) sector.agreed &= static_cast<u16>(~pairs_of(bytes));
  if (same(sector.write, who.block, who.when) && sector.write_pc == who.pc) {
    sector.write.bytes |= bytes;
    return;
  }
  if (sector.write.block > base_) add(sector, sector.write, sector.write_pc, true);
  sector.write = {who.block, who.when, bytes}, sector.write_pc = who.pc;
}

// ---- findings ----

void GlobalShadow::report(Asking& who, u64 sector, u32 bytes, const GlobalAccess& other, u16 other_pc) const {
  const Block& block = *who.warp.block;
  const u32 access = who.width >= 32 ? ~0u : (1u << who.width) - 1;
  PTX_FOR_EACH_LANE(lane, who.mask & ~who.reported) {
    if (who.addresses[lane] >> 5 != sector || !(access << (who.addresses[lane] & 31) & bytes)) continue;
    who.reported |= 1u << lane;
    Finding finding{.problem = Problem::global_race, .pc = block.pc_of(who.in), .other_pc = long_pc(other_pc), .block = block.index,
                    .thread = who.warp.thread(lane), .address = who.addresses[lane], .bytes = who.width};
    if (other.block != who.block) finding.other_block = s64{other.block} - base_ - 1;
    else finding.other_thread = static_cast<s32>(other.when >> kWarpShift) * kLanes;
    who.warp.block->note(finding);
  }
}

void GlobalShadow::report_unwritten(Asking& who, u64 sector, u32 bytes) const {
  const u32 access = who.width >= 32 ? ~0u : (1u << who.width) - 1;
  PTX_FOR_EACH_LANE(lane, who.mask) {
    if (who.addresses[lane] >> 5 != sector || !(access << (who.addresses[lane] & 31) & bytes)) continue;
    who.warp.block->note({.problem = Problem::uninitialised_global, .pc = who.warp.block->pc_of(who.in), .block = who.warp.block->index,
                          .thread = who.warp.thread(lane), .address = who.addresses[lane], .bytes = who.width});
  }
}

// ---- order between blocks ----

bool GlobalShadow::published(const GlobalAccess& access, const Asking& who) const {
  if (flags_.empty()) return false;
  const u32 other = access.block - base_ - 1;
  const auto known = acquired_.find(who.block - base_ - 1);
  if (known == acquired_.end()) return false;
  const auto clocks = published_.find(other);
  if (clocks == published_.end() || (access.when & kLatest) > clocks->second.clocks[access.when >> kWarpShift]) return false;
  for (const Acquired& acquired : known->second) {
    const bool seen = acquired.warp == who.index ||
                      acquired.clock <= who.warp.block->shadow->clocks.since_start(who.index, acquired.warp);
    if (seen && has(acquired.blocks, other)) return true;
  }
  return false;
}

void GlobalShadow::end_block(s64 block) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (shared_) lock.lock();
  acquired_.erase(static_cast<u32>(block));
}

void GlobalShadow::publish(Warp& warp, u64 address) {
  const Clocks& clocks = warp.block->shadow->clocks;
  const u32 index = static_cast<u32>(warp.index), me = static_cast<u32>(warp.block->index);
  u32 fenced[Clocks::kWarps];
  if (!clocks.published(index, fenced)) return;
  std::unique_lock lock(mutex_, std::defer_lock);
  if (shared_) lock.lock();
  u32* mine = published_[me].clocks;
  for (u32 i = 0; i < Clocks::kWarps; ++i) mine[i] = std::max(mine[i], fenced[i]);
  std::vector<u64>& flag = flags_[address];
  if (flag.size() <= me / 64) flag.resize(me / 64 + 1);
  flag[me / 64] |= u64{1} << me % 64;
  const auto known = acquired_.find(me);
  if (known == acquired_.end()) return;
  for (const Acquired& acquired : known->second)
    if (acquired.warp == index || acquired.clock <= clocks.since_start(index, acquired.warp)) unite(flag, acquired.blocks);
}

void GlobalShadow::acquire(Warp& warp, u64 address) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (shared_) lock.lock();
  const auto flag = flags_.find(address);
  if (flag == flags_.end()) return;
  const Clocks& clocks = warp.block->shadow->clocks;
  const u32 index = static_cast<u32>(warp.index), clock = clocks.since_start(index, index);
  std::vector<Acquired>& known = acquired_[static_cast<u32>(warp.block->index)];
  std::vector<u64> all;
  for (const Acquired& acquired : known)
    if (acquired.warp == index || acquired.clock <= clocks.since_start(index, acquired.warp)) unite(all, acquired.blocks);
  if (!unite(all, flag->second)) return;
  // What a warp knew at an earlier clock stays valid, so each entry is complete.
  for (Acquired& acquired : known) {
    if (acquired.warp != index || acquired.clock != clock) continue;
    acquired.blocks = std::move(all);
    return;
  }
  known.push_back({index, clock, std::move(all)});
}

}  // namespace workbench::ptx
