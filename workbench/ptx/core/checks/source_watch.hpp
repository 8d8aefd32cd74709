// Global memory that copies under way read, for the blocks of one worker: a write before the copy
// is over may change the copied bytes.
//
// A cp.async is over for a lane once the lane has waited for its group: from then on the read
// counts as one of that moment (GlobalShadow::read_again). A bulk load, or a cp.async that counts
// at an mbarrier, is over for threads that waited for the mbarrier's phase and for those that come
// after them. Of bulk loads the latest ones of each block are kept.
#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <vector>

#include "warp.hpp"

namespace workbench::ptx {

class SourceWatch {
 public:
  // Adds a block of this worker; its copies are watched until it ends.
  void begin(Block& block) { blocks_.push_back({&block, {}}); }
  void end(const Block& block);

  // Adds the addresses that lanes of a watched cp.async read, from its issue until all have waited.
  void add(const PendingCopy& copy, PendingCopies& copies) {
    if (!copy.reading) return;
    const CopyDetail& detail = copies.detail(copy);
    hold(detail.low, detail.high);
  }
  void remove(const PendingCopy& copy) {
    if (copy.reading) let_go();
  }
  // Lanes of a cp.async have landed in a phase of an mbarrier of their block.
  void landed(Warp& warp, const PendingCopy& copy, u32 lanes, s32 landing);
  // Adds a bulk load, which lands in a phase of an mbarrier of `home`.
  void add(const BulkCopy& copy, const Block& home, s32 landing);

  // Whether pieces, whose sectors count from `base`, may overlap the source of a copy.
  bool near(const LanePieces& pieces, u64 base) const {
    if (!held_) return false;
    u64 low = ~u64{0}, high = 0;
    for (int i = 0; i < pieces.count; ++i) {
      low = std::min(low, base + pieces.all[i].sector);
      high = std::max(high, base + pieces.all[i].sector + (pieces.all[i].line ? 4 : 1));
    }
    return low << 5 < high_ && high << 5 > low_;
  }
  // Whether the caller comes after the accesses of a warp, in a block of another cluster, before a
  // step.
  using Published = std::function<bool(s64 block, u32 warp, u32 step)>;
  // Reports lanes that write the source of a copy which is not over for them. If `by` is not
  // negative, lane `by` performs the whole write.
  void check(Warp& warp, const Instruction& in, const u64* addresses, u32 lanes, u32 bytes, int by,
             const Published& published) const;

 private:
  struct Range {
    u64 address;
    u32 bytes;
    s32 thread;  // thread that issued it
  };
  // A copy that lands in a phase of an mbarrier.
  struct Load {
    const Block* home;  // of the mbarrier
    s64 asked_by;       // block that issued it
    s32 pc, landing;
    u64 low, high;
    std::vector<Range> ranges;
  };
  struct OfBlock {
    Block* block;
    std::deque<Load> loads;
  };
  static constexpr std::size_t kLoads = 64;  // loads kept for each block
  void hold(u64 low, u64 high) {
    ++held_, low_ = std::min(low_, low), high_ = std::max(high_, high);
  }
  void let_go() {
    if (!--held_) low_ = ~u64{0}, high_ = 0;
  }
  void keep(Load load);
  static void report(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes, s32 pc,
                     s64 block, s32 thread);
  static bool is_over(const Load& load, const Warp& warp, u32 lane, const Published& published);

  u64 held_ = 0;                  // number of copies and loads
  u64 low_ = ~u64{0}, high_ = 0;  // range of addresses that contains all sources
  std::vector<OfBlock> blocks_;
};

}  // namespace workbench::ptx
