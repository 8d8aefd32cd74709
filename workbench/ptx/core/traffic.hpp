// What each worker moves between memory and its blocks, buffer by buffer: all sectors of all requests, those that some
// block touches (each once per block), and those that the launch touches.
#pragma once
#include <cstdlib>
#include <memory>
#include <vector>

#include "pattern.hpp"

namespace workbench::ptx {

struct Buffer;

// In 32-byte sectors.
struct Sectors {
  u64 moved = 0;      // by requests: what L1 is asked for
  u64 by_blocks = 0;  // distinct in each block, summed over blocks: what a perfect L1 would ask L2 for
  u64 distinct = 0;   // distinct in the launch: what must come from, or go to, DRAM
};

class Traffic {
 public:
  explicit Traffic(const std::vector<Buffer>& buffers);

  // A request by `block`: these sectors of a buffer, counted from its sector `first`.
  void read(std::size_t buffer, u64 first, const Pieces& pieces, u64 block) {
    touch(reads_[buffer], first, pieces.sector, pieces.count, static_cast<u32>(block + 1));
  }
  void write(std::size_t buffer, u64 first, const Pieces& pieces, u64 block) {
    touch(writes_[buffer], first, pieces.sector, pieces.count, static_cast<u32>(block + 1));
  }

  // Adds up what several workers saw; `distinct` counts a sector once.
  static std::vector<Sectors> total(const std::vector<const Traffic*>& workers, bool written);

 private:
  struct Free {
    void operator()(u32* stamps) const { std::free(stamps); }
  };
  struct Map {
    u64 size = 0;                         // sectors
    std::unique_ptr<u32[], Free> stamps;  // by sector: the last block that touched it, plus one; made when needed
    Sectors seen;
  };

  static void touch(Map& map, u64 first, const u64* sectors, int count, u32 stamp) {
    if (!map.stamps) allocate(map);
    u32 by_block = 0, fresh = 0;
    for (int i = 0; i < count; ++i) {
      u32& last = map.stamps[first + sectors[i]];
      by_block += last != stamp, fresh += last == 0;
      last = stamp;
    }
    map.seen.moved += static_cast<u64>(count), map.seen.by_blocks += by_block, map.seen.distinct += fresh;
  }
  static void allocate(Map& map);

  std::vector<Map> reads_, writes_;
};

}  // namespace workbench::ptx
