// Runs one warp until it blocks, finishes or has used up its quantum.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

enum class Outcome { finished, blocked, yielded, polled };

// Of all groups of lanes the one with the lowest pc runs, and pauses where the next one stands, so
// that lanes meet again at the earliest point: instruction order is reverse post-order of the
// control flow graph.
Outcome run_warp(Block& block, Warp& warp);

// Instructions after which a warp lets others go on; it is noticed at backward jumps and when lanes
// diverge.
constexpr u64 kQuantum = 20'000;
// A group of lanes that has not run for so many instructions of its warp goes first: lanes may spin
// for each other.
constexpr u64 kStarved = 100'000;
// Rounds over a block's warps in which all of them poll mbarriers, and none completes, before that
// is a deadlock.
constexpr u64 kFruitless = 4'000;

}  // namespace workbench::ptx
