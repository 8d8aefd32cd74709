// Everything one block of a launch asks of memory, request by request, and when its warps ran and waited.
//
// Time is the block's logical clock: a warp's clock counts the warp instructions that it issued, and where it waits at a
// barrier it moves on to the clock of the last one who arrives, or exits instead.
#pragma once
#include <algorithm>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

// One warp request, as recording.py unpacks it.
struct RecordedRequest {
  enum Flags : u32 { shared = 1, reads = 2, writes = 4 };
  s32 warp;
  s32 pc;
  u32 mask;   // lanes whose access was allowed
  u32 bytes;  // per lane
  u32 flags;
  u32 sectors;
  u32 wavefronts, ideal;
  u64 address[kLanes];
};
static_assert(sizeof(RecordedRequest) == 32 + 8 * kLanes);

// A stretch of a warp's time that ends at a barrier (`pc`, -1: at the warp's end), or that it spent waiting there.
struct RecordedSpan {
  s32 warp;
  s32 pc;
  s32 barrier;
  u32 waiting;
  u64 start, end;
};
static_assert(sizeof(RecordedSpan) == 32);

class Recorder {
 public:
  Recorder(s64 block, std::size_t limit) : block(block), limit_(limit) {}

  const s64 block;

  void request(const RecordedRequest& request) {
    if (requests_.size() < limit_) requests_.push_back(request);
    else truncated_ = true;
  }

  void begin(std::size_t warps) { since_.assign(warps, 0); }
  // The warp ran until `until`, then waited at a barrier until `released`.
  void wait(s32 warp, s32 pc, s32 barrier, u64 until, u64 released) {
    run(warp, pc, barrier, until);
    if (released > until) add({warp, pc, barrier, 1, until, released});
    since_[static_cast<std::size_t>(warp)] = std::max(until, released);
  }
  void finish(s32 warp, u64 until) { run(warp, -1, -1, until); }

  const std::vector<RecordedRequest>& requests() const { return requests_; }
  const std::vector<RecordedSpan>& spans() const { return spans_; }
  bool truncated() const { return truncated_; }

 private:
  void run(s32 warp, s32 pc, s32 barrier, u64 until) {
    const u64 start = since_[static_cast<std::size_t>(warp)];
    if (until > start) add({warp, pc, barrier, 0, start, until});
  }
  void add(const RecordedSpan& span) {
    if (spans_.size() < limit_) spans_.push_back(span);
    else truncated_ = true;
  }

  std::size_t limit_;
  std::vector<RecordedRequest> requests_;
  std::vector<RecordedSpan> spans_;
  std::vector<u64> since_;  // by warp: when its latest stretch of running began
  bool truncated_ = false;
};

}  // namespace workbench::ptx
