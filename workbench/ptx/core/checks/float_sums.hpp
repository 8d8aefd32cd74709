// With checks: sums by atomic additions of floats whose value depends on the order of the
// additions.
//
// The order matters only if all of these hold: warps that nothing orders add to one element; three
// or more values other than 0 meet (two give the same sum in either order); the added values are
// not all alike; and not every partial sum is exact. Partial sums are exact as long as all values
// are multiples of some power of two and the sum of their magnitudes, in units of it, fits into the
// format's significand. So a counter that is kept in a float gives no finding.
//
// Some cases are not reported: warps of one block count as ordered if one has acquired the other's
// accesses, even by a flag; and when the list of elements is full, further elements are not
// watched.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>

#include "memory/access.hpp"

namespace workbench::ptx {

// One addition: the old value, the added value, and the number of bits in the format's significand.
struct FloatAddition {
  const u8* where;  // host address
  u64 address;      // address for the finding
  u32 bytes;
  u32 lane;
  f64 old, value, sum;
  int digits;
};

class FloatSums {
 public:
  explicit FloatSums(const Kernel& kernel);

  // Whether additions of this instruction have not been reported yet.
  bool watches(s32 pc) const {
    return !told_[static_cast<std::size_t>(pc)].load(std::memory_order_relaxed);
  }
  void add(const Warp& warp, s32 pc, const FloatAddition& addition);

 private:
  struct Sum {
    s64 owner = -1;  // block whose shared memory contains it; -1 in global memory
    s64 block = 0;   // block of the warp that added last
    u32 agent = 0, clock = 0;
    s32 pc = -1, thread = 0;
    bool several = false;   // warps that nothing orders have added
    bool distinct = false;  // added values differ
    f64 first = 0;          // the first value that was added
    u32 terms = 0;
    int lowest = 0;     // exponent of a power of two that all terms are multiples of
    f64 magnitude = 0;  // sum of the magnitudes of all terms
    f64 value = 0;      // value after the last addition
  };
  static constexpr std::size_t kMost = 1 << 18;

  static void take(Sum& sum, f64 term);
  static bool is_ordered(const Sum& sum, const Warp& warp);

  std::mutex mutex_;
  std::unordered_map<const u8*, Sum> sums_;
  std::unique_ptr<std::atomic<bool>[]> told_;  // by instruction, whether it has been reported
};

template <class T>
constexpr int kDigits = std::is_same_v<T, f64>    ? 53
                        : std::is_same_v<T, f32>  ? 24
                        : std::is_same_v<T, Half> ? 11
                                                  : 8;

}  // namespace workbench::ptx
