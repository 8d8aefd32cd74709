// How the lanes of a request lie to each other. Most instructions ask in the same pattern time and
// again, so that what a request costs, and which lanes touch which bytes, is worked out once for an
// instruction and not for each execution.
#pragma once
#include "lanes.hpp"

namespace workbench::ptx {

// A global request by 32-byte sectors. Accesses are aligned and of at most 32 bytes, so that a lane
// touches one sector.
struct Pieces {
  int count = 0;
  u32 distinct_bytes = 0;
  u64 sector[kLanes];  // address / 32, each once, ascending
  u32 bytes[kLanes];   // which of its bytes
};
void split_into_sectors(const u64* addresses, u32 mask, u32 bytes, Pieces& pieces);

// Passes through the 32 banks of shared memory that a request takes, and those it would take
// without bank conflicts.
//
// 32 lanes get 128 bytes per pass: a request of 8 bytes per lane goes by half warps, one of 16 by
// quarters. A load in which every active lane asks for the same address as its neighbour (lane ^
// 1), or the next but one (lane ^ 2), packs what it returns and takes half as many; a 16-byte
// request therefore takes at least two. Source: G. Smith (NVIDIA),
// forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228, for compute
// capability 7.0 and later. A part of the warp without active lanes takes no pass. Within a pass,
// lanes that touch the same 32-bit word share it, and a bank delivers one word (CUDA C++
// Programming Guide, Shared Memory).
struct Wavefronts {
  u32 taken = 0, ideal = 0;
};
Wavefronts shared_wavefronts(const u64* offsets, u32 mask, u32 bytes, bool is_load);

// The lanes of a request, those of the same address together.
struct LaneGroups {
  int count = 0;
  u32 lanes[kLanes];
};

class Pattern {
 public:
  // Whether this is the request's pattern, wherever the sector of its first address lies.
  bool fits(const u64* addresses, u32 mask, u32 bytes) const;
  void become(const u64* addresses, u32 mask, u32 bytes);

  // The following take the addresses of a request that fits. Sectors count from base().
  u64 base(const u64* addresses) const { return addresses[first_lane(mask_)] >> 5; }
  const Pieces& sectors(const u64* addresses);
  const LanePieces& pieces(const u64* addresses);
  const LaneGroups& groups(const u64* addresses);
  Wavefronts wavefronts(const u64* offsets, bool is_load);

 private:
  enum Known : u32 { has_sectors = 1, has_pieces = 2, has_groups = 4, has_wavefronts = 8 };
  bool learns(Known what) {
    const bool fresh = !(known_ & what);
    known_ |= what;
    return fresh;
  }

  u32 mask_ = 0;  // none: no request so far
  u32 bytes_ = 0;
  u32 known_ = 0;
  u64 alignment_ = 0;               // of the first address, in its sector
  u64 in_line_ = 0;                 // its sector's place in the line, for which pieces_ stand
  alignas(32) u64 offset_[kLanes];  // of each address from the first one
  Wavefronts wavefronts_;
  LaneGroups groups_;
  LanePieces pieces_;
  Pieces sectors_;
};

}  // namespace workbench::ptx
