// Blocks that run at the same time and reach each other's shared memory.
//
// An offset into shared memory is its block's own; with a rank plus one in bits 24 to 31 (mapa) it
// is that block's.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

constexpr u32 kRankShift = 24;
constexpr u64 kOffsetMask = (1u << kRankShift) - 1;

struct Cluster {
  std::vector<Block*> blocks;  // by rank
  u64 phase = 1;               // of barrier.cluster
  u64 turns = 0;               // in which a warp of them did something but poll
};

// Whether an offset names another block than `block`.
inline bool is_remote(const Block& block, u64 offset) {
  const u64 rank = offset >> kRankShift;
  return block.cluster->blocks.size() > 1 && rank != 0 && rank - 1 != block.rank;
}
// An offset without the block that it names.
inline u64 plain(const Block& block, u64 offset) {
  return block.cluster->blocks.size() > 1 ? offset & kOffsetMask : offset;
}

// The block that an offset lies in. Ends the launch where the cluster has none of that rank, and
// tells of one that has ended or may not have begun.
Block& home_of(Block& block, const Instruction& in, s32 thread, u64 offset);

}  // namespace workbench::ptx
