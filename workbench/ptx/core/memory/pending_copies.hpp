// The cp.async copies of a warp that have been issued and not yet waited for.
#pragma once
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

// Calls function(size) with the size of a cp.async as a compile-time constant, so that copying and
// comparing take one or two instructions.
template <class F>
inline auto of_copy_size(u32 bytes, F function) {
  if (bytes == 16) return function(std::integral_constant<u32, 16>{});
  if (bytes == 8) return function(std::integral_constant<u32, 8>{});
  return function(std::integral_constant<u32, 4>{});
}

struct PendingCopy {
  static constexpr u32 kOpen = 0xffffffffu;  // not committed to a group yet
  u32 mask;
  u32 group;
  s32 pc;
  u32 bytes;
  u64 order;    // Warp::issued at this copy
  u32 partial;  // lanes that read fewer bytes: `copied` of them; the rest is filled with zeros
  u32 changed;  // of a copy that landed early, with checks: lanes that changed memory
  // Its source has not been read yet, and has not changed since the issue (unread_copies.hpp).
  bool unread;
  bool early;  // it landed when it was issued
  u32 destination[kLanes];
  const u8* source[kLanes];
  u32 copied[kLanes];
  u32 reading;  // with checks, of a watched copy: lanes that read anything

  u32 read_by(u32 lane) const { return partial >> lane & 1 ? copied[lane] : bytes; }
  // Whether landing this unread copy now would change nothing.
  bool leaves_alike(u32 lane, const u8* shared) const {
    if (partial >> lane & 1) return false;
    return of_copy_size(bytes, [&](auto size) {
      return std::memcmp(shared + destination[lane], source[lane], size) == 0;
    });
  }
};

// Data that few copies need, kept apart so that the queue stays small.
struct CopyDetail {
  static constexpr u32 kMostBytes = 16;
  alignas(16) u8 values[kLanes * kMostBytes];  // bytes that were read, lane after lane
  // Only for a watched copy:
  u32 clock;            // the warp's clock when it was issued
  u64 low, high;        // range of addresses that lanes read
  u64 address[kLanes];  // address that each lane reads
};

// A queue of copies. `in_order`: groups and orders never decrease from one copy to the next, and
// copies without a group come last.
class PendingCopies {
 public:
  bool in_order = true;
  u32 committed = 0;  // number of copies with a group, if in order

  bool empty() const { return count_ == 0; }
  u32 size() const { return count_; }
  PendingCopy& operator[](u32 i) { return ring_[(first_ + i) & (ring_.size() - 1)]; }

  // The detail of a copy in the queue, or of the place behind the last one.
  CopyDetail& detail(const PendingCopy& copy) {
    if (details_.size() != ring_.size()) details_.resize(ring_.size());
    return details_[static_cast<std::size_t>(&copy - ring_.data())];
  }
  // Moves the copy `from` to a place in the queue, or behind the last one.
  void put(PendingCopy& place, const PendingCopy& from) {
    if (!details_.empty()) detail(place) = detail(from);
    place = from;
  }

  // The place behind the last copy, which push() adds to the queue.
  PendingCopy& next() {
    if (count_ == ring_.size()) grow();
    return (*this)[count_];
  }
  void push() { ++count_; }
  void pop_front() {
    ++first_, --count_, committed -= committed ? 1 : 0;
    if (!count_) clear();
  }
  // Keeps the first `count` copies, of which `with_group` are committed.
  void truncate(u32 count, u32 with_group) {
    count_ = count, committed = with_group;
    if (!count_) clear();
  }
  void clear() { first_ = 0, count_ = 0, committed = 0, in_order = true; }

 private:
  void grow() {
    std::vector<PendingCopy> larger(ring_.empty() ? 8 : 2 * ring_.size());
    std::vector<CopyDetail> details(details_.empty() ? 0 : larger.size());
    for (u32 i = 0; i < count_; ++i) {
      larger[i] = (*this)[i];
      if (!details.empty()) details[i] = detail((*this)[i]);
    }
    ring_.swap(larger), details_.swap(details), first_ = 0;
  }

  std::vector<PendingCopy> ring_;    // number of places is a power of two
  std::vector<CopyDetail> details_;  // by place; empty until a detail is needed
  u32 first_ = 0, count_ = 0;
};

}  // namespace workbench::ptx
