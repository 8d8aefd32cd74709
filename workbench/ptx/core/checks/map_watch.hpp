// Tensor maps in memory that a kernel can change: whether copies still read them then, and whether
// they know of the change.
//
// A copy reads its map until its mbarrier's phase is over, or, of a store, until wait_group.read.
// What changes a map is known to the copies of a block once it was released
// (fence.proxy.tensormap::generic.release, tensormap.cp_fenceproxy) and then acquired there
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
  // A lane asks for a copy that reads the map at an address. `landing`: of a load, in the memory of
  // `home`.
  void copied(Warp& warp, const Instruction& in, u32 lane, u64 map, const Block& home, s32 landing);
  // A lane changes some of a map's bytes; `released`: and releases the change.
  void changed(Warp& warp, const Instruction& in, u32 lane, u64 address, bool released);
  // A plain store, of which nobody knows whether a map lies there.
  void stored(Warp& warp, const Instruction& in, const u64* addresses, u32 mask);

  void release(const Warp& warp);
  void acquire(const Warp& warp, u64 address);

 private:
  struct Key {
    u64 address;  // of half a map: the lower one where both may be meant
    s64 block;    // -1 in global memory
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return key.address ^ static_cast<u64>(key.block) << 40;
    }
  };
  struct Use {
    s64 block;  // in whose memory it lands
    s32 pc, landing;
    s32 thread;
  };
  struct Acquired {
    s64 block;
    u32 agent, clock, version;
  };
  struct Map {
    u32 version = 0, released = 0;
    s32 pc = -1;     // of the last change
    s64 block = -1;  // that made it
    s32 thread = 0;
    std::vector<Use> uses;
    std::vector<Acquired> acquired;
  };
  static constexpr std::size_t kUses = 64;  // that are kept of a map

  static Key key_of(const Warp& warp, u64 address);
  Map* find(const Warp& warp, u64 address);
  static bool knows(const Warp& warp, const Map& map);
  static void report_use(Warp& warp, const Instruction& in, u32 lane, u64 address, s32 pc,
                         s32 thread);

  std::mutex mutex_;
  std::atomic<bool> any_{false};  // whether there are any
  std::unordered_map<Key, Map, Hash> maps_;
};

}  // namespace workbench::ptx
