// Tensor maps in memory that a kernel can change. Checks whether copies still read a map that
// changes, and whether they know of the change.
//
// A load reads its map until its mbarrier's phase is over, a store until wait_group.read. A change
// of a map is visible to the copies of a block once it was released
// (fence.proxy.tensormap::generic.release, tensormap.cp_fenceproxy) and then acquired in that block
// (fence.proxy.tensormap::generic.acquire); PTX ISA, "membar/fence".
#pragma once
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "warp.hpp"

namespace workbench::ptx {

class MapWatch {
 public:
  // A lane issues a copy that reads the map at an address. `landing`: of a load, its landing in the
  // memory of `home`.
  void copied(Warp& warp, const Instruction& in, u32 lane, u64 map, const Block& home, s32 landing);
  // A lane changes some bytes of a map; `released`: the same instruction releases the change.
  void changed(Warp& warp, const Instruction& in, u32 lane, u64 address, bool released);
  // A plain store, which may or may not hit a map.
  void stored(Warp& warp, const Instruction& in, const u64* addresses, u32 mask);

  void release(const Warp& warp);
  void acquire(const Warp& warp, u64 address);

 private:
  struct Key {
    u64 address;  // address of half a map: the lower half where both may be meant
    s64 block;    // -1 in global memory
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return key.address ^ static_cast<u64>(key.block) << 40;
    }
  };
  struct Use {
    s64 block;  // block in whose memory it lands
    s32 pc, landing;
    s32 thread;
  };
  struct Acquired {
    s64 block;
    u32 agent, clock, version;
  };
  struct Map {
    u32 version = 0, released = 0;
    s32 pc = -1;     // pc of the last change
    s64 block = -1;  // block that made the change
    s32 thread = 0;
    std::vector<Use> uses;
    std::vector<Acquired> acquired;
  };
  static constexpr std::size_t kUses = 64;  // uses kept for each map

  static Key key_of(const Warp& warp, u64 address);
  Map* find(const Warp& warp, u64 address);
  static bool knows(const Warp& warp, const Map& map);
  static void report_use(Warp& warp, const Instruction& in, u32 lane, u64 address, s32 pc,
                         s32 thread);

  std::mutex mutex_;
  std::atomic<bool> any_{false};  // whether any map is watched
  std::unordered_map<Key, Map, Hash> maps_;
};

}  // namespace workbench::ptx
