// Ordinary stores to global memory that other blocks see late, in an order from a seed.
//
// The PTX memory model lets a weak store become visible to other blocks at any time, unless a fence
// or a release of device scope comes in between. So some stores wait here: they are in memory
// while their own block runs, and swapped out for the bytes below them while another one does. A
// block's stores become visible together, and those to one address in order, so that a program
// without data races does the same as ever. Nothing is delayed within a block.
#pragma once
#include <vector>

#include "warp.hpp"

namespace workbench::ptx {

class LateStores {
 public:
  // `stores`: the instructions whose stores may be late.
  LateStores(u64 seed, const Kernel& kernel, const std::vector<s32>& stores);

  // A warp has its turn: memory is as its block sees it.
  void enter(const Warp& warp);
  // Before the lanes of this warp execute an instruction.
  void before(s32 pc, u32 lanes) {
    const Role role = roles_[static_cast<std::size_t>(pc)];
    if (role != Role::nothing && lanes) act(role, pc, lanes);
  }
  // All stores become visible.
  void show_all();

 private:
  enum class Role : u8 { nothing, stores, changes, shows };
  struct Store {
    static constexpr u32 kMostBytes = 32;  // the widest store of a lane
    u64 address;
    u8* host;
    s64 block;
    u64 until;  // the number of the turn before which it becomes visible
    u32 bytes;
    u8 other[kMostBytes];  // below it, or (while swapped out) its own
    void swap();
  };
  static constexpr std::size_t kMost = 1024;  // stores that wait at a time
  static constexpr u64 kTurns = 12;           // the longest wait is 2^kTurns turns

  static Role role_of(const Instruction& in, const MemoryEffect& effect);
  void act(Role role, s32 pc, u32 lanes);
  void put(s32 pc, u32 lanes);
  void show(s64 block);
  bool touches(const Instruction& in, u32 bytes, u32 lanes) const;
  u64 address_of(const Instruction& in, u32 lane) const;
  void swap_out();
  void swap_in();

  const u64 seed_;
  const Kernel& kernel_;
  std::vector<Role> roles_;    // by instruction
  std::vector<Store> stores_;  // in the order of their execution
  const Warp* warp_ = nullptr;
  s64 inside_ = -1;  // the block whose stores are in memory
  u64 turn_ = 0, next_ = ~u64{0};
};

}  // namespace workbench::ptx
