// Device printf: makes the text from a format and its arguments in a kernel's memory.
#pragma once
#include <string>

#include "warp.hpp"

namespace workbench::ptx {

// Memory behind a generic address, as one lane sees it. Reads outside are reported as out of
// bounds.
struct MemoryView {
  Warp& warp;
  const Instruction& instruction;
  u32 lane;

  const u8* find(u64 address, u64 bytes) const;  // null if the range is in no buffer or window
  std::string text(u64 address) const;           // up to the terminating zero
};

// Formats as CUDA's printf does: arguments are promoted as in C and aligned to their own size.
// `count` receives the number of conversions, which the device function returns.
std::string format_text(const MemoryView& memory, u64 format, u64 arguments, int& count);

}  // namespace workbench::ptx
