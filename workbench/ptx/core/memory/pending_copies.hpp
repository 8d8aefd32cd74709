// The cp.async of a warp that have been issued and not yet waited for.
#pragma once
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

// Calls function(the size of a cp.async as a constant): copying and comparing so many bytes takes
// an instruction or two then.
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
  u64 order;    // Warp::issued of this copy
  u32 partial;  // lanes that read fewer bytes: `copied`, and the rest is filled with zeros
  u32 changed;  // of one that landed early, with checks: lanes that changed what was there
  bool unread;  // the source holds what it did when the copy was issued (unread_copies.hpp)
  u32 destination[kLanes];
  const u8* source[kLanes];
  u32 copied[kLanes];
  u32 reading;  // with checks, of a watched copy: lanes that read anything

  u32 read_by(u32 lane) const { return partial >> lane & 1 ? copied[lane] : bytes; }
  // Whether one that is unread would change nothing now.
  bool leaves_alike(u32 lane, const u8* shared) const {
    if (partial >> lane & 1) return false;
    return of_copy_size(bytes, [&](auto size) {
      return std::memcmp(shared + destination[lane], source[lane], size) == 0;
    });
  }
};

// What few copies need, apart from them so that the queue of the others stays small.
struct CopyDetail {
  static constexpr u32 kMostBytes = 16;
  alignas(16) u8 values[kLanes * kMostBytes];  // what it has read, lane after lane
  // Of a watched copy:
  u32 clock;            // of the warp when it was issued
  u64 low, high;        // between which addresses lanes read
  u64 address[kLanes];  // where each does
};

// A queue of them. `in_order`: groups and orders never decrease from one to the next, and those
// without a group come last.
class PendingCopies {
 public:
  bool in_order = true;
  u32 committed = 0;  // how many have a group, if in order

  bool empty() const { return count_ == 0; }
  u32 size() const { return count_; }
  PendingCopy& operator[](u32 i) { return ring_[(first_ + i) & (ring_.size() - 1)]; }

  // That of one of the queue, or of the place behind the last one.
  CopyDetail& detail(const PendingCopy& copy) {
    if (details_.size() != ring_.size()) details_.resize(ring_.size());
    return details_[static_cast<std::size_t>(&copy - ring_.data())];
  }
  // Puts a copy of `from` into a place of the queue, or behind the last one.
  void put(PendingCopy& place, const PendingCopy& from) {
    if (!details_.empty()) detail(place) = detail(from);
    place = from;
  }

  // The place behind the last one, which push() adds.
  PendingCopy& next() {
    if (count_ == ring_.size()) grow();
    return (*this)[count_];
  }
  void push() { ++count_; }
  void pop_front() {
    ++first_, --count_, committed -= committed ? 1 : 0;
    if (!count_) clear();
  }
  // Keeps so many at the front, of which `with_group` are committed.
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

  std::vector<PendingCopy> ring_;    // a power of two of places
  std::vector<CopyDetail> details_;  // of each place; empty until one is needed
  u32 first_ = 0, count_ = 0;
};

}  // namespace workbench::ptx
