// A recording of one block of a launch: its memory requests, when its warps ran and waited, and
// their arrivals and waits at mbarriers.
//
// Time is the block's logical clock: a warp's clock counts the warp instructions that it issued,
// and a wait at a barrier moves it on to the clock of the last warp that arrives, or exits instead.
#pragma once
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

// One warp request.
struct RecordedRequest {
  enum Flags : u32 { shared = 1, reads = 2, writes = 4 };
  s32 warp;
  s32 pc;
  u32 mask;   // lanes whose access was allowed
  u32 bytes;  // bytes of each lane
  u32 flags;
  u32 sectors;
  u32 wavefronts, ideal;
  u64 address[kLanes];
};
static_assert(sizeof(RecordedRequest) == 32 + 8 * kLanes);

// A stretch of a warp's time that ends at a barrier (`pc`; -1 for the warp's end), or that it spent
// waiting there.
struct RecordedSpan {
  s32 warp;
  s32 pc;
  s32 barrier;
  u32 waiting;
  u64 start, end;
};
static_assert(sizeof(RecordedSpan) == 32);

// An action of a warp that another may wait for, or a wait that is over. `tick`: the instructions
// that the warp had issued, without polls that found nothing; pipeline.py computes times from it.
struct RecordedEvent {
  enum Kind : u32 {
    arrive,       // at an mbarrier: `count` arrivals, `bytes` more to expect
    arrive_late,  // at an mbarrier, once the warp's copies have landed
    copy,         // `bytes` to shared memory at `to`, which the mbarrier counts
    // A wait found a phase of an mbarrier complete; the bits of `count` are the lanes.
    pass,
    // Of warp group `at`, number `phase`: `count` columns, A at `bytes` (kInRegisters), B at `to`.
    product,
    wait_products,  // a wait for the products of a warp group before number `phase` is over
    meet,
    come,  // at barrier number `at`, for the `phase`-th time: waits, or only arrives
    end,
    complete,          // a phase of an mbarrier, of no warp
    arrive_committed,  // at an mbarrier, once the warp's products in tensor memory are over
    multiply,          // a product in tensor memory: fields as for `product`, but of one warp
    hold,              // `count` columns of tensor memory from column `at` on are allocated
    give_back          // these columns are freed
  };
  static constexpr u32 kInRegisters = 0xffffffffu;
  s32 warp;  // -1: of no warp, or of another block
  s32 pc;
  u32 kind;
  u32 at;  // offset of an mbarrier
  // Phase of the mbarrier, from 0; -1 is the one before, which is complete from the start.
  s32 phase;
  u32 count, bytes, to;
  u64 tick;

  // Whether both are arrivals of lanes that arrive together.
  bool joins(const RecordedEvent& other) const {
    return kind <= arrive_late && kind == other.kind && warp == other.warp && pc == other.pc &&
           at == other.at && phase == other.phase && tick == other.tick;
  }
};
static_assert(sizeof(RecordedEvent) == 40);

class Recorder {
 public:
  Recorder(s64 of_block, std::size_t limit) : block(of_block), limit_(limit) {}

  const s64 block;

  void request(const RecordedRequest& request) {
    if (requests_.size() < limit_)
      requests_.push_back(request);
    else
      truncated_ = true;
  }

  void begin(std::size_t warps) { since_.assign(warps, 0), polling_.assign(warps, Polling{}); }
  // The warp ran until `until`, then waited at a barrier until `released`.
  void wait(s32 warp, s32 pc, s32 barrier, u64 until, u64 released) {
    run(warp, pc, barrier, until);
    if (released > until) add({warp, pc, barrier, 1, until, released});
    since_[static_cast<std::size_t>(warp)] = std::max(until, released);
  }
  void finish(s32 warp, u64 until) { run(warp, -1, -1, until); }

  // `event.tick` still counts all instructions that the warp issued.
  void event(RecordedEvent event) {
    if (event.warp >= 0) {
      Polling& polling = polling_[static_cast<std::size_t>(event.warp)];
      if (event.kind == RecordedEvent::pass && polling.pc == event.pc &&
          polling.mbarrier == event.at)
        polling.idle += event.tick - polling.since;
      polling.pc = -1;
      event.tick -= polling.idle;
    }
    if (!events_.empty() && events_.back().joins(event))
      events_.back().count += event.count, events_.back().bytes += event.bytes;
    else if (events_.size() < limit_)
      events_.push_back(event);
    else
      truncated_ = true;
  }
  // Notes a poll that found nothing: the time until the same poll succeeds counts as waiting.
  void poll(s32 warp, s32 pc, u32 mbarrier, u64 tick) {
    Polling& polling = polling_[static_cast<std::size_t>(warp)];
    if (polling.pc == pc && polling.mbarrier == mbarrier) return;
    polling.pc = pc, polling.mbarrier = mbarrier, polling.since = tick;
  }
  s32 phase(u32 mbarrier) const {
    const auto found = phases_.find(mbarrier);
    return found == phases_.end() ? 0 : found->second;
  }
  void complete(u32 mbarrier) {
    event({.warp = -1,
           .pc = -1,
           .kind = RecordedEvent::complete,
           .at = mbarrier,
           .phase = phases_[mbarrier]++,
           .count = 0,
           .bytes = 0,
           .to = 0,
           .tick = 0});
  }
  void initialise(u32 mbarrier) {
    phases_[mbarrier] = (phase(mbarrier) + 1) / 2 * 2;
    // Its parity is even again.
  }
  s32 meeting(u32 barrier) const { return meetings_[barrier]; }
  void let_go(u32 barrier) { ++meetings_[barrier]; }

  const std::vector<RecordedEvent>& events() const { return events_; }
  const std::vector<RecordedRequest>& requests() const { return requests_; }
  const std::vector<RecordedSpan>& spans() const { return spans_; }
  bool truncated() const { return truncated_; }

 private:
  struct Polling {
    s32 pc = -1;
    u32 mbarrier = 0;
    u64 since = 0, idle = 0;
  };

  void run(s32 warp, s32 pc, s32 barrier, u64 until) {
    const u64 start = since_[static_cast<std::size_t>(warp)];
    if (until > start) add({warp, pc, barrier, 0, start, until});
  }
  void add(const RecordedSpan& span) {
    if (spans_.size() < limit_)
      spans_.push_back(span);
    else
      truncated_ = true;
  }

  std::size_t limit_;
  std::vector<RecordedRequest> requests_;
  std::vector<RecordedSpan> spans_;
  std::vector<RecordedEvent> events_;
  std::vector<u64> since_;               // by warp: start of its latest stretch of running
  std::vector<Polling> polling_;         // by warp
  std::unordered_map<u32, s32> phases_;  // by mbarrier: number of completed phases
  s32 meetings_[16] = {};                // by barrier: number of completed meetings
  bool truncated_ = false;
};

}  // namespace workbench::ptx
