// What a memory request costs: 32-byte sectors of global memory, wavefronts of shared memory, bytes touched.
#include <algorithm>

#include "access.hpp"

namespace workbench::ptx {
namespace {

// Sets the bit of a sector unless it is set; several workers share the map.
inline void touch(u64* map, u64 sector) {
  u64* word = map + (sector >> 6);
  const u64 bit = u64{1} << (sector & 63);
  if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & bit)) __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
}

void touch_sectors(const Block& block, s32 pc, const u64* sectors, int count, bool is_write, bool is_read) {
  const Buffer* buffer = block.last_buffer[pc];
  for (int i = 0; i < count; ++i) {
    const u64 address = sectors[i] << 5;
    // The first byte of a sector may lie before its buffer: look up the last one, then the first.
    if (!buffer || (address | 31) < buffer->address || address >= buffer->address + buffer->size) {
      buffer = block.find(address | 31, 1);
      if (!buffer) buffer = block.find(address, 1);
      if (!buffer) continue;
    }
    const u64 index = sectors[i] - (buffer->address >> 5);
    if (is_read && buffer->sectors_read) touch(buffer->sectors_read, index);
    if (is_write && buffer->sectors_written) touch(buffer->sectors_written, index);
  }
}

u32 distinct_words(const u64* offsets, u32 mask, u32 words) {
  u64 lowest = ~u64{0}, highest = 0;
  PTX_FOR_EACH_LANE(lane, mask) {
    lowest = std::min(lowest, offsets[lane] >> 2);
    highest = std::max(highest, (offsets[lane] >> 2) + words);
  }
  constexpr u64 kSpan = 4096;
  if (highest - lowest <= kSpan) {
    u64 seen[kSpan / 64] = {};
    PTX_FOR_EACH_LANE(lane, mask) {
      for (u32 i = 0; i < words; ++i) {
        const u64 word = (offsets[lane] >> 2) + i - lowest;
        seen[word >> 6] |= u64{1} << (word & 63);
      }
    }
    u32 count = 0;
    for (u64 i = 0; i <= (highest - lowest) >> 6 && i < kSpan / 64; ++i) count += static_cast<u32>(__builtin_popcountll(seen[i]));
    return count;
  }
  u64 all[kLanes * 8];
  int count = 0;
  PTX_FOR_EACH_LANE(lane, mask) for (u32 i = 0; i < words; ++i) all[count++] = (offsets[lane] >> 2) + i;
  std::sort(all, all + count);
  return static_cast<u32>(std::unique(all, all + count) - all);
}

// The bank with the most distinct words decides how often the banks must be read.
u32 bank_passes(const u64* offsets, u32 mask, u32 words) {
  u8 load[32] = {};
  u32 kept[32][32];  // the distinct words of each bank, as far as loaded
  u32 worst = 0;
  PTX_FOR_EACH_LANE(lane, mask) {
    for (u32 i = 0; i < words; ++i) {
      const u32 word = static_cast<u32>(offsets[lane] >> 2) + i, bank = word & 31;
      bool known = false;
      for (u32 j = 0; j < load[bank]; ++j) known |= kept[bank][j] == word;
      if (known) continue;
      kept[bank][load[bank]++] = word;
      worst = std::max<u32>(worst, load[bank]);
    }
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
  const Wavefronts wavefronts = shared_wavefronts(offsets, mask, bytes);
  const s32 pc = block.pc_of(in);
  if (block.recorder) record(warp, pc, offsets, mask, bytes, flags | RecordedRequest::shared, 0, wavefronts);
  if (!block.counts) return false;
  block.counts[pc].wavefronts += wavefronts.taken;
  block.counts[pc].ideal += wavefronts.ideal;
  return true;
}

}  // namespace

int distinct_sectors(const u64* addresses, u32 mask, u32 bytes, u64* sectors) {
  int count = 0;
  u64 last = ~u64{0};
  bool ascending = true;
  PTX_FOR_EACH_LANE(lane, mask) {
    for (u64 sector = addresses[lane] >> 5; sector <= (addresses[lane] + bytes - 1) >> 5; ++sector) {
      if (sector == last) continue;
      ascending &= count == 0 || sector > last;
      sectors[count++] = last = sector;
    }
  }
  if (ascending) return count;
  std::sort(sectors, sectors + count);
  return static_cast<int>(std::unique(sectors, sectors + count) - sectors);
}

Wavefronts shared_wavefronts(const u64* offsets, u32 mask, u32 bytes) {
  if (!mask) return {0, 0};
  const u32 words = bytes < 4 ? 1 : bytes / 4;
  if (mask == kAllLanes) {
    bool consecutive = true, uniform = true;
    PTX_LANES {
      consecutive &= offsets[lane] == offsets[0] + static_cast<u64>(lane) * bytes;
      uniform &= offsets[lane] == offsets[0];
    }
    if (uniform || (consecutive && bytes <= 4)) return {1, 1};
    if (consecutive) return {words, words};
  }
  // 64-bit requests go by half warps, 128-bit ones by quarters; pairs of equal lanes let neighbours share a pass.
  u32 phases = bytes >= 16 ? 4 : bytes == 8 ? 2 : 1;
  if (phases > 1) {
    bool neighbours = true, next_neighbours = true;
    PTX_FOR_EACH_LANE(lane, mask) {
      if ((mask >> (lane ^ 1) & 1) && offsets[lane] != offsets[lane ^ 1]) neighbours = false;
      if ((mask >> (lane ^ 2) & 1) && offsets[lane] != offsets[lane ^ 2]) next_neighbours = false;
    }
    if (neighbours || next_neighbours) phases /= 2;
  }
  const u32 lanes = kLanes / phases;
  u32 taken = 0;
  for (u32 phase = 0; phase < phases; ++phase) {
    const u32 part = mask & ((lanes == 32 ? kAllLanes : (1u << lanes) - 1) << (phase * lanes));
    if (part) taken += bank_passes(offsets, part, words);
  }
  const u32 ideal = (distinct_words(offsets, mask, words) + 31) / 32;
  return {taken, ideal};
}

void observe_global(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes, bool is_write, bool is_read) {
  const Block& block = *warp.block;
  if (!mask || !(block.counts || block.recorder)) return;
  u64 sectors[kLanes * 2];
  const int count = distinct_sectors(addresses, mask, bytes, sectors);
  const s32 pc = block.pc_of(in);
  if (block.recorder) record(warp, pc, addresses, mask, bytes, flags_of(is_write, is_read), static_cast<u32>(count), {0, 0});
  if (!block.counts) return;
  Counts& counts = block.counts[pc];
  counts.requests += 1;
  counts.sectors += static_cast<u64>(count);
  counts.bytes += u64{bytes} * static_cast<u64>(count_lanes(mask));
  touch_sectors(block, pc, sectors, count, is_write, is_read);
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
