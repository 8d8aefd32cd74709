// Shadow state of shared memory: the last write and reads of each granule, and their clocks.
//
// A granule is the smallest access that the kernel makes to shared memory; accesses are naturally
// aligned, so each covers whole granules and the check is exact. 16 bytes that were only ever
// accessed as a whole share one record (a unit); the first smaller access takes it apart, and a
// store to all of it joins it again. Most requests cannot race with anything, which a look at the
// lines that they touch shows: these are only logged (quiet_log.cpp). Clocks grow over all blocks
// of a worker, so nothing is cleared. Two accesses race if neither is ordered before the other (see
// clocks.hpp), one of them writes, and not both are strong (atomic, volatile, .relaxed or more). A
// store that leaves the bytes unchanged is harmless.
//
// The bytes that a copy has written are valid for a thread that has waited for the copy's mbarrier,
// or that comes after one that has, but not for the rest of its block. So each phase of an mbarrier
// in which copies land is recorded as a landing, with the waits for it.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "checks/chunks.hpp"
#include "checks/clocks.hpp"
#include "checks/pattern.hpp"

namespace workbench::ptx {

struct Warp;
struct Instruction;
struct PendingCopy;

class Shadow {
 public:
  Clocks& clocks;  // clocks of the block or of its cluster

  explicit Shadow(Clocks& all) : clocks(all) {}
  // `logging`: number of warps whose requests are logged if they cannot race; 0 where other blocks,
  // or bulk copies, have access too. `async`: the async proxy has access.
  void resize(u32 shared_bytes, u32 granule, u32 logging, bool async);
  void begin_block();
  void drop_pending();  // ends copies that nothing waited for, at the end of the block
  // Whether granules may still name copies as under way that have landed; only the log knows.
  bool has_old_copies() const { return recorded_copies_; }

  // All live threads are at a barrier and about to continue: every later access comes after the
  // logged ones, so nothing has to look them up again.
  void forget_log(u32 barrier);
  // The same for lanes of a warp that wait for each other; they may be all warps of the block.
  void meet_lanes(u32 agent);
  // A warp acquires accesses from before a barrier, or published at a flag. Its log entries keep
  // the clocks that it had when they were made.
  void leave(u32 agent, u32 barrier) {
    keep_knowledge(agent);
    clocks.leave(agent, barrier);
  }
  void acquire(u32 agent, u64 flag) {
    if (!clocks.has_flag(flag)) return;
    keep_knowledge(agent);
    clocks.acquire(agent, flag);
  }

  // Records one request. `changed`: lanes that change memory.
  void read(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
            bool strong);
  void write(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
             bool strong, u32 changed);
  // Records the issue of one cp.async.
  void copy_issued(Warp& warp, const Instruction& instruction, const PendingCopy& copy);
  // `changed` as above. `clock`: the issuing warp's clock when it asked for the arrival, 0 for now;
  // `landing`: of an mbarrier's phase, or kNoLanding where the lanes waited themselves.
  void copy_landed(Warp& warp, const Instruction& instruction, const u32* addresses, u32 mask,
                   u32 bytes, u32 changed, u32 clock, s32 landing);

  // ---- mbarriers ----

