#include "numerics/places.hpp"

#include "memory/access.hpp"

namespace workbench::ptx::numerics {
namespace {

constexpr u32 kRankShift = 24;

void place(Warp& warp, u32 lane, u64 address, Site::Space space, u32 bytes, Places& places) {
  Block& block = *warp.block;
  u64 offset = address;
  if (space == Site::generic) {
    const u64 window = address >> 56;
    space = window == kSharedWindow >> 56  ? Site::shared
            : window == kLocalWindow >> 56 ? Site::local
                                           : Site::global;
  }
  places.address[lane] = address, places.host[lane] = nullptr;
  if (space == Site::global) {
    places.host[lane] = block.host_of(address, bytes);
    return;
  }
  places.of_block = true;
  offset &= kWindowMask;
  if (space == Site::local) {
    const u64 size = block.kernel->local_bytes;
    if (offset + bytes <= size) places.host[lane] = warp.local + lane * size + offset;
    return;
  }
  const u64 rank = offset >> kRankShift;
  if (rank && rank - 1 != block.rank) return;
  offset &= (u64{1} << kRankShift) - 1;
  if (offset + bytes <= block.launch->shared_bytes) places.host[lane] = block.shared + offset;
}

}  // namespace

void find_places(u8* registers, Slot slot, u64 offset, u32 flags, u32 mask, Warp& warp,
                 Site::Space space, u32 bytes, Places& places) {
  places.of_block = false;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 address = flags & kNarrowBase
                            ? at<const u32>(registers, slot)[lane] + static_cast<u32>(offset)
                            : at<const u64>(registers, slot)[lane] + offset;
    place(warp, lane, address, space, bytes, places);
  }
}

}  // namespace workbench::ptx::numerics
