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

}  // namespace workbench::ptx
