// The bytes of global memory that a launch wrote and read with plain accesses. A programmatic
// dependent launch must not touch them before griddepcontrol.wait (PTX ISA, "griddepcontrol": until
// then its memory operations are not visible).
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

struct Footprint {
  // A range of one buffer in steps of 32 bytes from `first` on, with a bit for each byte.
  struct Range {
    const u8* host;  // host address of `first`
    std::vector<u32> written, read;
  };
  std::vector<Range> ranges;
  std::string kernel;

  // Whether the launch wrote any of the `bytes` bytes at a host address, or with `also_read` read
  // any.
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
