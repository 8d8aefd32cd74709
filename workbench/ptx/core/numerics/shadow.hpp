// A float64 beside each float in a register and in memory: what the same computation gives in that
// precision. It counts as long as the float has the bits for which it was made; a float without one
// is its own.
#pragma once
#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#include "numerics/floats.hpp"

namespace workbench::ptx::numerics {

// The shadows of floats that lie one after the other. `blame`: the instruction from which most of
// the difference comes.
template <class Bits>
struct Shadows {
  std::vector<f64> value;
  std::vector<Bits> bits;
  std::vector<u32> blame;
  void resize(std::size_t count) { value.resize(count), bits.resize(count), blame.resize(count); }
};

// Of a warp's registers, by the place of a float in the register file: 4 or 2 bytes each.
struct RegisterShadows {
  Shadows<u32> singles;
  Shadows<u16> halves;
  // Of two codes of eight bits and less that share sixteen bits; empty in kernels without any.
  Shadows<u16> codes[2];
};

// Of memory, by the address in this process.
class MemoryShadows {
 public:
  static constexpr u32 kPage = 4096;
  struct Page {
    f64 single[kPage / 4], half[kPage / 2];
    u32 single_blame[kPage / 4], half_blame[kPage / 2];
    u32 single_bits[kPage / 4];
    u16 half_bits[kPage / 2];
    // A float has a shadow where its bit is set.
    u64 has_single[kPage / 4 / 64] = {}, has_half[kPage / 2 / 64] = {};
  };
  bool empty() const { return pages_.empty(); }
  void clear() {
    pages_.clear();
    last_ = nullptr, last_number_ = ~u64{0}, lowest_ = ~u64{0}, highest_ = 0;
  }
  // Whether there may be a shadow between two addresses.
  bool meets(const u8* low, const u8* high) const {
    return reinterpret_cast<std::uintptr_t>(high) / kPage >= lowest_ &&
           reinterpret_cast<std::uintptr_t>(low) / kPage <= highest_;
  }
  // The page of an address; null if it has none and `make` is not set.
  Page* page(const u8* at, bool make) {
    const u64 number = reinterpret_cast<std::uintptr_t>(at) / kPage;
    if (number == last_number_ && (last_ || !make)) return last_;
    std::unique_ptr<Page>* found = nullptr;
    if (make) {
      found = &pages_[number];
      if (!*found) *found = std::make_unique<Page>();
      lowest_ = std::min(lowest_, number), highest_ = std::max(highest_, number);
    } else if (const auto known = pages_.find(number); known != pages_.end()) {
      found = &known->second;
    }
    last_number_ = number, last_ = found ? found->get() : nullptr;
    return last_;
  }

 private:
  std::unordered_map<u64, std::unique_ptr<Page>> pages_;
  u64 last_number_ = ~u64{0}, lowest_ = ~u64{0}, highest_ = 0;
  Page* last_ = nullptr;
};

// Sums over the results of one instruction. Errors are relative to the shadow, and at most 1.
struct Errors {
  u64 numbers = 0;
  f64 added = 0, inherited = 0, incoming = 0, total = 0;  // sums of squares
  f64 most_added = 0, most_inherited = 0, most_total = 0;
  u64 lost = 0;  // results that got no shadow
};

// The floats of one operand or result, and their shadows, by lane and part.
struct Lanes {
  static constexpr u32 kMost = 2 * kLanes;
  alignas(64) f64 value[kMost], shadow[kMost];
  alignas(64) u32 blame[kMost];
};

}  // namespace workbench::ptx::numerics