  static constexpr s32 kNoLanding = -1;
  // An mbarrier was initialised; the async proxy does not see that before a fence.
  void initialised(const Warp& warp, const Instruction& in, u32 mbarrier);
  // A fence of a warp that makes visible the initialisations that it comes after.
  void make_initialised_known(const Warp& warp);
  // Reports a copy that counts on an mbarrier whose initialisation is not visible to the async
  // proxy.
  void check_initialised(Warp& warp, const Instruction& in, u32 lane, u32 mbarrier);
  // Volatile accesses of lanes that have not waited for each other, on which warp-synchronous code
  // relies.
  void volatile_store(const Warp& warp, const Instruction& in, const u64* addresses, u32 mask,
                      u32 bytes);
  void volatile_load(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
  // The landing of the mbarrier's current phase.
  s32 landing(u32 mbarrier);
  void phase_over(u32 mbarrier);
  // Lanes have seen that the last phase is over.
  void waited(const Warp& warp, u32 lanes, u32 mbarrier);
  // Whether a lane comes after a landing.
  bool has_landed_for(const Warp& warp, u32 lane, s32 landing) const;
  // Whether function(agent, step) is true for some wait that found a landing complete, before that
  // step.
  template <class F>
  bool any_wait(s32 landing, F function) const {
    const s32 place = landing - first_landing_;
    if (place < 0 || place >= static_cast<s32>(landings_.size())) return true;
    const std::vector<Wait>& waits = landings_[static_cast<std::size_t>(place)].waits;
    return std::any_of(waits.begin(), waits.end(),
                       [&](const Wait& wait) { return function(wait.agent, wait.since); });
  }

  // ---- the async proxy: bulk copies, and products of matrices in shared memory ----

  // A lane issued an asynchronous write: it races with unordered reads and writes of these bytes.
  // `reported`: something has been reported for the lane.
  void async_write_issued(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes,
                          bool& reported);
  // `swizzle`: of a tensor copy, as numbered in its map; kNoSwizzle where there is none.
  void async_write_landed(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes,
                          u32 clock, u8 swizzle, s32 landing);
  // The swizzle of the bytes at an address if a tensor copy wrote them last; otherwise kNoSwizzle.
  u8 swizzle_at(const Warp& warp, u32 address) const;
  static constexpr u8 kNoSwizzle = 255;
  // Whether a tensor copy has written anything.
  bool has_swizzles() const { return !swizzle_.empty(); }
  // Between keep and let_go the bytes are being read, and must not be written.
  void keep(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes);
  void let_go(u32 address, u32 bytes);
  // The same for chunks, whose offsets count from `base`, a multiple of a line's size.
  void keep(Warp& warp, const Instruction& in, u32 lane, const Chunks& chunks, u32 base);
  void let_go(const Chunks& chunks, u32 base);
  // The sizes of lines and of their parts.
  LineParts::Scale scale() const { return scale_; }
  class AsyncReader;

 private:
  struct Access {
    u32 clock = 0;
    s32 pc = -1;
    u32 by = 0;  // thread (32 * agent + lane): bits 0-14, strong: 15, step: 16-31

    u32 thread() const { return by & 0x7fff; }
    bool strong() const { return by >> 15 & 1; }
    u16 lane_order() const { return static_cast<u16>(by >> 16); }
    void weaken() { by &= ~0x8000u; }
  };
  struct alignas(64) Granule {
    Access write;        // the last write, strong or not
    Access weak;         // the last plain write: an atomic after it must not hide it
    u32 weak_warps = 0;  // warps that stored the same bytes as `weak` since
    u32 weak_lanes = 0;  // lanes of its warp that stored the same bytes since
    Access read, other;  // readers in two warps
    // Lanes of `read`'s warp that read, some perhaps in earlier steps (EarlierRead).
    u32 read_lanes = 0;
    // A copy to this granule that has not landed: pc * 1024 + thread; or -2 - its landing.
    s32 pending = -1;
  };
  static_assert(sizeof(Granule) == 64);

  // The access that is being checked, with the clocks of its warp. `warp`: its agent; `lanes`: all
  // lanes that make this access to this address.
  struct Asker {
    u32 warp, lane, lanes;
    u32 bit;  // bit of the agent in Granule::weak_warps; 0 for agents beyond 32
    const u32* seen;
    u32 start, floor;  // see Clocks
    u32 steps;         // steps to now in which the lanes are unordered
    const Warp& self;
    Access access;
    // A race of these lanes with a read whose value was handed to them was reported.
    bool noted = false;

    // Assigns field by field: the lane was stored just now, and a copy of the whole record would
    // stall on that store.
    void record(Access& to) const { to.clock = access.clock, to.pc = access.pc, to.by = access.by; }
  };
  // `exchanged`: between lanes, with a read whose value has been handed on (Clocks::exchange).
  enum class Conflict : u8 { none, warps, lanes, exchanged };

  // `since`: the step since which the lanes are unordered.
  Asker asker(const Warp& warp, const Instruction& instruction, bool strong, u32 since) const;
  Asker asker(const Warp& warp, const Instruction& instruction, bool strong) const;
  void set_lanes(Asker& who, const Warp& warp, u32 lanes) const;
  static bool unordered(const Asker& who, const Access& other) {
    return other.clock >= who.start &&
           static_cast<u16>(who.access.lane_order() - other.lane_order()) <= who.steps;
  }
  static Conflict conflict(const Asker& who, const Access& other, u32 lanes);
  static bool before(const Asker& who, const Access& other, u32 lanes);
  static Conflict with_write(const Asker& who, const Granule& granule);
  Conflict with_read(const Asker& who, const Granule& granule, const Access& read,
                     u32& lanes) const;
  Conflict with_reads(const Asker& who, const Granule& granule, const Access*& other,
                      u32& lanes) const;
  static u32 storing_lanes(const Granule& granule, const Access& write);
  // The thread on the other side, never the asking one. `lanes`: the lanes of the other access'
  // warp that took part in it.
  static s32 other_thread(const Asker& who, const Access& other, u32 lanes);
  static bool settled(const Asker& who, const Granule& granule);
  static bool stored_by_several(const Asker& who, const Granule& granule);
  static bool quiet(const Asker& who, const Granule& granule);
  bool read_quietly(const Asker& who, Granule& granule) const;
  bool read_stored(const Asker& who, Granule& granule) const;
  static bool store_alike(const Asker& who, Granule& granule, bool changes);
  bool write_quietly(const Asker& who, Granule& granule) const;
  void record_read(const Asker& who, Granule& granule);
  static void record_write(const Asker& who, Granule& granule);

  // A wait for the copies that land in one phase of an mbarrier.
  struct Wait {
    u32 agent, clock;
    // All lanes of the agent come after it once something has ordered them after step `since`.
    u32 lanes, since;
  };
  struct Landing {
    u32 mbarrier;
    u64 warps = 0;  // among the first 64 agents, those whose lanes have all waited
    std::vector<Wait> waits;
  };
  struct Mbarrier {
    s32 open = kNoLanding,
        over = kNoLanding;  // landings of the current phase and of the last one
    // Place of an initialisation that no fence has made visible; -1 if there is none.
    s32 pc = -1;
    u32 agent = 0, clock = 0;
  };
  const Landing* landing_of(const Granule& granule) const;
  // Whether the latest copy that landed here, if any, is valid for all asking lanes. Returns false
  // if unsure.
  bool arrived(const Asker& who, const Granule& granule) const {
    const Landing* landing = landing_of(granule);
    return !landing || (who.warp < 64 && landing->warps >> who.warp & 1);
  }
  bool arrived_for(const Asker& who, const Granule& granule) const;
  bool has_landed_for(const Landing& landing, u32 agent, u32 lane) const;
  void report_unawaited(Warp& warp, const Instruction& in, const Asker& who, const Granule& granule,
                        u32 address, u32 bytes) const;

  // ---- requests that cannot race (quiet_log.cpp) ----

  // A summary of accesses: the agent, if all are of one warp, and the step of the latest one.
  struct OfWarp {
    static constexpr u32 kSeveral = ~0u;
    u32 agent = kSeveral, step = 0;

    void add(bool first, const Clocks& clocks, u32 by) {
      agent = first || agent == by ? by : kSeveral;
      step = clocks.step(by);
    }
    // Whether they come before the current access of warp `by`, whose lanes were last ordered at
    // step `since`.
    bool before(u32 by, u32 since) const { return agent == by && step < since; }
  };
  // A summary of all accesses to a line of 128 bytes (64 where a granule is one byte).
  struct Line {
    u32 since = 0;                          // start of the block that this summary belongs to
    u32 latest_store = 0, latest_read = 0;  // no store or read has a later clock
    u32 logged = 0;                         // number of the log that has accesses to this line
    u32 period = 0;                         // period that new_* belong to
    s32 pending = 0;                        // copies to it under way, counted by lanes
    // Parts that copies under way, or other recent copies, write.
    u64 pending_parts = 0;
    u64 stored = 0;                     // parts that were written in this block
    u64 forgotten = 0;                  // parts whose last store is or was in a log
    u64 new_stores = 0, new_reads = 0;  // parts accessed since all warps last met
    OfWarp storing, reading;            // warps that did so
    bool unsure = false;                // a barrier alone does not show that its copies have landed
  };
  enum class Quiet : u8 { read, read_chunks, store, issue, landing };
  struct LogEntry {
    const Warp* warp;
    union {
      const Pattern* pattern;
      const Chunks* chunks;  // with Quiet::read_chunks
    };
    u32 mask;
    u32 changed;    // lanes that changed what was there
    u32 first;      // address of the first lane
    u32 knowledge;  // index in knowledge_
    u32 clock;
    s32 pc;
    u16 lane_order, steps;
    Quiet kind;

    bool is_read() const { return kind <= Quiet::read_chunks; }
    Access access() const;  // of lane 0
  };
  static_assert(sizeof(LogEntry) <= 48);  // thousands are written between two barriers
  static constexpr u32 kNoKnowledge = ~0u;
  static constexpr std::size_t kLeastEntries = 1024, kEntriesOfWarp = 64;

  Line& line_at(u32 address) {
    Line& line = lines_[address >> scale_.line];
    if (line.since != clocks.start()) {
      line = Line{};
      line.since = clocks.start();
    }
    if (line.period != period_) line.period = period_, line.new_stores = line.new_reads = 0;
    return line;
  }
  bool log(const Warp& warp, Quiet kind, const Instruction& in, const u64* addresses, u32 mask,
           u32 bytes, u32 changed);
  bool log(const Asker& who, const Chunks& chunks, u32 base);
  LogEntry& add_entry(const Warp& warp, Quiet kind, u32 mask, u32 first, s32 pc);
  void make_room();
  void drop_repeated_reads();
  void work_off_log();
  void begin_log();
  void clear_log();
  void forget_knowledge();
  void keep_knowledge(u32 agent) {
    if (knowledge_of_[agent] == kNoKnowledge) return;
    knowledge_[knowledge_of_[agent]] = clocks.seen(agent);
    knowledge_of_[agent] = kNoKnowledge;
  }
  void forget_entries(const u32* visible);
  static u32 take_landed(LogEntry& issued, const LogEntry& landing, u32 lanes);
  void work_off(const LogEntry& entry);
  void work_off_chunks(Asker& who, const LogEntry& entry);
  // How often each chunk of a line is being read through the async proxy, in a byte for each.
  u64 kept_of(u32 line) const {
    u64 times;
    std::memcpy(&times, &kept_[line << (scale_.line - kUnitShift)], sizeof times);
    return scale_.line == 7 ? times : times & 0xffffffffu;
  }
  void recall(Line& line, u32 address, u32 bytes);
  // Called before granules are accessed one by one: brings their records and the line's summary up
  // to date.
  [[gnu::always_inline]] void touch(const Asker& who, Quiet kind, u32 address, u32 bytes) {
    if (lines_.empty()) return;
    Line& line = line_at(address);
    const u64 part = scale_.part_of(address, bytes);
    if (line.logged == log_number_) work_off_log();
    if (line.forgotten & part) recall(line, address, bytes);
    line.unsure |= kind == Quiet::store && line.pending_parts & part;
    note(line, kind, part, 1, who.access.clock, who.warp);
    latest_[who.warp] = std::max(latest_[who.warp], who.access.clock);
  }
  void note(Line& line, Quiet kind, u64 part, u32 lanes, u32 clock, u32 agent) const {
    if (kind == Quiet::read) {
      line.reading.add(!line.new_reads, clocks, agent);
      line.latest_read = std::max(line.latest_read, clock), line.new_reads |= part;
    } else if (kind == Quiet::issue) {
      line.pending += static_cast<s32>(lanes), line.pending_parts |= part;
    } else {
      line.storing.add(!line.new_stores, clocks, agent);
      line.latest_store = std::max(line.latest_store, clock), line.new_stores |= part;
      line.stored |= part;
      if (kind != Quiet::landing) return;
      line.pending -= static_cast<s32>(lanes);
      if (!line.pending) line.pending_parts = 0;
    }
  }

  Granule* whole_unit(u32 address, u32 bytes);
  // Calls function(granule) for each record of [address, address + bytes). `joins`: all of these
  // records become alike.
  template <class F>
  [[gnu::always_inline]] void for_each(u32 address, u32 bytes, bool joins, const F& function);
  // Reports a write that races with other accesses. Returns true if there are any.
  bool report_race(Warp& warp, const Instruction& in, Asker& who, const Granule& granule,
                   u32 address, u32 bytes) const;
  static void report_conflict(Warp& warp, const Instruction& in, Asker& who, Conflict found,
                              u32 address, u32 bytes, s32 other_pc, s32 other_thread);
  // Reports bytes that are written while they are being read. Returns true if there are any.
  bool report_unfenced(Warp& warp, const Instruction& in, const Asker& who, const Granule& granule,
                       u32 address, u32 bytes) const;
  static constexpr u32 kNoUnit = ~0u;
  static constexpr u32 kUnitsOfLine = 8;
  void begin_keeping();
  u32 kept_unit(u32 address, u32 bytes) const;
  bool report_kept(Warp& warp, const Instruction& in, u32 lane, u32 address, u32 bytes);
  void take_apart(u32 unit);
  void join(u32 unit);
  bool read_slowly(Warp& warp, const Instruction& in, Asker& who, Granule& granule, u32 address,
                   u32 bytes, bool reported);
  bool write_slowly(Warp& warp, const Instruction& in, Asker& who, Granule& granule, u32 address,
                    u32 bytes, bool changes, bool reported);

  static constexpr u32 kUnitShift = 4;
  std::vector<Granule> units_;
  std::vector<u8> apart_;          // by unit, whether it has been taken apart
  std::vector<Granule> granules_;  // granules of units that were taken apart; allocated when needed
  u32 shift_ = 2, per_unit_ = 4;   // log2 of a granule's bytes, and granules per unit
  std::vector<Line> lines_;        // empty: requests are not logged
  bool async_ = false;             // the async proxy reads too
  LineParts::Scale scale_{7, 1};
  std::unique_ptr<LogEntry[]> log_;
  std::size_t most_entries_ = 0;
  std::size_t logged_ = 0;          // number of entries
  std::unique_ptr<u32[]> written_;  // indexes of entries that are not reads
  std::size_t written_count_ = 0;
  u32 log_number_ = 1;
  u32 period_ = 1;                            // number of times that all warps have met
  std::array<u32, Clocks::kWarps> latest_{};  // by agent, the clock of its last access
  Access forgotten_;              // one of the discarded stores, which stands for all of them
  bool recorded_copies_ = false;  // granules may name copies that are under way
  u64 times_forgotten_ = 0, times_worked_off_ = 0;  // numbers of entries
  // The clocks that agents had when they logged entries; empty where they have not changed since.
  std::vector<std::vector<u32>> knowledge_;
  std::size_t knowledge_count_ = 0;  // number of them in use
  // By agent, the index for its next entry; kNoKnowledge if it has none.
  std::vector<u32> knowledge_of_;
  // By granule of this block: lanes of Granule::read's warp that read in an earlier step than it
  // says, and that nothing has ordered since.
  struct EarlierRead {
    Access access;
    u32 lanes;
  };
  std::unordered_map<const Granule*, std::vector<EarlierRead>> earlier_reads_;
  // By unit: number of asynchronous reads; allocated when needed, with some more units that are
  // never read.
  std::vector<u8> kept_;
  std::vector<u8> swizzle_;        // by unit: swizzle of the last tensor copy that wrote it
  std::vector<s32> keeper_;        // by unit: one of its asynchronous readers, pc * 1024 + thread
  std::vector<Landing> landings_;  // landings of this block
  s32 first_landing_ = 0;          // number of the first landing
  std::unordered_map<u32, Mbarrier> mbarriers_;
  struct VolatileStore {
    u32 agent, lane, met;
    s32 pc;
  };
  std::unordered_map<u32, VolatileStore> volatile_stores_;  // the last one to each granule
};

// Lanes that read bytes through the async proxy: writes through the generic proxy need a fence in
// between.
class Shadow::AsyncReader {
 public:
  AsyncReader(Shadow& shadow, Warp& warp, const Instruction& in, u32 lanes);
  // Logs the read of all chunks if it cannot race with anything.
  bool log(const Chunks& chunks, u32 base) { return shadow_.log(who_, chunks, base); }
  // `reported`: something has been reported for these lanes.
  void read(u32 address, u32 bytes, bool& reported);
  // Extends an earlier read of these bytes to now.
  void read_again(u32 address, u32 bytes);

 private:
  Shadow& shadow_;
  Warp& warp_;
  const Instruction& in_;
  Asker who_;
};

}  // namespace workbench::ptx
