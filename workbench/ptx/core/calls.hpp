// The calls of one warp: where each lane goes back to, and the registers that recursion must keep.
//
// Every device function has registers and parameters of its own in the register file and in local
// memory; a frame register holds, per lane, where the local memory of the running function begins.
// Only a function that may be active twice saves its caller's registers.
#pragma once
#include <string>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

struct Calls {
  std::vector<s32> returns[kLanes];
  std::vector<u8> saved[kLanes];

  void clear() {
    for (int lane = 0; lane < kLanes; ++lane) returns[lane].clear(), saved[lane].clear();
  }
};

// A register that a recursive call saves: its slot, and bytes per lane (0 for a predicate).
struct SavedRegister {
  u32 slot;
  u32 width;
};

// The text of one device printf: its format and arguments are read from the kernel's memory.
struct Printed {
  s64 block;
  std::string text;
};

}  // namespace workbench::ptx
