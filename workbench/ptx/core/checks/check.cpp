// The part of checks that sees memory requests: shared accesses, and strong accesses, which order
// warps.
#include "checks/global_shadow.hpp"
#include "memory/access.hpp"
#include "memory/cluster.hpp"

namespace workbench::ptx {

void check_shared(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes,
                  bool is_write) {
  Shadow& shadow = *warp.block->shadow;
  const bool strong = in.flags & kStrong;
  if (is_write)
    shadow.write(warp, in, offsets, mask, bytes, strong, mask);
  else
    shadow.read(warp, in, offsets, mask, bytes, strong);
}

void check_addresses(const Warp& warp, const Instruction& in, const std::vector<Extent>& extents,
                     const u64* addresses, u32 mask, u32 bytes, bool is_write) {
  const auto [low, high, period, filled] = extents[static_cast<std::size_t>(warp.block->pc_of(in))];
  if (high == ~u64{0}) return;
  u64 outside = 0;
  PTX_LANES {
    outside |= (addresses[lane] - low) | (high - addresses[lane] - bytes);
  }
  if (static_cast<s64>(outside) >= 0 && !(is_write && period)) return;
  PTX_FOR_EACH_LANE (lane, mask)
    check_extent(warp, in, extents, lane, addresses[lane], bytes, is_write);
}

void check_extent(const Warp& warp, const Instruction& in, const std::vector<Extent>& extents,
                  u32 lane, u64 address, u32 bytes, bool is_write) {
  if (extents.empty()) return;
  Block& block = *warp.block;
  const auto [low, high, period, filled] = extents[static_cast<std::size_t>(block.pc_of(in))];
  const bool inside = address >= low && address <= high && bytes <= high - address;
  if (inside && !(is_write && period && (address - low) % period + bytes > filled)) return;
  block.note({.problem = inside ? Problem::between_elements : Problem::outside_extent,
              .pc = block.pc_of(in),
              .block = block.index,
              .thread = warp.thread(lane),
              .address = address,
              .bytes = bytes,
              .least = address,
              .most = address});
}

void check_wrapped(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes) {
  PTX_FOR_EACH_LANE (lane, mask) check_wrapped(warp, in, lane, addresses[lane], bytes);
}

void check_wrapped(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes) {
  Block& block = *warp.block;
  const s32 pc = block.pc_of(in);
  const s32 begun =
      warp.wrapped->begun(block.kernel->wraps[static_cast<std::size_t>(pc)].source[0], lane);
  if (begun < 0) return;
  block.note({.problem = Problem::wrapped_index,
              .pc = pc,
              .other_pc = begun,
              .block = block.index,
              .thread = warp.thread(lane),
              .address = address,
              .bytes = bytes});
}

void acquire_flags(Warp& warp, const u64* keys, u32 mask, bool is_read) {
  Shadow& shadow = *warp.block->shadow;
  shadow.clocks.order_lanes_at_access(warp.agent);
  if (is_read)
    PTX_FOR_EACH_LANE (lane, mask) shadow.acquire(warp.agent, warp.block->flag(keys[lane]));
}

void release_flags(Warp& warp, const Instruction& in, const u64* keys, u32 mask, bool is_write) {
  if (!is_write) return;
  Clocks& clocks = warp.block->shadow->clocks;
  PTX_FOR_EACH_LANE (lane, mask)
    clocks.release(warp.agent, warp.block->flag(keys[lane]), in.flags & kRelease,
                   !(in.flags & kBlockScope));
}

void check_remote(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                  bool is_write, u32 changed) {
  const bool strong = in.flags & kStrong;
  for (Block* home : warp.block->cluster->blocks) {
    u64 offsets[kLanes];
    u32 lanes = 0;
    PTX_FOR_EACH_LANE (lane, mask)
      lanes |= (addresses[lane] >> kRankShift == home->rank + 1 ? 1u : 0u) << lane;
    if (!lanes) continue;
    // Lanes outside the mask repeat the address of one inside.
    for (u32 lane = 0; lane < kLanes; ++lane)
      offsets[lane] =
          addresses[lanes >> lane & 1 ? lane : static_cast<u32>(first_lane(lanes))] & kOffsetMask;
    if (is_write)
      home->shadow->write(warp, in, offsets, lanes, bytes, strong, changed & lanes);
    else
      home->shadow->read(warp, in, offsets, lanes, bytes, strong);
  }
}

void check_global(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                  bool is_write, bool is_read) {
  GlobalShadow& shadow = *warp.block->launch->global_shadow;
  if (!(in.flags & kStrong)) {
    const auto& unused = warp.block->launch->unused;
    if (!unused.empty()) {
      const std::vector<u32>& by_warp = unused[static_cast<std::size_t>(warp.block->pc_of(in))];
      if (!by_warp.empty()) mask &= ~by_warp[static_cast<std::size_t>(warp.index)];
      if (!mask) return;
    }
    return shadow.read(warp, in, addresses, mask, bytes);
  }
  acquire_flags(warp, addresses, mask, is_read);
  shadow.strong(warp, in, addresses, mask, bytes, is_write, is_read);
}

namespace {

// Stores for each lane and returns the lanes that change memory. Goes lane by lane: a lane that
// stores the same bytes as an earlier one changes nothing.
template <u32 Bytes>
u32 store_each(const Request& request, const u8* values) {
  u32 changed = 0;
  PTX_FOR_EACH_LANE (lane, request.mask) {
    u8* const to = request.at(lane);
    const u8* const from = values + lane * Bytes;
    changed |= (std::memcmp(to, from, Bytes) != 0 ? 1u : 0u) << lane;
    std::memcpy(to, from, Bytes);
  }
  return changed;
}

// Does the same for all 32 lanes, whose addresses are contiguous.
template <class T>
u32 store_row(u8* to, const u8* values) {
  T old[kLanes], fresh[kLanes];
  std::memcpy(old, to, sizeof old), std::memcpy(fresh, values, sizeof fresh);
  std::memcpy(to, fresh, sizeof fresh);
  u32 changed = 0;
  for (u32 lane = 0; lane < kLanes; ++lane) changed |= u32{old[lane] != fresh[lane]} << lane;
  return changed;
}

bool is_row(const Request& request, u32 bytes) {
  if (request.mask != kAllLanes) return false;
  if (const LaneOffsets* known = request.located.offsets; request.located.first)
    return known->order == LaneOffsets::Order::row && known->from_first[1] == bytes;
  const auto first = reinterpret_cast<std::uintptr_t>(request.host[0]);
  u64 apart = 0;
  PTX_LANES {
    apart |= (reinterpret_cast<std::uintptr_t>(request.host[lane]) - first) ^
             static_cast<u64>(lane) * bytes;
  }
  return !apart;
}

u32 store_and_compare(const Request& request, const u8* values, u32 bytes) {
  switch (bytes) {
    case 1: return store_each<1>(request, values);
    case 2: return store_each<2>(request, values);
    case 4:
      return is_row(request, 4) ? store_row<u32>(request.at(0), values)
                                : store_each<4>(request, values);
    case 8:
      return is_row(request, 8) ? store_row<u64>(request.at(0), values)
                                : store_each<8>(request, values);
    case 16: return store_each<16>(request, values);
    default: return store_each<32>(request, values);
  }
}

}  // namespace

void store_lanes(Warp& warp, const Instruction& in, const Request& request, const u8* values,
                 u32 bytes) {
  const auto held = request.shadowed_global ? warp.block->launch->global_shadow->hold()
                                            : std::unique_lock<std::recursive_mutex>();
  const u32 changed = store_and_compare(request, values, bytes);
  const u32 shared = request.shadowed & request.mask;
  const bool strong = in.flags & kStrong;
  if (shared) warp.block->shadow->write(warp, in, request.address, shared, bytes, strong, changed);
  const u32 remote = request.shadowed_remote & request.mask;
  if (remote) check_remote(warp, in, request.address, remote, bytes, true, changed);
  const u32 global = request.shadowed_global & request.mask;
  if (global)
    warp.block->launch->global_shadow->write(warp, in, request.address, global, bytes,
                                             changed & global);
}

void store_lane(Warp& warp, const Instruction& in, const Request& request, u32 lane,
                const void* from, u32 bytes) {
  const auto held = request.shadowed_global ? warp.block->launch->global_shadow->hold()
                                            : std::unique_lock<std::recursive_mutex>();
  u8* to = request.host[lane];
  const u32 bit = 1u << lane, changed = std::memcmp(to, from, bytes) != 0 ? bit : 0;
  const bool strong = in.flags & kStrong;
  if (request.shadowed & bit)
    warp.block->shadow->write(warp, in, request.address, bit, bytes, strong, changed);
  if (request.shadowed_remote & bit)
    check_remote(warp, in, request.address, bit, bytes, true, changed);
  if (request.shadowed_global & bit)
    warp.block->launch->global_shadow->write(warp, in, request.address, bit, bytes, changed);
  std::memcpy(to, from, bytes);
}

}  // namespace workbench::ptx
