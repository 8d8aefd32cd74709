// Runs one warp until it blocks, finishes or has used up its quantum.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

enum class Outcome { finished, blocked, yielded, polled };

// Runs the group of lanes with the lowest pc, and pauses where the next group stands, so that lanes
// meet again at the earliest point: the order of instructions is a reverse post-order of the
// control flow graph.
Outcome run_warp(Block& block, Warp& warp);

// Instructions after which a warp lets others run. Only backward jumps and divergence check it.
constexpr u64 kQuantum = 20'000;
// Instructions of its warp after which a group of lanes that has not run goes first: lanes may spin
// while they wait for each other.
constexpr u64 kStarved = 100'000;
// Rounds over a block's warps in which all of them poll mbarriers and none completes, after which
// this counts as a deadlock.
constexpr u64 kFruitless = 4'000;

}  // namespace workbench::ptx
