// Ordinary stores that others see late, in an order from a seed: those to global memory other
// blocks, those to shared memory other warps of the block.
//
// The PTX memory model lets a weak store become visible to others at any time, unless a fence, a
// release or a barrier of their scope comes in between. So some stores wait here: they are in
// memory while their owner runs, and swapped out for the bytes below them while another one does.
// The stores of an owner become visible together, and those to one address in order, so that a
// program without data races does the same as ever. In a strict launch, those to global memory that
// a fence or a release has published another block may miss until it has read with a strong load or
// an atomic and then executed a fence, or an acquire: an ordinary load of it may have been early.
#pragma once
#include <unordered_map>
#include <vector>

#include "warp.hpp"

namespace workbench::ptx {

class LateStores {
 public:
  enum class Owner : u8 { block, warp };

  // `stores`: the instructions whose stores may be late, those to shared memory if a warp owns
  // them. With `early` blocks may miss what others have published.
  LateStores(u64 seed, const Kernel& kernel, Owner owner, const std::vector<s32>& stores,
             bool early);

  // A warp has its turn: memory is as it sees it.
  void enter(const Warp& warp);
  // A block has ended: its shared memory is another one's.
  void end(s64 block);
  // Before the lanes of this warp execute an instruction.
  void before(s32 pc, u32 lanes) {
    const Role role = roles_[static_cast<std::size_t>(pc)];
    if (role != Role::nothing && lanes) act(role, pc, lanes);
  }
  // All stores become visible.
  void show_all();

 private:
  enum class Role : u8 { nothing, stores, changes, meets, shows, orders };
  struct Store {
    static constexpr u32 kMostBytes = 32;  // the widest store of a lane
    u64 address;
    u8* host;
    u64 owner;
    u64 until;     // the number of the turn before which it becomes visible
    u64 released;  // the number of the release that has published it; 0: none
    u32 bytes;
    u8 other[kMostBytes];  // below it, or (while swapped out) its own
    void swap();
  };
  static constexpr std::size_t kMost = 1024;  // stores that wait at a time
  static constexpr u64 kTurns = 12;           // the longest wait is 2^kTurns turns

  Role role_of(const Instruction& in, const MemoryEffect& effect) const;
  u64 owner_of(const Warp& warp) const;
  void act(Role role, s32 pc, u32 lanes);
  void put(s32 pc, u32 lanes);
  void show(u64 owner);
  void order();
  bool sees(const Store& one) const;
  bool touches(const Instruction& in, u32 bytes, u32 lanes) const;
  u64 address_of(const Instruction& in, u32 lane) const;
  void swap_out();
  void swap_in();

  static constexpr u64 kNobody = ~u64{0}, kWarpBits = 6;

  const u64 seed_;
  const Owner owner_;
  const bool early_;
  const Kernel& kernel_;
  std::vector<Role> roles_;    // by instruction
  std::vector<Store> stores_;  // in the order of their execution
  const Warp* warp_ = nullptr;
  u64 inside_ = kNobody;  // the owner whose stores are in memory
  u64 turn_ = 0, next_ = ~u64{0};
  struct Known {
    u64 met = 0, acquired = 0;  // releases before its latest strong read, and those it has to see
  };
  u64 releases_ = 0;
  std::unordered_map<u64, Known> known_;  // by owner
};

}  // namespace workbench::ptx
