// What each worker moves between memory and its blocks, buffer by buffer: all sectors of all
// requests, those that some block touches (each once per block), and those that the launch touches.
#pragma once
#include <vector>

#include "checks/pattern.hpp"
#include "memory/allocation.hpp"

namespace workbench::ptx {

struct Buffer;

constexpr std::size_t kDistances = 33;

// In 32-byte sectors.
struct Sectors {
  u64 moved = 0;  // by requests: what L1 is asked for
  u64 by_blocks =
      0;  // distinct in each block, summed over blocks: what a perfect L1 would ask L2 for
  u64 distinct = 0;  // distinct in the launch: what must come from, or go to, DRAM
  // Bytes of the buffer that are never read, and the offsets of the first and the last one; 0 for a
  // buffer that is not read at all, or only written.
  u64 unread = 0, first_unread = 0, last_unread = 0;
  // Reads that ask again for what the block has read, by the sectors d that a warp reads in
  // between: element k counts 2^(k-1) <= d < 2^k. Warps are taken to advance alike: where another
  // warp read it last, d is how much further one of the two has come.
  std::vector<u64> again = std::vector<u64>(kDistances);
};

class Traffic {
 public:
  explicit Traffic(const std::vector<Buffer>& buffers);

  // A request by `block`: these sectors of a buffer, counted from its sector `first`; `position` is
  // how many the warp has read before.
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
    u64 size = 0;    // sectors
    u64 before = 0;  // bytes of the first sector that lie before the buffer
    u64 bytes_of_buffer = 0;
    Memory<u32> bytes;      // by sector: which bytes were read
    Memory<u32> stamps;     // by sector: the last block that touched it, plus one; made when needed
    Memory<u32> positions;  // by sector: the position at which it was read last
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
