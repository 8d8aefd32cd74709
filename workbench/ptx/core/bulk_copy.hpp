// What mbarriers and the end of a block need of bulk copies.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

// Bytes that loads will bring to the mbarrier at an offset, with those that are filled in.
s64 bytes_under_way(const Block& block, u32 barrier);
// Lands those loads; the caller counts their bytes.
void land_bulk_loads(Block& block, u32 barrier);
// What a warp has not waited for happens at the end of its block, and is a finding.
void finish_bulk_stores(Warp& warp);

inline u64 value_of(u8* registers, u32 slot, u32 lane, bool wide) {
  return wide ? at<const u64>(registers, slot)[lane] : at<const u32>(registers, slot)[lane];
}

// The offset in shared memory of an operand: slot, constant offset, and its flag for a 64-bit
// register.
inline u32 shared_offset(u8* registers, u32 slot, u32 constant, bool wide, u32 lane) {
  const u64 base = value_of(registers, slot, lane, wide);
  return static_cast<u32>((wide ? base & kWindowMask : base) +
                          static_cast<u64>(static_cast<s32>(constant)));
}

}  // namespace workbench::ptx
