// Races that are none because one side holds a copy.
//
// Where a tensor has fewer elements than its threads, Triton lets several threads compute each element and one of them
// store it: the others come to the store with a guard that is false, and the address that the storing one has. Where the
// storing thread loaded from there before, by the instruction by which such a copy did, they do not race: the value is
// that of the same element. A race of a load with a guarded store is therefore a suspicion until the reader has come by
// that store, or the block has ended. Compilers of CUDA C++ branch around a store instead of guarding it.
#pragma once
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lanes.hpp"
#include "machine.hpp"

namespace workbench::ptx {

// Of the block that a worker runs.
class Replicas {
 public:
  void begin_block(std::size_t instructions, std::size_t warps);
  // A warp's plain load, and its guarded store: is what it stores now what it loaded there last?
  void load(s32 pc, u32 warp, const u64* addresses, u32 mask);
  void store(s32 pc, u32 warp, const u64* addresses, u32 mask);
  // A warp has come to the guarded store at `pc`, and these of its lanes have these bytes of a sector in mind.
  void pass(s32 pc, u32 warp, u64 sector, u32 bytes, Lanes lanes);
  // Bytes, of these, that the lanes read at `load` as copies, as far as is known by now.
  u32 excused(s32 pc, s32 load, u32 warp, u64 sector, u32 bytes, Lanes lanes) const;
  // A race of a read of these bytes at `load` with the store at `pc`.
  void suspect(s32 pc, s32 load, u32 warp, u64 sector, u32 bytes, Lanes lanes, const Finding& finding);
  // Hands over the suspicions that nothing has cleared.
  void end_block(FindingList& findings);

 private:
  struct Pass {
    s32 pc;
    u32 warp;
    u64 sector;
    u32 bytes;
    Lanes lanes;
    bool at(s32 other_pc, u32 other_warp, u64 other) const { return pc == other_pc && warp == other_warp && sector == other; }
  };
  struct Suspicion {
    Pass read;
    s32 load;
    Finding finding;
  };
  struct Load {
    s32 pc = -1;
    u32 mask = 0;
    u64 address[kLanes];
  };
  static constexpr std::size_t kMost = 1 << 17;  // of one block; more would say the same

  static u64 key(s32 pc, u32 warp, u64 sector) { return (sector * 32 + warp) * 65537 + static_cast<u64>(pc); }
  static u64 pair(s32 store, s32 load) { return static_cast<u64>(store) << 32 | static_cast<u32>(load); }

  std::vector<u32> place_;                // by instruction: where its load stands in each warp's list, from 1
  u32 places_ = 0;
  std::vector<std::vector<Load>> loads_;  // by warp: the latest of each instruction
  std::unordered_set<u64> in_place_;      // a store and a load of what it stores to
  std::unordered_multimap<u64, Pass> passes_;
  std::unordered_multimap<u64, Suspicion> suspicions_;
};

}  // namespace workbench::ptx
