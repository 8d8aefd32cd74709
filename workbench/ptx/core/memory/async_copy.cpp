// cp.async: a copy brings the bytes that its source held when it was issued, as on a GPU. It lands
// when the issuing lane waits for it, and not before, so that a missing wait shows.
#include <algorithm>
#include <utility>

#include "checks/global_shadow.hpp"
#include "checks/source_watch.hpp"
#include "checks/unread_copies.hpp"
#include "debug/debugger.hpp"
#include "memory/access.hpp"
#include "memory/async_copy.hpp"
#include "schedule.hpp"

namespace workbench::ptx {
namespace {

// Returns the lanes of `mask` that read any bytes, and notes those that read fewer than all.
u32 find_sizes(u8* registers, const Instruction& in, u32 mask, PendingCopy& copy) {
  const u32 bytes = in.bytes,
            ignored = in.copy.ignored != kNoSlot ? *at<u32>(registers, in.copy.ignored) : 0;
  u32 reading = 0;
  PTX_FOR_EACH_LANE (lane, mask) {
    u32 size = bytes;
    if (in.copy.size != kNoSlot) size = std::min(at<u32>(registers, in.copy.size)[lane], bytes);
    if (ignored >> lane & 1) size = 0;
    copy.copied[lane] = size;
    copy.partial |= (size < bytes ? 1u : 0u) << lane;
    reading |= (size ? 1u : 0u) << lane;
  }
  return reading;
}

// Fills in the destination. Returns false if it is outside or misaligned, perhaps only for an
// inactive lane.
template <class Base>
bool place(const Base* bases, u32 offset, u32 last, PendingCopy& copy) {
  u32 wrong = 0;
  const u32 low_bits = copy.bytes - 1;
  PTX_LANES {
    const u32 to = static_cast<u32>(bases[lane]) + offset;
    copy.destination[lane] = to;
    wrong |= (to & low_bits) | (to > last ? 1u : 0u);
  }
  return !wrong;
}

// Returns the lanes of `lanes` whose destination is valid.
u32 check_places(const Instruction& in, u32 lanes, Warp& warp, const PendingCopy& copy) {
  Block& block = *warp.block;
  u32 fine = 0;
  PTX_FOR_EACH_LANE (lane, lanes) {
    const u64 offset = copy.destination[lane];
    if (offset + copy.bytes > block.launch->shared_bytes)
      block.problem(Problem::shared_out_of_bounds, in, warp.thread(lane), offset, copy.bytes);
    else if (offset & (copy.bytes - 1))
      block.problem(Problem::misaligned, in, warp.thread(lane), offset, copy.bytes);
    else
      fine |= 1u << lane;
  }
  return fine;
}

// Prefetches the source into the cache; neighbouring lanes usually share a line.
void prefetch(const PendingCopy& copy, u32 reading) {
  for (u32 lane = 0; lane < kLanes; lane += 4)
    if (reading >> lane & 1) __builtin_prefetch(copy.source[lane]);
}

// Stores the bytes that a lane has read, or reads now, at its destination.
template <u32 Size>
void bring(Warp& warp, const PendingCopy& copy, u32 lane, u8* to) {
  if (!copy.unread) {
    std::memcpy(to, warp.copies.detail(copy).values + lane * Size, Size);
  } else if (!(copy.partial >> lane & 1)) {
    std::memcpy(to, copy.source[lane], Size);
  } else {
    std::memset(to, 0, Size);
    if (copy.copied[lane]) std::memcpy(to, copy.source[lane], copy.copied[lane]);
  }
}

// The same for several lanes.
template <u32 Size>
void move(Warp& warp, const PendingCopy& copy, u32 lanes) {
  u8* const shared = warp.block->shared;
  if (lanes == kAllLanes && copy.unread && !copy.partial) {
#pragma GCC unroll 8
    for (u32 lane = 0; lane < kLanes; ++lane)
      std::memcpy(shared + copy.destination[lane], copy.source[lane], Size);
    return;
  }
  PTX_FOR_EACH_LANE (lane, lanes) bring<Size>(warp, copy, lane, shared + copy.destination[lane]);
}

// The same for several lanes, and returns those that change memory.
template <u32 Size>
u32 move_and_compare(Warp& warp, const PendingCopy& copy, u32 lanes) {
  u8* const shared = warp.block->shared;
  u32 changed = 0;
  const auto each = [&](auto bring_values) {
    PTX_FOR_EACH_LANE (lane, lanes) {
      u8 values[Size], *to = shared + copy.destination[lane];
      bring_values(lane, values);
      changed |= (std::memcmp(to, values, Size) != 0 ? 1u : 0u) << lane;
      std::memcpy(to, values, Size);
    }
  };
  if (copy.unread && !copy.partial)
    each([&](u32 lane, u8* to) { std::memcpy(to, copy.source[lane], Size); });
  else
    each([&](u32 lane, u8* to) { bring<Size>(warp, copy, lane, to); });
  return changed;
}

// The range of addresses of a request of which all lanes are valid.
std::pair<u64, u64> span_of(const Request& source, u8* registers, const Instruction& in) {
  if (const LaneOffsets* const offsets = source.located.offsets) {
    const u64 first = first_address(registers, in);
    return {first + static_cast<u64>(offsets->lowest),
            first + static_cast<u64>(offsets->highest) + in.bytes};
  }
  u64 low = ~u64{0}, high = 0;
  PTX_FOR_EACH_LANE (lane, source.mask) {
    low = std::min(low, source.address[lane]);
    high = std::max(high, source.address[lane]);
  }
  return {low, high + in.bytes};
}

// Fills in the source.
void note_source(Warp& warp, const Request& source, std::pair<u64, u64> span, PendingCopy& copy) {
  CopyDetail& detail = warp.copies.detail(copy);
  copy.reading = source.mask;
  detail.clock = warp.block->shadow->clocks.now(warp.agent);
  detail.low = span.first, detail.high = span.second;
  std::memcpy(detail.address, source.address, sizeof detail.address);
}

bool is_watched(const Block& block, const PendingCopy& copy) {
  const std::vector<bool>& unwritten = block.launch->unwritten_sources;
  return block.sources && (unwritten.empty() || !unwritten[static_cast<std::size_t>(copy.pc)]);
}

template <bool Observed>
void issue(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  const u32 bytes = in.bytes;
  PendingCopy& copy = warp.copies.next();
  copy.group = PendingCopy::kOpen, copy.pc = block.pc_of(in), copy.bytes = bytes,
  copy.order = ++warp.issued, copy.partial = 0, copy.unread = true;
  u32 reading = mask, allowed = mask;
  if constexpr (Observed) copy.reading = 0;
  if (in.copy.size != kNoSlot || in.copy.ignored != kNoSlot)
    reading = find_sizes(registers, in, mask, copy);
  if (reading) {
    Request source;
    resolve<Space::global, Observed>(registers, in, reading, warp, bytes, false, true, source);
    std::memcpy(copy.source, source.host, sizeof copy.source);
    allowed &= ~(reading & ~source.mask);
    if (source.mask) {
      const auto span = span_of(source, registers, in);
      block.worker->widen_unread(span.first, span.second);
      if constexpr (Observed)
        if (is_watched(block, copy)) note_source(warp, source, span, copy);
    }
  }
  if (!allowed) return;
  const u32 last = block.launch->shared_bytes - bytes;
  const bool placed =
      in.copy.flags & kWideBase
          ? place(at<const u64>(registers, in.copy.destination), in.copy.offset, last, copy)
          : place(at<const u32>(registers, in.copy.destination), in.copy.offset, last, copy);
  copy.mask = placed ? allowed : check_places(in, allowed, warp, copy);
  if (!copy.mask) return;
  prefetch(copy, reading & copy.mask);
  if constexpr (Observed) {
    if (block.shadow) {
      block.shadow->copy_issued(warp, in, copy);
      if (copy.reading) block.sources->add(copy, warp.copies);
    }
    if (block.observed) {
      u64 offsets[kLanes];
      PTX_LANES {
        offsets[lane] = copy.destination[lane];
      }
      observe_copy(warp, in, offsets, copy.mask, bytes);
      check_extent(warp, in, block.launch->shared_extents, offsets, nullptr, copy.mask, bytes,
                   true);
    }
  }
  copy.early = lands_early(block);
  if (copy.early) {
    of_copy_size(bytes,
                 [&](auto size) { copy.changed = move_and_compare<size>(warp, copy, copy.mask); });
    copy.unread = false;
  }
  warp.copies.push();
  if (copy.unread) expect_read(warp);
}

// Whether these lanes have committed the same number of groups.
bool together(const u32* committed, u32 mask) {
  const u32 groups = committed[first_lane(mask)];
  u32 apart = 0;
  PTX_LANES {
    apart |= (mask >> lane & 1) ? committed[lane] ^ groups : 0;
  }
  return !apart;
}

// Splits copies: lanes that do not commit now, or are at another group, keep a copy of their own.
void commit_apart(u32 mask, Warp& warp) {
  PendingCopies& copies = warp.copies;
  copies.in_order = false;
  const u32 count = copies.size();
  SourceWatch* const sources = warp.block->sources;
  const auto push = [&](u32 i, u32 lanes, u32 group) {
    PendingCopy& copy = copies.next();
    copies.put(copy, copies[i]);
    copy.mask = lanes, copy.group = group;
    if (sources) sources->add(copy, copies);
    copies.push();
  };
  for (u32 i = 0; i < count; ++i) {
    const PendingCopy copy = copies[i];
    u32 now = copy.mask & mask;
    if (copy.group != PendingCopy::kOpen || !now) continue;
    const u32 group = warp.committed[first_lane(now)];
    PTX_FOR_EACH_LANE (lane, now)
      if (warp.committed[lane] != group) now &= ~(1u << lane);
    copies[i].mask = now, copies[i].group = group;
    // Few lanes commit with another group number; each gets its own entry.
    PTX_FOR_EACH_LANE (lane, copy.mask & mask & ~now) push(i, 1u << lane, warp.committed[lane]);
    if (copy.mask & ~mask) push(i, copy.mask & ~mask, PendingCopy::kOpen);
  }
}

void commit(u8*, const Instruction&, u32 mask, Warp& warp) {
  PendingCopies& copies = warp.copies;
  if (!copies.empty()) {
    const u32 group = warp.committed[first_lane(mask)], open = copies.committed;
    bool simple = copies.in_order && together(warp.committed, mask) &&
                  (open == 0 || copies[open - 1].group <= group);
    for (u32 i = open; simple && i < copies.size(); ++i) simple = !(copies[i].mask & ~mask);
    if (simple) {
      for (u32 i = open; i < copies.size(); ++i) copies[i].group = group;
      copies.committed = copies.size();
    } else {
      commit_apart(mask, warp);
    }
  }
  PTX_LANES {
    warp.committed[lane] += mask >> lane & 1;
  }
}

// Notes that the source may now be written by lanes that come after this point: after the lanes'
// own wait, or after a wait for a phase of an mbarrier.
void source_read(Warp& warp, const PendingCopy& copy, u32 lanes, s32 landing) {
  Block& block = *warp.block;
  if (!lanes) return;
  if (landing != Shadow::kNoLanding) return block.sources->landed(warp, copy, lanes, landing);
  // Other warps come after the issue only if the warp has published its accesses since.
  const CopyDetail& detail = warp.copies.detail(copy);
  if (block.shadow->clocks.now(warp.agent) == detail.clock) return;
  u64 addresses[kLanes];
  PTX_LANES {
    const u32 from =
        lanes >> lane & 1 ? static_cast<u32>(lane) : static_cast<u32>(first_lane(lanes));
    addresses[lane] = detail.address[from];
  }
  block.launch->global_shadow->read_again(
      warp, block.kernel->code[static_cast<std::size_t>(copy.pc)], addresses, lanes, copy.bytes);
}

// `clock`: the warp's clock when it asked for the arrival, 0 for now; `landing`: see
// Shadow::copy_landed.
void land(Warp& warp, const PendingCopy& copy, u32 lanes, u32 clock, s32 landing) {
  Block& block = *warp.block;
  const bool early = copy.early;
  if (Debugger* const debugger = block.launch->debugger; debugger && !early)
    PTX_FOR_EACH_LANE (lane, lanes)
      debugger->lands(block, copy.pc, warp.thread(lane), copy.destination[lane], copy.bytes);
  of_copy_size(copy.bytes, [&](auto size) {
    if (!block.shadow) {
      if (!early) move<size>(warp, copy, lanes);
      return;
    }
    const u32 changed = early ? copy.changed & lanes : move_and_compare<size>(warp, copy, lanes);
    block.shadow->copy_landed(warp, block.kernel->code[static_cast<std::size_t>(copy.pc)],
                              copy.destination, lanes, copy.bytes, changed, clock, landing);
    source_read(warp, copy, lanes & copy.reading, landing);
  });
}

// Lands the copies for which ready(copy, lane) is true. `alike`: it gives the same answer for all
// lanes of `mask`, and false for all copies behind one with false.
template <class Ready>
void land_ready(Warp& warp, u32 mask, bool alike, u32 clock, s32 landing, Ready ready) {
  PendingCopies& copies = warp.copies;
  SourceWatch* const sources = warp.block->sources;
  while (alike && !copies.empty()) {
    const PendingCopy& copy = copies[0];
    if (copy.mask & ~mask) break;
    if (!ready(copy, first_lane(copy.mask))) return;
    land(warp, copy, copy.mask, clock, landing);
    if (sources) sources->remove(copy);
    copies.pop_front();
  }
  u32 kept = 0, committed = 0;
  for (u32 i = 0; i < copies.size(); ++i) {
    PendingCopy& copy = copies[i];
    u32 done = 0;
    PTX_FOR_EACH_LANE (lane, copy.mask & mask) done |= (ready(copy, lane) ? 1u : 0u) << lane;
    if (done) land(warp, copy, done, clock, landing);
    copy.mask &= ~done;
    if (!copy.mask) {
      if (sources) sources->remove(copy);
      continue;
    }
    committed += copy.group != PendingCopy::kOpen;
    if (kept != i) copies.put(copies[kept], copy);
    ++kept;
  }
  copies.truncate(kept, committed);
}

// Waits until each lane has at most a given number of groups pending; a negative number (wait_all)
// includes uncommitted copies.
void wait(u8*, const Instruction& in, u32 mask, Warp& warp) {
  if (warp.copies.empty()) return;
  const bool all = in.groups < 0;
  const u32 keep = all ? 0 : static_cast<u32>(in.groups);
  const bool alike = warp.copies.in_order && together(warp.committed, mask);
  land_ready(warp, mask, alike, 0, Shadow::kNoLanding, [&](const PendingCopy& copy, u32 lane) {
    return copy.group == PendingCopy::kOpen ? all : copy.group + keep < warp.committed[lane];
  });
}

}  // namespace

void land_copies(Warp& warp, u64 last, u32 mask, u32 clock, s32 landing) {
  land_ready(warp, mask, warp.copies.in_order, clock, landing,
             [&](const PendingCopy& copy, u32) { return copy.order <= last; });
}

void add_async_copies(Table& table) {
  table.push_back({"cp.async",
                   {&issue<false>, &issue<true>},
                   Kind::plain,
                   Class::global,
                   "",
                   "address,address"});
  table.push_back({"cp.async.commit_group", &commit, Kind::plain, Class::sync, "", ""});
  table.push_back({"cp.async.wait_group", &wait, Kind::plain, Class::sync, "", "imm"});
  table.push_back({"cp.async.wait_all", &wait, Kind::plain, Class::sync, "", ""});
}

}  // namespace workbench::ptx
