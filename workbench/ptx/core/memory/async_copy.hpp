// The part of cp.async that mbarriers use.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

// Lands the copies that the lanes of `mask` issued up to `last` (Warp::issued at that time).
void land_copies(Warp& warp, u64 last, u32 mask, u32 clock, s32 landing);

}  // namespace workbench::ptx
