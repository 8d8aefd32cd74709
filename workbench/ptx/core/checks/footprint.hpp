// The bytes of global memory that a launch wrote and read with plain accesses: what a programmatic
// dependent launch may not touch before griddepcontrol.wait (PTX ISA, "griddepcontrol": until then
// nothing of it is visible).
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

struct Footprint {
  // Of one buffer, by 32 bytes from `first` on; a bit for each byte.
  struct Range {
    const u8* host;  // of `first`
    std::vector<u32> written, read;
  };
  std::vector<Range> ranges;
  std::string kernel;

  // Of `bytes` bytes at a host address those that the launch wrote, and with `also_read` those that
  // it read.
  bool touches(const u8* at, u32 bytes, bool also_read) const {
    for (const Range& range : ranges) {
      if (at < range.host) continue;
      const u64 offset = static_cast<u64>(at - range.host);
      for (u64 byte = offset; byte < offset + bytes && byte / 32 < range.written.size(); ++byte) {
        const u32 touched = range.written[byte / 32] | (also_read ? range.read[byte / 32] : 0);
        if (touched >> byte % 32 & 1) return true;
      }
    }
    return false;
  }
};

}  // namespace workbench::ptx
