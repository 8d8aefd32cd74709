// Stops a launch, shows its state, and lets it go on or back.
//
// The launch runs on one worker. Each instruction that a warp is about to execute has an index, the
// same in every run. Where the launch stops, the worker waits in look(), fault() or again() for the
// next order of the thread that holds the debugger, which may read blocks and warps meanwhile.
// Going back is restoring global memory at the start of a block, unwinding the worker, and running
// again from there up to an index.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include "debug/undo.hpp"
#include "debug/watch.hpp"
#include "warp.hpp"

namespace workbench::ptx {

// Thrown to unwind a worker that goes back, or ends.
struct Unwind {};

// What the launch does next.
struct Order {
  static constexpr u64 kNever = ~u64{0};
  u64 limit = kNever;  // the index at which it stops
  std::vector<Watch> watches = {};
  bool remembers = false;  // matches do not stop it: the last one is kept
  bool findings = false;   // it stops where checks find something that they have not found yet
  s64 place = -1;          // it first goes back to this place of the log
  bool ends = false;

  bool unwinds() const { return ends || place >= 0; }
};

// How an instruction writes global memory when it is executed: lanes their elements, a tensor map,
// or the rows of a matrix.
enum class WritesGlobal : u8 { nothing, plain, map, matrix };

// Who wrote an element last.
struct Writer {
  u64 index;
  s64 block;
  s32 thread, pc;  // -1: nobody
};

class Debugger {
 public:
  enum class Status : u8 { running, stopped, faulted, ended, closed };

  explicit Debugger(std::size_t budget) : log(budget) {}
  Debugger(const Debugger&) = delete;

  // ---- set before the launch ----
  std::vector<u32> lines;  // by instruction: a number of its line; 0: none
  std::vector<std::vector<FloatPlace>> sources, results;  // by instruction, or empty
  std::vector<WritesGlobal> writers_of_global;            // by instruction

  // ---- of the worker ----
  void attach(Launch& launch, WorkerResult& result, std::function<void()> renew);
  void enter(Block& block, Warp& warp);
  // A warp is about to execute an instruction.
  void look(s32 pc, u32 lanes) {
    pc_ = pc, lanes_ = lanes;
    if (__builtin_expect(marks_[static_cast<std::size_t>(pc)] != 0 ||
                             count_ >= next_.load(std::memory_order_relaxed),
                         0))
      examine(pc, lanes);
    ++count_;
    *before_ = pc;
  }
  void begin(s64 turn, u64 instructions, u64 lanes);
  void starts(Block& block);
  // A bulk copy is about to write global memory.
  void writes(Block& block, s32 pc, s32 thread, u64 address, u64 bytes);
  // An asynchronous copy has written shared memory.
  void lands(const Block& block, s32 pc, s32 thread, u64 offset, u64 bytes);
  void note(const Finding& finding);
  void fault(const Finding& finding);
  // The work is done, or unwound. Returns whether it is to be done again, from another place.
  bool again();
  void close();

  // ---- of the thread that holds it, while the launch does not run ----
  void go(Order order);
  // Waits until the launch does not run, for at most so many seconds. Returns whether it does not.
  bool wait(double seconds);
  // Stops the launch at its next instruction.
  void pause() { paused_ = true, next_.store(0, std::memory_order_relaxed); }
  Status status() {
    std::lock_guard lock(mutex_);
    return status_;
  }
  u64 index() const { return inside_ ? count_ - 1 : count_; }
  const Hit& hit() const { return hit_; }
  u64 hits() const { return hits_; }
  const Finding* finding() const { return has_finding_ ? &finding_ : nullptr; }
  const Block* block(s64 index) const;
  std::vector<const Block*> blocks() const;
  const Launch& launch() const { return *launch_; }
  const Warp* warp() const { return warp_; }
  s32 pc() const { return pc_; }
  u32 lanes() const { return lanes_; }
  // Remembers who writes the elements of a range of global memory, from now on.
  void record_writers(u64 begin, u64 end, u32 element);
  const std::vector<Writer>& writers() const { return writers_; }

  UndoLog log;

 private:
  enum Mark : u8 { watched = 1, stores = 2, bears = 4 };
  // The instruction that was examined last.
  struct Latest {
    s32 pc = -1;
    s64 block = -1;
    Warp* warp = nullptr;
    u32 lanes = 0;
  };
  // What a watch remembers from before an instruction, to judge it afterwards.
  struct Before {
    std::vector<u8> bytes = {};  // of the memory that it watches
    bool explained = false;      // the instruction is known to write there
    u32 clean = 0;               // lanes whose sources are neither NaN nor infinite
    u64 passed = 0;              // matches that were passed over
  };

  void examine(s32 pc, u32 lanes);
  bool matches(std::size_t watch, s32 pc, u32 lanes);
  u32 lanes_of(const Watch& watch, s32 pc, u32 lanes) const;
  bool is_over(const Watch& watch) const;
  void prepare(s32 pc, u32 lanes);
  void settle();
  void found_behind(std::size_t watch, s32 pc, s64 block, s32 warp, u32 lanes);
  bool take(std::size_t watch, const Hit& hit);
  void rest(Status status, const Finding* finding = nullptr);
  void obey();
  void begin_order();
  void mark_code();
  bool marks(const Watch& watch, std::size_t pc) const;
  void look_closely() { next_.store(0, std::memory_order_relaxed); }
  u32 touching(const Watch& watch, s32 pc, u32 lanes) const;
  u32 special(const std::vector<FloatPlace>& places, u32 lanes, u32 kinds) const;
  u64 written_bytes(s32 pc, u32 lane) const;
  void keep_stores(s32 pc, u32 lanes);
  const u8* watched_bytes(const Watch& watch) const;
  u64 address_of(s32 pc, u32 lane) const;
  void wrote(u64 address, u64 bytes, s32 pc, s64 block, s32 thread);

  Launch* launch_ = nullptr;
  WorkerResult* result_ = nullptr;
  std::function<void()> renew_;
  std::vector<u8> marks_;  // by instruction
  std::vector<Block*> blocks_;
  std::unordered_map<const Warp*, s32> before_all_;  // the latest instruction of each warp
  s32* before_ = nullptr;                            // that of the warp whose turn it is
  Warp* warp_ = nullptr;
  s32 pc_ = -1;
  u32 lanes_ = 0;
  u64 count_ = 0;  // instructions so far; the index of the next one
  u64 armed_ = 0;  // no watch matches before this index
  // The index from which on every instruction is examined.
  std::atomic<u64> next_{0};
  std::atomic<bool> paused_{false};
  bool inside_ = false;  // it waits in an instruction
  bool unwinds_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  Status status_ = Status::running;
  Order order_{.limit = 0};
  bool ordered_ = false;
  bool slow_ = false;            // every instruction is examined
  bool judges_ = false;          // some watch judges instructions afterwards
  std::vector<Before> befores_;  // by watch
  Latest latest_;
  bool is_settled_ = true, stops_behind_ = false;
  Hit hit_;
  u64 hits_ = 0;
  Finding finding_;
  bool has_finding_ = false;
  std::vector<std::tuple<Problem, s32, s32>> seen_;  // findings: problem, pc and other pc
  std::vector<Writer> writers_;
  u64 writers_begin_ = 0, writers_end_ = 0;
  u32 writers_element_ = 1;
};

}  // namespace workbench::ptx
