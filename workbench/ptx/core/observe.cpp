// What a memory request costs: 32-byte sectors of global memory, wavefronts of shared memory, bytes touched.
#include <algorithm>

#include "access.hpp"

namespace workbench::ptx {
namespace {

void touch_sectors(Warp& warp, s32 pc, const Pieces& pieces, bool is_write, bool is_read) {
  const Block& block = *warp.block;
  const std::vector<Buffer>& buffers = block.launch->buffers;
  const Buffer* buffer = block.last_buffer[static_cast<std::size_t>(pc)];
  const u64 index = static_cast<u64>(block.index);
  for (int i = 0; i < pieces.count; ++i) {
    const u64 address = pieces.sector[i] << 5 | static_cast<u64>(__builtin_ctz(pieces.bytes[i]));
    if (!buffer || address < buffer->address || address >= buffer->address + buffer->size) buffer = block.find(address, 1);
    if (!buffer) continue;
    const u64 sector = pieces.sector[i] - (buffer->address >> 5);
    const std::size_t which = static_cast<std::size_t>(buffer - buffers.data());
    if (is_read) block.traffic->read(which, sector, index, warp.sectors++);
    if (is_write) block.traffic->write(which, sector, index);
  }
}

// The bank with the most distinct words decides how often the banks must be read. Accesses are aligned, so those of
// several words fill whole groups of banks, and one word of each will do.
u32 bank_passes(const u64* offsets, u32 mask, u32 words) {
  const u32 shift = 2 + static_cast<u32>(__builtin_ctz(words)), groups = 32 / words;
  u8 load[32] = {};
  u32 kept[32][32];  // the distinct accesses of each group of banks, as far as loaded
  u32 worst = 0;
  PTX_FOR_EACH_LANE(lane, mask) {
    const u32 access = static_cast<u32>(offsets[lane] >> shift), group = access & (groups - 1);
    bool known = false;
    for (u32 j = 0; j < load[group]; ++j) known |= kept[group][j] == access;
    if (known) continue;
    kept[group][load[group]++] = access;
    worst = std::max<u32>(worst, load[group]);
  }
  return worst;
}

inline u32 flags_of(bool is_write, bool is_read) {
  return (is_write ? RecordedRequest::writes : 0u) | (is_read ? RecordedRequest::reads : 0u);
}

void record(Warp& warp, s32 pc, const u64* addresses, u32 mask, u32 bytes, u32 flags, u32 sectors, Wavefronts wavefronts) {
  RecordedRequest request{.warp = warp.index, .pc = pc, .mask = mask, .bytes = bytes, .flags = flags, .sectors = sectors,
                          .wavefronts = wavefronts.taken, .ideal = wavefronts.ideal, .address = {}};
  std::copy(addresses, addresses + kLanes, request.address);
  warp.block->recorder->request(request);
}

// Counts and records the banks of one request. False without statistics.
bool see_wavefronts(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes, u32 flags) {
  const Block& block = *warp.block;
  if (!mask || !(block.counts || block.recorder)) return false;
  const Wavefronts wavefronts = shared_wavefronts(offsets, mask, bytes, !(flags & RecordedRequest::writes));
  const s32 pc = block.pc_of(in);
  if (block.recorder) record(warp, pc, offsets, mask, bytes, flags | RecordedRequest::shared, 0, wavefronts);
  if (!block.counts) return false;
  block.counts[pc].wavefronts += wavefronts.taken;
  block.counts[pc].ideal += wavefronts.ideal;
  return true;
}

}  // namespace

void split_into_sectors(const u64* addresses, u32 mask, u32 bytes, Pieces& pieces) {
  const u32 access = bytes >= 32 ? ~0u : (1u << bytes) - 1;
  if (mask == kAllLanes) {
    const u64 first = addresses[0];
    u64 apart = 0, unequal = 0;
    PTX_LANES {
      apart |= addresses[lane] ^ (first + static_cast<u64>(lane) * bytes);
      unequal |= addresses[lane] ^ first;
    }
    if (!apart) {
      const u64 end = first + u64{bytes} * kLanes;
      int count = 0;
      for (u64 sector = first >> 5; sector << 5 < end; ++sector, ++count) pieces.sector[count] = sector, pieces.bytes[count] = ~0u;
      pieces.bytes[0] &= ~0u << (first & 31);
      if (end & 31) pieces.bytes[count - 1] &= ~0u >> (32 - (end & 31));
      pieces.count = count, pieces.distinct_bytes = bytes * kLanes;
      return;
    }
    if (!unequal) {
      pieces.count = 1, pieces.distinct_bytes = bytes;
      pieces.sector[0] = first >> 5, pieces.bytes[0] = access << (first & 31);
      return;
    }
  }
  int count = 0;
  PTX_FOR_EACH_LANE(lane, mask) {
    const u64 sector = addresses[lane] >> 5;
    const u32 part = access << (addresses[lane] & 31);
    int at = count;
    while (at > 0 && pieces.sector[at - 1] > sector) --at;
    if (at > 0 && pieces.sector[at - 1] == sector) {
      pieces.bytes[at - 1] |= part;
      continue;
    }
    for (int i = count; i > at; --i) pieces.sector[i] = pieces.sector[i - 1], pieces.bytes[i] = pieces.bytes[i - 1];
    pieces.sector[at] = sector, pieces.bytes[at] = part;
    ++count;
  }
  u32 distinct = 0;
  for (int i = 0; i < count; ++i) distinct += static_cast<u32>(__builtin_popcount(pieces.bytes[i]));
  pieces.count = count, pieces.distinct_bytes = distinct;
}

Wavefronts shared_wavefronts(const u64* offsets, u32 mask, u32 bytes, bool is_load) {
  if (!mask) return {0, 0};
  const u32 words = bytes < 4 ? 1 : bytes / 4;
  u32 phases = words;
  if (mask == kAllLanes) {
    u64 apart = 0, unequal = 0;
    PTX_LANES {
      apart |= offsets[lane] ^ (offsets[0] + static_cast<u64>(lane) * bytes);
      unequal |= offsets[lane] ^ offsets[0];
    }
    if (!apart) return {phases, phases};
    if (!unequal && is_load && phases > 1) phases /= 2;
    if (!unequal) return {phases, phases};
  }
  if (phases > 1 && is_load) {
    u64 neighbours = 0, next_neighbours = 0;
    PTX_FOR_EACH_LANE(lane, mask) {
      if (mask >> (lane ^ 1) & 1) neighbours |= offsets[lane] ^ offsets[lane ^ 1];
      if (mask >> (lane ^ 2) & 1) next_neighbours |= offsets[lane] ^ offsets[lane ^ 2];
    }
    if (!neighbours || !next_neighbours) phases /= 2;
  }
  const u32 lanes = kLanes / phases;
  Wavefronts all{0, 0};
  for (u32 phase = 0; phase < phases; ++phase) {
    const u32 part = mask & ((lanes == 32 ? kAllLanes : (1u << lanes) - 1) << (phase * lanes));
    if (part) all.taken += bank_passes(offsets, part, words), all.ideal += 1;
  }
  return all;
}

void observe_global(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes, bool is_write, bool is_read) {
  const Block& block = *warp.block;
  if (!mask || !(block.counts || block.recorder)) return;
  Pieces pieces;
  split_into_sectors(addresses, mask, bytes, pieces);
  const s32 pc = block.pc_of(in);
  const u32 sectors = static_cast<u32>(pieces.count);
  if (block.recorder) record(warp, pc, addresses, mask, bytes, flags_of(is_write, is_read), sectors, {0, 0});
  if (!block.counts) return;
  Counts& counts = block.counts[pc];
  counts.requests += 1;
  counts.sectors += sectors;
  counts.ideal_sectors += (pieces.distinct_bytes + 31) / 32;
  counts.bytes += u64{bytes} * static_cast<u64>(count_lanes(mask));
  counts.distinct_bytes += pieces.distinct_bytes;
  touch_sectors(warp, pc, pieces, is_write, is_read);
}

void observe_constant(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes) {
  const Block& block = *warp.block;
  if (!mask || !block.counts) return;
  u64 kept[kLanes];
  u32 different = 0;
  PTX_FOR_EACH_LANE(lane, mask) {
    if (std::find(kept, kept + different, addresses[lane]) == kept + different) kept[different++] = addresses[lane];
  }
  Counts& counts = block.counts[block.pc_of(in)];
  counts.requests += 1;
  counts.wavefronts += different, counts.ideal += 1;
  counts.bytes += u64{bytes} * static_cast<u64>(count_lanes(mask));
}

void observe_shared(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes, bool is_write, bool is_read) {
  if (!see_wavefronts(warp, in, offsets, mask, bytes, flags_of(is_write, is_read))) return;
  Counts& counts = warp.block->counts[warp.block->pc_of(in)];
  counts.requests += 1;
  counts.bytes += u64{bytes} * static_cast<u64>(count_lanes(mask));
}

void observe_copy(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes) {
  see_wavefronts(warp, in, offsets, mask, bytes, RecordedRequest::writes);
}

}  // namespace workbench::ptx
