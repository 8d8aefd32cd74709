// cp.async: copies that land when the issuing lane waits for them, not before, so that a missing
// wait shows.
#include <algorithm>

#include "access.hpp"
#include "async_copy.hpp"

namespace workbench::ptx {
namespace {

void issue(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  const u32 bytes = in.bytes;
  PendingCopy copy;
  copy.group = PendingCopy::kOpen, copy.pc = block.pc_of(in), copy.bytes = bytes,
  copy.order = ++warp.issued;
  u32 reading = 0;
  PTX_LANES {
    u32 size = in.copy.size == kNoSlot
                   ? bytes
                   : std::min(at<const u32>(registers, in.copy.size)[lane], bytes);
    if (in.copy.ignored != kNoSlot && (*at<u32>(registers, in.copy.ignored) >> lane & 1)) size = 0;
    copy.copied[lane] = size;
    copy.source[lane] = nullptr;
    reading |= (size ? 1u : 0u) << lane;
  }
  reading &= mask;
  u32 allowed = mask;
  if (reading) {
    Request source;
    resolve<Space::global>(registers, in, reading, warp, bytes, false, true, source);
    PTX_FOR_EACH_LANE (lane, reading) copy.source[lane] = source.host[lane];
    allowed &= ~(reading & ~source.mask);
  }
  if (!allowed) return;
  const u32* base32 = at<const u32>(registers, in.copy.destination);
  const u64* base64 = at<const u64>(registers, in.copy.destination);
  u64 offsets[kLanes];
  PTX_LANES {
    const u64 base = (in.copy.flags & kWideBase) ? base64[lane] & kWindowMask : base32[lane];
    offsets[lane] = (base + static_cast<u64>(static_cast<s32>(in.copy.offset))) & 0xffffffffu;
  }
  copy.mask = 0;
  PTX_FOR_EACH_LANE (lane, allowed) {
    const u64 offset = offsets[lane];
    copy.destination[lane] = static_cast<u32>(offset);
    if (offset + bytes > block.launch->shared_bytes) {
      block.problem(Problem::shared_out_of_bounds, in, warp.thread(lane), offset, bytes);
    } else if (offset & (bytes - 1)) {
      block.problem(Problem::misaligned, in, warp.thread(lane), offset, bytes);
    } else {
      copy.mask |= 1u << lane;
      if (copy.copied[lane]) __builtin_prefetch(copy.source[lane]);
    }
  }
  if (!copy.mask) return;
  if (block.shadow) block.shadow->copy_issued(warp, in, copy);
  if (block.observed) observe_copy(warp, in, offsets, copy.mask, bytes);
  warp.copies.push_back(copy);
}

void commit(u8*, const Instruction&, u32 mask, Warp& warp) {
  const std::size_t count = warp.copies.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (warp.copies[i].group != PendingCopy::kOpen) continue;
    // Lanes that do not commit now, or that are at another group, keep a copy of their own.
    u32 now = warp.copies[i].mask & mask;
    if (!now) continue;
    const u32 group = warp.committed[first_lane(now)];
    PTX_FOR_EACH_LANE (lane, now)
      if (warp.committed[lane] != group) now &= ~(1u << lane);
    if (now != warp.copies[i].mask) {
      PendingCopy rest = warp.copies[i];
      rest.mask &= ~now;
      // Lanes that commit with another group number are few; give each its own entry.
      PTX_FOR_EACH_LANE (lane, rest.mask & mask) {
        PendingCopy single = rest;
        single.mask = 1u << lane, single.group = warp.committed[lane];
        warp.copies.push_back(single);
      }
      rest.mask &= ~mask;
      if (rest.mask) warp.copies.push_back(rest);
      warp.copies[i].mask = now;
    }
    warp.copies[i].group = group;
  }
  PTX_FOR_EACH_LANE (lane, mask) warp.committed[lane] += 1;
}

// `clock`: when the issuing warp asked to be told of the landing, 0 for now; `landing`: as
// Shadow::copy_landed takes it.
void land(Warp& warp, const PendingCopy& copy, u32 lanes, u32 clock, s32 landing) {
  Block& block = *warp.block;
  const u32 changed = of_copy_size(copy.bytes, [&](auto size) {
    u32 found = 0;
    PTX_FOR_EACH_LANE (lane, lanes) {
      u8* destination = block.shared + copy.destination[lane];
      const u32 copied = copy.copied[lane];
      u8 fresh[size] = {};  // what is not copied is filled with zeros
      if (copied == size)
        std::memcpy(fresh, copy.source[lane], size);
      else if (copied)
        std::memcpy(fresh, copy.source[lane], copied);
      found |= (std::memcmp(destination, fresh, size) != 0 ? 1u : 0u) << lane;
      std::memcpy(destination, fresh, size);
    }
    return found;
  });
  if (!block.shadow) return;
  block.shadow->copy_landed(warp, block.kernel->code[static_cast<std::size_t>(copy.pc)],
                            copy.destination, lanes, copy.bytes, changed, clock, landing);
}

// Lands what `ready` (copy, lane) says has to be there by now.
template <class Ready>
void land_ready(Warp& warp, u32 mask, u32 clock, s32 landing, Ready ready) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < warp.copies.size(); ++i) {
    PendingCopy& copy = warp.copies[i];
    u32 done = 0;
    PTX_FOR_EACH_LANE (lane, copy.mask & mask) done |= (ready(copy, lane) ? 1u : 0u) << lane;
    if (done) land(warp, copy, done, clock, landing);
    copy.mask &= ~done;
    if (copy.mask) {
      if (kept != i) warp.copies[kept] = copy;
      ++kept;
    }
  }
  warp.copies.resize(kept);
}

// Waits until at most so many groups of each lane are pending; fewer than 0 (wait_all) also takes
// uncommitted copies.
void wait(u8*, const Instruction& in, u32 mask, Warp& warp) {
  const bool all = in.groups < 0;
  const u32 keep = all ? 0 : static_cast<u32>(in.groups);
  land_ready(warp, mask, 0, Shadow::kNoLanding, [&](const PendingCopy& copy, u32 lane) {
    return copy.group == PendingCopy::kOpen ? all : copy.group + keep < warp.committed[lane];
  });
}

}  // namespace

void land_copies(Warp& warp, u64 last, u32 mask, u32 clock, s32 landing) {
  land_ready(warp, mask, clock, landing,
             [&](const PendingCopy& copy, u32) { return copy.order <= last; });
}

void add_async_copies(Table& table) {
  table.push_back({"cp.async", &issue, Kind::plain, Class::global, "", "address,address"});
  table.push_back({"cp.async.commit_group", &commit, Kind::plain, Class::sync, "", ""});
  table.push_back({"cp.async.wait_group", &wait, Kind::plain, Class::sync, "", "imm"});
  table.push_back({"cp.async.wait_all", &wait, Kind::plain, Class::sync, "", ""});
}

}  // namespace workbench::ptx
