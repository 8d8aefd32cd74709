// What a debugger looks for while a launch runs.
#pragma once
#include <vector>

#include "debug/condition.hpp"

namespace workbench::ptx {

// An event that stops a launch, or is remembered: a warp is about to execute an instruction.
struct Watch {
  enum class Space : u8 { nowhere, global, shared };
  std::vector<s32> pcs;  // empty: all
  s64 block = -1;        // -1: any
  s32 warp = -1;         // -1: any
  u32 lanes = kAllLanes;
  // Only where the warp comes from an instruction of another line, or from behind this one.
  bool enters = false;
  // Also (with block and warp) at any instruction once that warp has ended, or its block.
  bool outlives = false;
  Condition condition;
  // Only accesses to [begin, end) of a memory; shared memory is that of `block`.
  Space space = Space::nowhere;
  u64 begin = 0, end = 0;
  bool reads = false, writes = false;
  // Only instructions with a result that is NaN (1) or infinite (2) from sources that are neither.
  u32 births = 0;
  u64 skip = 0;  // so many matches are passed over first
};

// A match of a watch. `past`: it was found after the instruction, of which the launch stops behind.
struct Hit {
  s32 watch = -1;
  u64 index = 0;
  s32 pc = -1;
  s64 block = -1;
  s32 warp = -1;
  u32 lanes = 0;
  bool past = false;
};

// A register that an instruction reads or writes as floats.
struct FloatPlace {
  u32 slot;
  Condition::Op type;  // f16, bf16, f32 or f64
  bool pair;           // two floats of 16 bits
  bool across;         // results of all lanes depend on that of each
};

}  // namespace workbench::ptx
