// What checks see of memory requests: shared accesses, and strong accesses that order warps.
#include "access.hpp"
#include "global_shadow.hpp"

namespace workbench::ptx {

void check_shared(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes, bool is_write) {
  Shadow* shadow = warp.block->shadow;
  const bool strong = in.slot[kFlagsSlot] & kStrong;
  PTX_FOR_EACH_LANE(lane, mask) {
    const u32 offset = static_cast<u32>(offsets[lane]);
    if (is_write) shadow->write(warp, in, lane, offset, bytes, strong, true);
    else shadow->read(warp, in, lane, offset, bytes, strong);
  }
}

void synchronise(Warp& warp, const Instruction& in, const u64* keys, u32 mask, bool is_write, bool is_read) {
  Clocks& clocks = warp.block->shadow->clocks;
  const u32 index = static_cast<u32>(warp.index);
  clocks.order_lanes(index);
  PTX_FOR_EACH_LANE(lane, mask) {
    if (is_read) clocks.acquire(index, keys[lane]);
    if (is_write) clocks.release(index, keys[lane], in.slot[kFlagsSlot] & kRelease);
  }
}

void check_global(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes, bool is_write, bool is_read) {
  GlobalShadow& shadow = *warp.block->launch->global_shadow;
  if (!(in.slot[kFlagsSlot] & kStrong)) {
    shadow.read_lanes(warp, in, addresses, mask, bytes);
    return;
  }
  Block& block = *warp.block;
  synchronise(warp, in, addresses, mask, is_write, is_read);
  block.acquired |= is_read;
  if (is_write && (block.fenced || in.slot[kFlagsSlot] & kRelease)) shadow.release(block.index);
  PTX_FOR_EACH_LANE(lane, mask) shadow.strong(warp, in, lane, addresses[lane], bytes, is_write, is_read);
}

void store_lane(Warp& warp, const Instruction& in, const Request& request, u32 lane, const void* from, u32 bytes) {
  u8* to = request.host[lane];
  if (request.shadowed >> lane & 1) {
    const bool changes = std::memcmp(to, from, bytes) != 0, strong = in.slot[kFlagsSlot] & kStrong;
    warp.block->shadow->write(warp, in, lane, static_cast<u32>(request.address[lane]), bytes, strong, changes);
  }
  if (request.shadowed_global >> lane & 1) {
    const bool changes = std::memcmp(to, from, bytes) != 0;
    warp.block->launch->global_shadow->write(warp, in, lane, request.address[lane], bytes, changes);
  }
  std::memcpy(to, from, bytes);
}

}  // namespace workbench::ptx
