// The order of a kernel's blocks, and slots of the register file for its virtual registers.
#pragma once
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

using Successors = std::vector<std::vector<u32>>;  // of each block, by number

// Blocks that can be reached from block 0 in weak topological order: each behind all that lead to
// it, loops apart, and a loop contiguous, with its exits behind it (F. Bourdoncle, "Efficient
// chaotic iteration strategies with widenings", 1993).
std::vector<u32> order_blocks(const Successors& blocks);

// Who reads and writes which register, in order of the pc.
struct RegisterAccess {
  u32 pc, number;
  bool kills = false;  // a write that happens in every lane
};

struct RegisterLives {
  static constexpr s64 kNever = INT64_MAX;
  std::vector<s64> first, last;  // by register; kNever and -1 where it does not occur. Instruction
                                 // i reads at 2i, writes at 2i + 1
};

// The span of the laid-out code from the first to the last point where each register is live.
// `lengths` and `successors` are those of the blocks in their order, successors by place in it.
RegisterLives find_lives(const std::vector<u32>& lengths, const Successors& successors,
                         const std::vector<RegisterAccess>& reads,
                         const std::vector<RegisterAccess>& writes, u32 registers);

// Offsets by register, 0 where it does not occur: registers whose lives do not overlap share one.
// `widths` are in bytes, 0 for predicates; `size` is that of the register file, and grows.
std::vector<u32> place_registers(const RegisterLives& lives, const std::vector<u32>& widths,
                                 u32& size);

// The next offset for a register of its own.
u32 take_slot(u32 width, u32& size);

}  // namespace workbench::ptx
