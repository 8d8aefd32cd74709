// Requests of all lanes with a known layout.
#include "memory/access.hpp"
#include "memory/cluster.hpp"

namespace workbench::ptx {

Pattern& Block::pattern(const Instruction& in, bool is_shared, const u64* addresses, u32 mask,
                        u32 bytes) {
  const u64 offsets = addresses == located && mask == kAllLanes ? located_by : 0;
  return patterns.find(2 * static_cast<std::size_t>(pc_of(in)) + is_shared, addresses, mask, bytes,
                       offsets);
}

namespace {

template <Space S>
inline Located located_by(const LaneOffsets* offsets, u8* registers, const Instruction& in,
                          Block& block, u32 bytes, bool is_write) {
  const u64 address = first_address(registers, in);
  if (!offsets->aligned(address, bytes)) return {};
  if (S == Space::generic && in.flags & kClusterBase) return {};
  if (S == Space::shared || (S == Space::generic && in_shared(address))) {
    if (S == Space::generic && block.cluster->blocks.size() > 1) return {};
    const u64 offset = address & kWindowMask;
    if (!offsets->within(offset, block.launch->shared_bytes, bytes)) return {};
    return {block.shared + offset, offsets};
  }
  const Buffer* const buffer = block.last_buffer[static_cast<std::size_t>(block.pc_of(in))];
  if (!buffer || buffer->heap || (is_write && !buffer->writable)) return {};
  const u64 offset = address - buffer->address;
  if (!offsets->within(offset, buffer->size, bytes)) return {};
  return {buffer->host + offset, offsets};
}

template <Space S>
[[gnu::noinline]] Located locate_otherwise(u8* registers, const Instruction& in, Warp& warp,
                                           u32 bytes, bool is_write) {
  Block& block = *warp.block;
  LaneOffsetList& list = block.lane_offsets;
  const std::size_t pc = static_cast<std::size_t>(block.pc_of(in));
  const LaneOffsets* const offsets = in.flags & kNarrowBase
                                         ? list.other(pc, at<const u32>(registers, in.address))
                                         : list.other(pc, at<const u64>(registers, in.address));
  if (!offsets) return {};
  list.fitted(pc);
  return located_by<S>(offsets, registers, in, block, bytes, is_write);
}

}  // namespace

template <Space S>
Located locate(u8* registers, const Instruction& in, Warp& warp, u32 bytes, bool is_write) {
  Block& block = *warp.block;
  LaneOffsetList& list = block.lane_offsets;
  const std::size_t pc = static_cast<std::size_t>(block.pc_of(in));
  const LaneOffsets* const offsets = list.likely(pc);
  if (!offsets) return {};
  if (in.flags & kNarrowBase ? !offsets->fits(at<const u32>(registers, in.address))
                             : !offsets->fits(at<const u64>(registers, in.address)))
    return locate_otherwise<S>(registers, in, warp, bytes, is_write);
  list.fitted(pc);
  return located_by<S>(offsets, registers, in, block, bytes, is_write);
}

#define PTX_LOCATE(space) \
  template Located locate<Space::space>(u8*, const Instruction&, Warp&, u32, bool);
PTX_LOCATE(global)
PTX_LOCATE(shared)
PTX_LOCATE(generic)
PTX_LOCATE(constant)
#undef PTX_LOCATE

}  // namespace workbench::ptx
