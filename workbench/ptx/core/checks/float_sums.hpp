// Sums by atomic additions of floats whose value depends on the order of the additions, with
// checks.
//
// The order matters where warps that nothing orders add to one element, where three or more values
// that are not 0 meet (of two a sum is the same either way), those added not all alike, and where
// not every partial sum is exact: the values are multiples of some power of two, and their
// magnitudes together take more bits above it than the format has. So a count kept in a float is
// not told of.
//
// Concessions towards silence: warps of one block count as ordered if one has acquired what the
// other did, by a flag too; and where the list of elements is full, further ones are not watched.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>

#include "memory/access.hpp"

namespace workbench::ptx {

// One addition: what was there, what is added, and the bits of the format's significand.
struct FloatAddition {
  const u8* where;  // on the host
  u64 address;      // as a finding has it
  u32 bytes;
  u32 lane;
  f64 old, value, sum;
  int digits;
};

class FloatSums {
 public:
  explicit FloatSums(const Kernel& kernel);

  // Whether additions of this instruction are still of interest.
  bool watches(s32 pc) const {
    return !told_[static_cast<std::size_t>(pc)].load(std::memory_order_relaxed);
  }
  void add(const Warp& warp, s32 pc, const FloatAddition& addition);

 private:
  struct Sum {
    s64 owner = -1;  // block in whose shared memory it is; -1 in global memory
    s64 block = 0;   // of the warp that added last
    u32 agent = 0, clock = 0;
    s32 pc = -1, thread = 0;
    bool several = false;   // warps that nothing orders
    bool distinct = false;  // values have been added that are not all alike
    f64 first = 0;          // the first value that was added
    u32 terms = 0;
    int lowest = 0;     // power of two that all terms are multiples of
    f64 magnitude = 0;  // of all terms
    f64 value = 0;      // after the last addition
  };
  static constexpr std::size_t kMost = 1 << 18;

  static void take(Sum& sum, f64 term);
  static bool is_ordered(const Sum& sum, const Warp& warp);

  std::mutex mutex_;
  std::unordered_map<const u8*, Sum> sums_;
  std::unique_ptr<std::atomic<bool>[]> told_;  // by instruction
};

template <class T>
constexpr int kDigits = std::is_same_v<T, f64>    ? 53
                        : std::is_same_v<T, f32>  ? 24
                        : std::is_same_v<T, Half> ? 11
                                                  : 8;

}  // namespace workbench::ptx
