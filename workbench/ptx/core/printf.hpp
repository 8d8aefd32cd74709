// Device printf: the text of a format and its arguments, as they lie in a kernel's memory.
#pragma once
#include <string>

#include "warp.hpp"

namespace workbench::ptx {

// Memory behind a generic address, for one lane. Reads outside of it are reported as out of bounds.
struct MemoryView {
  Warp& warp;
  const Instruction& instruction;
  u32 lane;

  const u8* find(u64 address, u64 bytes) const;  // null if it is nowhere
  std::string text(u64 address) const;           // up to the terminating zero
};

// `count` receives the number of conversions, which printf returns. Follows CUDA's: arguments are
// promoted as in C and aligned to their own size.
std::string format_text(const MemoryView& memory, u64 format, u64 arguments, int& count);

}  // namespace workbench::ptx
