// Shadow state of shared memory: who wrote and read each granule since the last barrier.
//
// A granule is the smallest access that the kernel makes to shared memory; as accesses are naturally aligned, each
// covers whole granules and the check is exact. Epochs grow over all blocks of a worker, so nothing is cleared.
#pragma once
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

struct Warp;
struct Instruction;

class Shadow {
 public:
  void resize(u32 shared_bytes, u32 granule);
  void begin_block() { block_start_ = ++epoch_; }
  void barrier() { ++epoch_; }
  void drop_pending();  // copies that nobody waited for end with the block

  void read(Warp& warp, const Instruction& instruction, u32 lane, u32 address, u32 bytes, bool strong = false);
  void write(Warp& warp, const Instruction& instruction, u32 lane, u32 address, u32 bytes, bool strong = false);
  void copy_issued(Warp& warp, const Instruction& instruction, u32 lane, u32 address, u32 bytes);
  void copy_landed(Warp& warp, const Instruction& instruction, u32 lane, u32 address, u32 bytes);

 private:
  struct Granule {
    u32 write_epoch = 0, read_epoch = 0, weak_epoch = 0;
    s32 write_pc = -1, read_pc = -1, other_read_pc = -1, weak_pc = -1;
    u16 write_thread = 0, read_thread = 0, other_read_thread = kNobody;
    u16 weak_thread = 0;        // last plain write: an atomic of the same warp after it must not hide it
    bool read_strong = false;   // every read was atomic, volatile or of .relaxed and stronger order
    bool pending = false;       // destination of a cp.async that has not landed
    s32 pending_pc = -1;
  };
  static constexpr u16 kNobody = 0xffff;

  bool races_with_write(const Granule& granule, u16 thread, bool strong) const;

  std::vector<Granule> granules_;
  u32 shift_ = 2;
  u32 epoch_ = 0;
  u32 block_start_ = 0;
};

}  // namespace workbench::ptx
