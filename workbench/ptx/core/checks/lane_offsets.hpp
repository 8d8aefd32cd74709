// Relative addresses of the 32 lanes of a request. Most instructions repeat the same layout: once
// it is known, one comparison with the address register replaces the analysis of each lane, and
// only the first lane's address differs.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

struct LaneOffsets {
  enum class Order : u8 {
    row,   // contiguous, without gaps
    same,  // all at one address
    other
  };

  // `bytes`: bytes that each lane accesses.
  LaneOffsets(const u64* addresses, u32 bytes);
  bool operator==(const LaneOffsets& other) const;

  bool fits(const u32* addresses) const { return !apart(addresses, low_bits); }
  bool fits(const u64* addresses) const { return !apart(addresses, from_first); }
  // Whether all lanes lie within `size` bytes if the first lane lies at offset `first`.
  bool within(u64 first, u64 size, u32 bytes) const {
    const u64 begin = first + static_cast<u64>(lowest);
    const u64 left = size - (first + static_cast<u64>(highest) + bytes);
    return first < size && static_cast<s64>(begin | left) >= 0;
  }
  // Whether the addresses of all lanes are multiples of `bytes`.
  bool aligned(u64 first, u32 bytes) const { return !((first | bits) & (bytes - 1)); }
  // Whether the lanes are close enough together that within() computes without overflow.
  bool close() const { return lowest > -kFar && highest < kFar; }

  alignas(64) u64 from_first[kLanes];
  alignas(64) u32 low_bits[kLanes];  // low 32 bits of from_first
  s64 lowest = 0, highest = 0;       // minimum and maximum of from_first
  u64 bits = 0;                      // all values of from_first combined by OR
  u64 number = 0;                    // unique number of a layout in a list
  Order order = Order::other;

 private:
  static constexpr s64 kFar = s64{1} << 56;
  // Whether any lane's address differs from the layout. Written with vectors, as compilers do not
  // vectorise this loop.
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

// The layouts of a block's requests so far, each once, and the latest ones of each instruction:
// warps may differ in layout, and a loop may alternate between several.
class LaneOffsetList {
 public:
  // `learns`: if false, no layout is ever known.
  LaneOffsetList(std::size_t instructions, bool learns)
      : instructions_(instructions), learns_(learns) {}

  // The most likely layout of the instruction at `pc`; null if none is known.
  const LaneOffsets* likely(std::size_t pc) const {
    return known_.empty() ? nullptr : known_[pc].ways[0];
  }
  // Another known layout of the instruction that its addresses have; null if there is none.
  template <class T>
  const LaneOffsets* other(std::size_t pc, const T* addresses) const {
    const Known& known = known_[pc];
    for (u32 i = 1; i < kWays && known.ways[i]; ++i)
      if (known.ways[i]->fits(addresses)) return known.ways[i];
    return nullptr;
  }
  // Notes that a request had a known layout.
  void fitted(std::size_t pc) {
    if (known_[pc].credit < kMostCredit) ++known_[pc].credit;
  }
  // Notes a request whose layout is not known.
  void learn(std::size_t pc, const u64* addresses, u32 bytes);

 private:
  // Learning a layout costs as much as several known requests save. An instruction whose layouts
  // keep changing runs out of credit, and is then no longer compared.
  static constexpr s32 kMostCredit = 64, kPrice = 8;
  static constexpr u32 kWays = 4;
  struct Known {
    const LaneOffsets* ways[kWays] = {};  // known layouts come first
    s32 credit = 4 * kPrice;
    u32 times = 0;  // requests with an unknown layout
    u32 next = 0;   // index of the layout to replace
  };
  const LaneOffsets* keep(const LaneOffsets& made);

  std::size_t instructions_;
  u32 ignored_ = 0;           // requests from which nothing was learned so far
  std::vector<Known> known_;  // by instruction; empty until something is learned
  std::vector<std::unique_ptr<LaneOffsets>> all_;
  u64 made_ = 0;
  bool learns_;
};

}  // namespace workbench::ptx
