// Traffic of each worker between memory and its blocks, by buffer: sectors of all requests,
// distinct sectors of each block, and distinct sectors of the launch.
#pragma once
#include <vector>

#include "checks/pattern.hpp"
#include "memory/allocation.hpp"

namespace workbench::ptx {

struct Buffer;

constexpr std::size_t kDistances = 33;

// Numbers of 32-byte sectors.
struct Sectors {
  u64 moved = 0;  // sectors of all requests: the load of L1
  u64 by_blocks =
      0;  // distinct in each block, summed over blocks: the load of L2 if L1 were perfect
  u64 distinct = 0;  // distinct in the launch: what must come from, or go to, DRAM
  // Bytes of the buffer that are never read, and the offsets of the first and the last one; 0 for a
  // buffer that is not read at all, or only written.
  u64 unread = 0, first_unread = 0, last_unread = 0;
  // Reads of sectors that the block has read before, by the number d of sectors that a warp reads
  // in between: element k counts 2^(k-1) <= d < 2^k. Warps are assumed to advance alike: if another
  // warp read the sector last, d is the difference between their positions.
  std::vector<u64> again = std::vector<u64>(kDistances);
};

class Traffic {
 public:
  explicit Traffic(const std::vector<Buffer>& buffers);

  // Counts a request of `block` for sectors of a buffer, counted from its sector `first`;
  // `position` is the number of sectors that the warp has read before.
  void read(std::size_t buffer, u64 first, const Pieces& pieces, u64 block, u32 position) {
    Map& map = reads_[buffer];
    const u32 stamp = static_cast<u32>(block + 1);
    if (!map.stamps) allocate(map, true);
    for (int i = 0; i < pieces.count; ++i, ++position) {
      const u64 sector = first + pieces.sector[i];
      u32& then = map.positions[sector];
      if (map.stamps[sector] == stamp)
        map.seen.again[bucket(position > then ? position - then : then - position)] += 1;
      then = position;
      map.bytes[sector] |= pieces.bytes[i];
    }
    touch(map, first, pieces, stamp);
  }
  void write(std::size_t buffer, u64 first, const Pieces& pieces, u64 block) {
    Map& map = writes_[buffer];
    if (!map.stamps) allocate(map, false);
    touch(map, first, pieces, static_cast<u32>(block + 1));
  }

  // Adds up what several workers saw; `distinct` counts a sector once.
  static std::vector<Sectors> total(const std::vector<const Traffic*>& workers, bool written);

 private:
  struct Map {
    u64 size = 0;    // number of sectors
    u64 before = 0;  // bytes of the first sector that precede the buffer
    u64 bytes_of_buffer = 0;
    Memory<u32> bytes;  // by sector: the bytes that were read, as bits
    // By sector: the last block that touched it, plus one; allocated when needed.
    Memory<u32> stamps;
    Memory<u32> positions;  // by sector: the position at which it was last read
    Sectors seen;
  };

  static std::size_t bucket(u32 distance) {
    return distance ? 32u - static_cast<u32>(__builtin_clz(distance)) : 0u;
  }
  static void touch(Map& map, u64 first, const Pieces& pieces, u32 stamp) {
    u32 by_block = 0, fresh = 0;
    for (int i = 0; i < pieces.count; ++i) {
      u32& last = map.stamps[first + pieces.sector[i]];
      by_block += last != stamp, fresh += last == 0;
      last = stamp;
    }
    map.seen.moved += static_cast<u64>(pieces.count), map.seen.by_blocks += by_block,
        map.seen.distinct += fresh;
  }
  static void allocate(Map& map, bool of_reads);
  static void count_unread(const std::vector<const Map*>& maps, Sectors& seen);

  std::vector<Map> reads_, writes_;
};

}  // namespace workbench::ptx
