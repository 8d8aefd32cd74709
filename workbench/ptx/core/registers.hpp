// The order of a kernel's blocks, and the slots of its virtual registers in the register file.
#pragma once
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

using Successors = std::vector<std::vector<u32>>;  // of each block, by number

// Orders the blocks that block 0 reaches in weak topological order: apart from loops, each comes
// after all that lead to it; a loop is contiguous, with its exits behind it (F. Bourdoncle,
// "Efficient chaotic iteration strategies with widenings", 1993).
std::vector<u32> order_blocks(const Successors& blocks);

// A read or write of a register, in order of the pc.
struct RegisterAccess {
  u32 pc, number;
  bool kills = false;  // whether it is a write in every lane
};

struct RegisterLives {
  static constexpr s64 kNever = INT64_MAX;
  // By register; kNever and -1 where it does not occur. Instruction i reads at 2i and writes at 2i
  // + 1.
  std::vector<s64> first, last;
};

// Finds the span of the laid-out code from the first to the last point where each register is live.
// `lengths` and `successors` describe the blocks in their order; successors are positions in it.
RegisterLives find_lives(const std::vector<u32>& lengths, const Successors& successors,
                         const std::vector<RegisterAccess>& reads,
                         const std::vector<RegisterAccess>& writes, u32 registers);

// Returns offsets by register, 0 where it does not occur; registers whose lives do not overlap
// share one. `widths` are in bytes, 0 for predicates; `size` is the size of the register file and
// grows.
std::vector<u32> place_registers(const RegisterLives& lives, const std::vector<u32>& widths,
                                 u32& size);

// Returns a new offset that no other register shares.
u32 take_slot(u32 width, u32& size);

}  // namespace workbench::ptx
