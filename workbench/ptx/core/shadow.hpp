// Shadow state of shared memory: who wrote and read each granule last, and when.
//
// A granule is the smallest access that the kernel makes to shared memory; as accesses are naturally aligned, each
// covers whole granules and the check is exact. Clocks grow over all blocks of a worker, so nothing is cleared.
// Two accesses race if neither is ordered before the other (see clocks.hpp), one of them writes, and not both are
// strong (atomic, volatile, .relaxed or more). A store that leaves the bytes as they are is harmless.
#pragma once
#include <vector>

#include "clocks.hpp"

namespace workbench::ptx {

struct Warp;
struct Instruction;

class Shadow {
 public:
  Clocks clocks;

  void resize(u32 shared_bytes, u32 granule, u32 warps);
  void begin_block() { clocks.begin_block(); }
  void drop_pending();  // copies that nobody waited for end with the block

  void read(Warp& warp, const Instruction& instruction, u32 lane, u32 address, u32 bytes, bool strong = false);
  // `changes`: the bytes differ from what is there.
  void write(Warp& warp, const Instruction& instruction, u32 lane, u32 address, u32 bytes, bool strong, bool changes);
  void copy_issued(Warp& warp, const Instruction& instruction, u32 lane, u32 address, u32 bytes, bool changes);
  void copy_landed(Warp& warp, const Instruction& instruction, u32 lane, u32 address, u32 bytes, bool changes);

 private:
  struct Access {
    u32 clock = 0;
    s32 pc = -1;
    u16 thread : 15 = 0;
    u16 strong : 1 = 0;
    u16 lane_order = 0;
  };
  struct alignas(64) Granule {
    Access write;          // the last one, strong or not
    Access weak;           // the last plain one: an atomic after it must not hide it
    u32 weak_warps = 0;    // warps that stored the same bytes as `weak` since
    u32 weak_lanes = 0;    // likewise, lanes of its warp
    Access read, other;    // readers of two warps
    u32 read_lanes = 0;    // lanes of `read`'s warp
    s32 pending = -1;      // the cp.async that has this destination and has not landed: pc * 1024 + thread
  };
  static_assert(sizeof(Granule) == 64);

  // The one who asks, with what it has seen.
  struct Asker {
    u32 warp, lane;
    const u32* seen;
    Access access;
    u32 start;
  };
  enum class Conflict : u8 { none, warps, lanes };

  Asker asker(const Warp& warp, const Instruction& instruction, u32 lane, bool strong) const;
  static Conflict conflict(const Asker& who, const Access& other, u32 lanes);
  static Conflict with_write(const Asker& who, const Granule& granule);
  static Conflict with_reads(const Asker& who, const Granule& granule, const Access*& other);
  static void record_read(const Asker& who, Granule& granule);
  static void record_write(const Asker& who, Granule& granule);

  std::vector<Granule> granules_;
  u32 shift_ = 2;
};

}  // namespace workbench::ptx
