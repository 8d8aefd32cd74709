// How the addresses of the 32 lanes of a request lie to each other. An instruction mostly asks in
// the same way time and again: once that has been seen, comparing its register with it tells all
// about a request but where its first lane points, and that the others need not be looked at.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

struct LaneOffsets {
  enum class Order : u8 {
    row,   // side by side, without gaps
    same,  // all at one address
    other
  };

  // `bytes`: of each lane.
  LaneOffsets(const u64* addresses, u32 bytes);
  bool operator==(const LaneOffsets& other) const;

  bool fits(const u32* addresses) const { return !apart(addresses, low_bits); }
  bool fits(const u64* addresses) const { return !apart(addresses, from_first); }
  // Whether all lanes lie within the first `size` bytes of something, where the first lane lies at
  // `first`.
  bool within(u64 first, u64 size, u32 bytes) const {
    const u64 begin = first + static_cast<u64>(lowest);
    const u64 left = size - (first + static_cast<u64>(highest) + bytes);
    return first < size && static_cast<s64>(begin | left) >= 0;
  }
  // Whether all lanes lie at multiples of `bytes`.
  bool aligned(u64 first, u32 bytes) const { return !((first | bits) & (bytes - 1)); }
  // Whether the lanes lie so close together that within() computes without overflow.
  bool close() const { return lowest > -kFar && highest < kFar; }

  alignas(64) u64 from_first[kLanes];
  alignas(64) u32 low_bits[kLanes];  // of from_first
  s64 lowest = 0, highest = 0;       // of from_first
  u64 bits = 0;                      // of all of from_first
  u64 number = 0;                    // of a list; no two have the same
  Order order = Order::other;

 private:
  static constexpr s64 kFar = s64{1} << 56;
  // Whether any lane lies in another way. By vectors, as compilers leave a loop to this one.
  template <class T>
  static bool apart(const T* addresses, const T* offsets) {
    typedef T Vector __attribute__((vector_size(32)));
    typedef Vector Loose __attribute__((aligned(sizeof(T)), may_alias));
    typedef u64 Quarters __attribute__((vector_size(32)));
    constexpr std::size_t kWidth = 32 / sizeof(T);
    const T first = addresses[0];
    Vector differing{};
#pragma GCC unroll 8
    for (std::size_t lane = 0; lane < kLanes; lane += kWidth)
      differing |= (*reinterpret_cast<const Loose*>(addresses + lane) - first) ^
                   *reinterpret_cast<const Loose*>(offsets + lane);
    const Quarters parts = reinterpret_cast<Quarters>(differing);
    return (parts[0] | parts[1] | parts[2] | parts[3]) != 0;
  }
};

// The ways in which the requests of a block lay so far, each once, and the last ones of each
// instruction: warps may ask in different ways, and a loop in several by turns.
class LaneOffsetList {
 public:
  // `learns`: false leaves everything unknown.
  LaneOffsetList(std::size_t instructions, bool learns)
      : instructions_(instructions), learns_(learns) {}

  // The way in which the instruction at `pc` asks most likely; null if none is known.
  const LaneOffsets* likely(std::size_t pc) const {
    return known_.empty() ? nullptr : known_[pc].ways[0];
  }
  // The way that its addresses lie in if not in that one; null if it is not known.
  template <class T>
  const LaneOffsets* other(std::size_t pc, const T* addresses) const {
    const Known& known = known_[pc];
    for (u32 i = 1; i < kWays && known.ways[i]; ++i)
      if (known.ways[i]->fits(addresses)) return known.ways[i];
    return nullptr;
  }
  // Takes note that a request lay in a known way.
  void fitted(std::size_t pc) {
    if (known_[pc].credit < kMostCredit) ++known_[pc].credit;
  }
  // Takes note of a request that lies in no known way.
  void learn(std::size_t pc, const u64* addresses, u32 bytes);

 private:
  // To learn costs as much as some requests save that are known then. An instruction that asks in
  // ever new ways soon has no credit for it, and compares no more.
  static constexpr s32 kMostCredit = 64, kPrice = 8;
  static constexpr u32 kWays = 4;
  struct Known {
    const LaneOffsets* ways[kWays] = {};  // the known ones first
    s32 credit = 4 * kPrice;
    u32 times = 0;  // that something was to be learned
    u32 next = 0;   // the way to be replaced
  };
  const LaneOffsets* keep(const LaneOffsets& made);

  std::size_t instructions_;
  u32 ignored_ = 0;           // requests so far of which nothing was learned
  std::vector<Known> known_;  // by instruction; empty at first
  std::vector<std::unique_ptr<LaneOffsets>> all_;
  u64 made_ = 0;
  bool learns_;
};

}  // namespace workbench::ptx
