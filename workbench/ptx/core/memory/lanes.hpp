// The lanes of a warp that access each byte of a 32-byte sector.
#pragma once
#include "types.hpp"

namespace workbench::ptx {

// The lanes of each byte, as a rule of 16 bits: byte b belongs to element base + (b >> shift), and
// element e to the lanes whose bits outside `free` are the number e; their bits in `free` are
// arbitrary. `turn` rotates the lanes' numbers, for neighbours in memory that are 16, 8 or 4 lanes
// apart: the lowest 4, 3 or 2 bits then count as the highest.
class Lanes {
 public:
  Lanes() = default;
  Lanes(s32 base, u32 shift, u32 free, u32 turn = 0)
      : bits_(static_cast<u16>(static_cast<u32>(base + kBias) | shift << 6 | free << 9 |
                               turn << 14)) {}
  // One lane for the whole sector.
  static Lanes one(u32 lane) { return Lanes(static_cast<s32>(lane), 5, 0); }

  // The lane of a rule that one() made; negative for other rules.
  s32 only() const {
    const u32 lane = bits_ & (kLanes - 1);
    return *this == one(lane) ? static_cast<s32>(lane) : -1;
  }

  // Unknown lanes.
  static Lanes unknown() {
    Lanes any;
    any.bits_ = kUnknown;
    return any;
  }
  bool known() const { return bits_ != kUnknown; }

  static bool fits(s32 base) { return base >= -kBias && base < kBias; }
  static constexpr u32 kTurns = 4;
  // A lane's number after rotation by `turn`.
  static u32 turned(u32 lane, u32 turn) {
    const u32 low = turn ? 5 - turn : 0;
    return (lane >> low | lane << (5 - low)) & (kLanes - 1);
  }
  // The number in the bits of a rotated `lane` outside `free`.
  static u32 element(u32 lane, u32 free);

  bool operator==(const Lanes&) const = default;
  // This rule for the bytes from 32 * `sectors` on; unknown if this is.
  Lanes from(u32 sectors) const {
    const s32 there = base() + static_cast<s32>(32 * sectors >> shift());
    return fits(there) ? Lanes(there, shift(), free(), turn()) : unknown();
  }
  bool single() const { return free() == 0; }  // one lane for each byte
  u32 at(u32 byte) const;

  // The bytes, of `bytes`, that a lane accesses here but not there, as far as is known.
  u32 beyond(const Lanes& there, u32 bytes) const;
  // The bytes, of `bytes`, that two different lanes access, one here and one there, as far as is
  // known.
  u32 apart(const Lanes& there, u32 bytes) const;

 private:
  static constexpr s32 kBias = 32;
  static constexpr u16 kUnknown = 0xffff;
  u16 bits_;

  s32 base() const { return static_cast<s32>(bits_ & 63) - kBias; }
  u32 shift() const { return bits_ >> 6 & 7; }
  u32 free() const { return bits_ >> 9 & 31; }
  u32 turn() const { return bits_ >> 14; }
  template <class F>
  u32 where(const Lanes& there, u32 bytes, F differ) const;
};

// The access of some lanes of a request to one sector.
struct LanePiece {
  u64 sector;  // address / 32
  u32 bytes;
  u32 changed;  // bytes that belong to lanes in the caller's `changed`
  Lanes lanes;
  // Also stands for the three sectors after it, by the same rule; begins a line of 128 bytes.
  bool line = false;
};

// A request by sectors. If no rule fits the lanes of a sector, each lane has its own piece.
// Accesses are aligned and have at most 32 bytes.
struct LanePieces {
  int count = 0;
  bool lines = false;    // each piece is a line
  bool repeats = false;  // several lanes access the same bytes
  // Lanes that stored a different value than an earlier lane at the same address.
  u32 clashing = 0;
  LanePiece all[kLanes];
};
void split_by_lanes(const u64* addresses, u32 mask, u32 width, u32 changed, LanePieces& pieces);
// Joins the pieces that make up a line.
void join_lines(LanePieces& pieces);

}  // namespace workbench::ptx
