// Blocks that run at the same time and access each other's shared memory.
//
// An offset into shared memory belongs to its own block, unless bits 24 to 31 hold the rank of
// another block plus one (mapa).
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

constexpr u32 kRankShift = 24;
constexpr u64 kOffsetMask = (1u << kRankShift) - 1;

struct Cluster {
  std::vector<Block*> blocks;  // indexed by rank
  u64 phase = 1;               // phase of barrier.cluster
  u64 turns = 0;               // turns in which one of its warps did something other than polling
};

// Whether an offset names another block than `block`.
inline bool is_remote(const Block& block, u64 offset) {
  const u64 rank = offset >> kRankShift;
  return block.cluster->blocks.size() > 1 && rank != 0 && rank - 1 != block.rank;
}
// The offset without the rank.
inline u64 plain(const Block& block, u64 offset) {
  return block.cluster->blocks.size() > 1 ? offset & kOffsetMask : offset;
}

// The block that an offset belongs to. Ends the launch if the cluster has no block of that rank;
// reports one that has ended or may not have begun.
Block& home_of(Block& block, const Instruction& in, s32 thread, u64 offset);

}  // namespace workbench::ptx
