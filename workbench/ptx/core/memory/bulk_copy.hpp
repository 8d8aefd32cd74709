// The part of bulk copies that mbarriers and the end of a block use.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

// Bytes that loads under way will bring to the mbarrier at an offset, with the filled ones.
s64 bytes_under_way(const Block& block, u32 barrier);
// Lands these loads; the caller counts their bytes.
void land_bulk_loads(Block& block, u32 barrier);
// Performs the stores that a warp has not waited for at the end of its block, and reports them.
void finish_bulk_stores(Warp& warp);

}  // namespace workbench::ptx
