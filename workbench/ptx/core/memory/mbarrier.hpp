// The word of an mbarrier, and the changes that bulk copies make to it.
//
// PTX leaves the object opaque. Here: bits 0-19 arrivals that the phase still waits for, 20-39
// arrivals of every phase, 40-60 the bytes that it still expects (signed), 61 the phase's parity,
// 62-63 a mark that memory of all ones or zeros does not have.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

struct MbarrierWord {
  static constexpr u64 kMost = (1u << 20) - 1, kByteBits = 21;
  static constexpr u64 kMark = u64{1} << 62, kMarkMask = u64{3} << 62;
  u64 bits = 0;

  MbarrierWord() = default;
  explicit MbarrierWord(const u8* from) { std::memcpy(&bits, from, sizeof bits); }
  MbarrierWord(bool parity, u64 expected, u64 pending, s64 bytes)
      : bits(kMark | u64{parity} << 61 | (static_cast<u64>(bytes) & ((1u << kByteBits) - 1)) << 40 |
             expected << 20 | pending) {}
  void store(u8* to) const { std::memcpy(to, &bits, sizeof bits); }

  bool valid() const { return (bits & kMarkMask) == kMark; }
  bool parity() const { return bits >> 61 & 1; }
  u64 pending() const { return bits & kMost; }
  u64 expected() const { return bits >> 20 & kMost; }
  s64 bytes() const { return static_cast<s64>(bits << 3) >> 43; }
};

// Records a warp's operation at an mbarrier of a block, if the block is recorded; called before the
// operation completes the phase.
void record_event(Block& home, const Instruction& in, const Warp& warp, RecordedEvent::Kind kind,
                  u64 mbarrier, u64 count, u64 bytes, u32 to = 0);

// Performs the arrival of tcgen05.commit at the mbarrier at an offset of the shared memory of
// `block`, which may be another block than the warp's.
void arrive_committed(Block& block, const Instruction& in, Warp& warp, s32 thread, u32 address);

// Counts bytes that arrived at the mbarrier at an offset of the block's shared memory.
void complete_bytes(Block& block, const Instruction& in, s32 thread, u32 address, u64 bytes);

}  // namespace workbench::ptx
