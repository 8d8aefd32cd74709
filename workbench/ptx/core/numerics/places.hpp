// Where the data of a request is in this process.
#pragma once
#include "numerics/watch.hpp"

namespace workbench::ptx::numerics {

struct Places {
  u8* host[kLanes];  // null: not known here, as in shared memory of another block
  u64 address[kLanes];
  bool of_block;  // shared or local memory
};

// Fills in the places of `bytes` bytes for the lanes of `mask`, from the addresses in a register.
void find_places(u8* registers, Slot slot, u64 offset, u32 flags, u32 mask, Warp& warp,
                 Site::Space space, u32 bytes, Places& places);

}  // namespace workbench::ptx::numerics
