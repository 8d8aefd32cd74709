// The cost of a memory request: 32-byte sectors of global memory, wavefronts of shared memory,
// bytes touched.
#include <algorithm>

#include "memory/access.hpp"

namespace workbench::ptx {
namespace {

// `base`: the start of the pieces' sectors.
void touch_sectors(Warp& warp, s32 pc, const Pieces& pieces, u64 base, bool is_write,
                   bool is_read) {
  const Block& block = *warp.block;
  const u64 index = static_cast<u64>(block.index);
  const auto touch = [&](const Buffer& buffer, const Pieces& inside) {
    const std::size_t which = static_cast<std::size_t>(&buffer - block.launch->buffers.data());
    const u64 first = base - (buffer.address >> 5);
    if (is_read)
      block.traffic->read(which, first, inside, index, warp.sectors),
          warp.sectors += static_cast<u32>(inside.count);
    if (is_write) block.traffic->write(which, first, inside, index);
  };
  const auto address = [&](int i) {
    return (base + pieces.sector[i]) << 5 | static_cast<u64>(__builtin_ctz(pieces.bytes[i]));
  };
  const auto inside = [&](const Buffer* buffer, int i) {
    return buffer && address(i) - buffer->address < buffer->size;
  };
  const Buffer* buffer = block.last_buffer[static_cast<std::size_t>(pc)];
  if (inside(buffer, 0) && inside(buffer, pieces.count - 1)) return touch(*buffer, pieces);
  for (int i = 0; i < pieces.count; ++i) {
    if (!inside(buffer, i)) buffer = block.find(address(i), 1);
    if (!buffer) continue;
    Pieces one;
    one.count = 1, one.sector[0] = pieces.sector[i], one.bytes[0] = pieces.bytes[i];
    touch(*buffer, one);
  }
}

inline u32 flags_of(bool is_write, bool is_read) {
  return (is_write ? RecordedRequest::writes : 0u) | (is_read ? RecordedRequest::reads : 0u);
}

void record(Warp& warp, s32 pc, const u64* addresses, u32 mask, u32 bytes, u32 flags, u32 sectors,
            Wavefronts wavefronts) {
  RecordedRequest request{.warp = warp.index,
                          .pc = pc,
                          .mask = mask,
                          .bytes = bytes,
                          .flags = flags,
                          .sectors = sectors,
                          .wavefronts = wavefronts.taken,
                          .ideal = wavefronts.ideal,
                          .address = {}};
  std::copy(addresses, addresses + kLanes, request.address);
  warp.block->recorder->request(request);
}

// Counts the bank passes of one request, and records the request. Returns false without statistics.
bool see_wavefronts(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes,
                    u32 flags) {
  Block& block = *warp.block;
  if (!mask || !(block.counts || block.recorder)) return false;
  Pattern& pattern = block.pattern(in, true, offsets, mask, bytes);
  const Wavefronts wavefronts = pattern.wavefronts(offsets, !(flags & RecordedRequest::writes));
  const s32 pc = block.pc_of(in);
  if (block.recorder)
    record(warp, pc, offsets, mask, bytes, flags | RecordedRequest::shared, 0, wavefronts);
  if (!block.counts) return false;
  block.counts[pc].wavefronts += wavefronts.taken;
  block.counts[pc].ideal += wavefronts.ideal;
  return true;
}

}  // namespace

void observe_global(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                    bool is_write, bool is_read) {
  Block& block = *warp.block;
  if (!mask || !(block.counts || block.recorder)) return;
  Pattern& pattern = block.pattern(in, false, addresses, mask, bytes);
  const Pieces& pieces = pattern.sectors(addresses);
  const s32 pc = block.pc_of(in);
  const u32 sectors = static_cast<u32>(pieces.count);
  if (block.recorder)
    record(warp, pc, addresses, mask, bytes, flags_of(is_write, is_read), sectors, {0, 0});
  if (!block.counts) return;
  Counts& counts = block.counts[pc];
  counts.requests += 1;
  counts.sectors += sectors;
  counts.ideal_sectors += (pieces.distinct_bytes + 31) / 32;
  counts.bytes += u64{bytes} * static_cast<u64>(count_lanes(mask));
  counts.distinct_bytes += pieces.distinct_bytes;
  touch_sectors(warp, pc, pieces, pattern.base(addresses), is_write, is_read);
}

void observe_constant(Warp& warp, const Instruction& in, const u64* addresses, u32 mask,
                      u32 bytes) {
  const Block& block = *warp.block;
  if (!mask || !block.counts) return;
  u64 kept[kLanes];
  u32 different = 0;
  PTX_FOR_EACH_LANE (lane, mask) {
    if (std::find(kept, kept + different, addresses[lane]) == kept + different)
      kept[different++] = addresses[lane];
  }
  Counts& counts = block.counts[block.pc_of(in)];
  counts.requests += 1;
  counts.wavefronts += different, counts.ideal += 1;
  counts.bytes += u64{bytes} * static_cast<u64>(count_lanes(mask));
}

void observe_shared(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes,
                    bool is_write, bool is_read) {
  if (!see_wavefronts(warp, in, offsets, mask, bytes, flags_of(is_write, is_read))) return;
  Counts& counts = warp.block->counts[warp.block->pc_of(in)];
  counts.requests += 1;
  counts.bytes += u64{bytes} * static_cast<u64>(count_lanes(mask));
}

void observe_copy(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes) {
  see_wavefronts(warp, in, offsets, mask, bytes, RecordedRequest::writes);
}

}  // namespace workbench::ptx
