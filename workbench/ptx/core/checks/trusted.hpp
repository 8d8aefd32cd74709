// Accesses whose bounds and races a proof covers. They run without shadow state. Reads of memory
// that nothing wrote are not in a proof, so they are still found here: by a flag for each granule
// of a block's shared memory, and by the marks of global memory (Buffer::written).
#pragma once
#include <utility>
#include <vector>

#include "checks/lane_offsets.hpp"
#include "machine.hpp"

namespace workbench::ptx {

// The part of checks that a trusted instruction keeps. `unmarked`: a load or store of global memory
// whose bytes all count as written. The others mark or look up the bytes that they access.
enum class Trusted : u8 { unmarked, load, store, load_matrix, store_matrix, copy };

// Replaces the handlers of instructions, by pc, in observed launches.
void trust(Kernel& kernel, const std::vector<std::pair<u32, Trusted>>& rows);

// The granules of a block's shared memory that have been written.
class WrittenShared {
 public:
  // `granule`: bytes of the kernel's smallest access, to which all accesses are aligned.
  void resize(u32 shared_bytes, u32 granule);
  void begin_block();
  // Whether every granule has been written, so that nothing is left to look for in this block.
  bool full() const { return !left_; }
  void write(u32 offset, u32 bytes);
  bool holds(u32 offset, u32 bytes) const;
  // The same for all lanes of a request with a known layout, of which the first is at `first`.
  void write(u32 first, const LaneOffsets& lanes, u32 bytes);
  bool holds(u32 first, const LaneOffsets& lanes, u32 bytes) const;

 private:
  // Reaches that are compared as a whole: all granules between the first and the last one.
  static constexpr u32 kCompared = 256;

  // Marks granules from `at` on.
  void mark(u32 at, u32 count);

  u32 shift_ = 0, left_ = 0;
  std::vector<u8> flags_;
};

}  // namespace workbench::ptx
