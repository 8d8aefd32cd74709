// Waits without end in plain memory: loops that only read what nobody who is left will change.
//
// A block that has run for a while is watched for a few turns. If all its registers are at the end
// of one what they were at the end of an earlier one, every group of lanes has run in between, and
// nothing was changed that others can read, then it goes on like this for ever unless somebody else
// changes what it reads: it waits. A counting loop, and one that asks for the time, is none. Where
// every block of a launch waits, nobody is left who could end it. That is proved twice, the second
// time from a moment on at which all of them waited.
#pragma once
#include <mutex>

#include "scheduler.hpp"

namespace workbench::ptx {

// CPU seconds of the calling thread.
double thread_seconds();

// A load, or an atomic operation, of a loop that waits.
struct WaitingRead {
  s32 pc = -1;
  u32 lane = 0;
  u64 address = 0;  // as the instruction has it
  u8* host = nullptr;
  u32 bytes = 0;
};

// Watches one block: see above.
class Proof {
 public:
  explicit Proof(Block& block) : block_(block) {}
  const Warp* warp = nullptr;  // whose turn it is
  u64 quantum = kQuantum;      // instructions of a turn of a warp
  // Begins anew. The block's state from here on has to come again.
  void begin();
  // A warp is about to execute an instruction with these lanes, of which there may be none.
  void look(s32 pc, u32 lanes);
  // Makes its turns short: it waits. Where lanes are apart they need long ones to wait for each
  // other.
  void hurry();
  // After a turn of the whole block: whether its state has come again.
  bool recurs();
  bool changed() const { return changed_; }
  u32 turns() const { return turns_; }
  // What a warp reads again and again; pc is -1 if that is nothing.
  WaitingRead read_of(const Warp& warp) const;

 private:
  struct Word {
    u8* host;
    u32 bytes;
    u8 before[64];
  };
  void settle();
  void keep(const Warp& warp, const Instruction& in, u32 lanes);
  u8* place_of(const Warp& warp, const Instruction& in, u32 lane, u32 bytes, u64& address) const;
  u64 state() const;

  Block& block_;
  bool changed_ = false;
  u32 turns_ = 0, next_mark_ = 1;
  u64 mark_ = 0;
  std::vector<u64> ticks_;                       // of each warp when the mark was set
  std::vector<Word> words_;                      // that the latest instruction may change
  std::vector<std::vector<WaitingRead>> reads_;  // by warp
};

// How one block waits, for the message.
struct WaitingBlock {
  s64 index;
  u32 reading, at_barrier;  // threads
};

// The waits of one launch, for all its workers.
class Waits {
 public:
  // One worker's part. It begins as one that does not wait.
  struct Worker {
    bool waits = false, confirmed = false;
    u64 round = 0;
  };
  enum class Step : u8 { go_on, prove_again, deadlock };

  explicit Waits(int workers) : working_(workers) {}
  // There are this many workers, for more there was no memory. None has begun yet.
  void expect(int workers) { working_ = workers; }
  // All blocks of a worker wait, and no other can start there. `proved`: again, since prove_again.
  Step waits(Worker& worker, bool proved, const std::vector<WaitingBlock>& blocks);
  // Some block of it goes on.
  void goes_on(Worker& worker) {
    if (worker.waits) forget(worker);
  }
  void done(Worker& worker);
  // The blocks that waited when a deadlock was found first.
  std::vector<WaitingBlock> blocks();

 private:
  void forget(Worker& worker);
  void begin_again() { round_ = 0, confirmed_ = 0, rows_.clear(); }

  std::mutex mutex_;
  int working_, waiting_ = 0, confirmed_ = 0;
  u64 round_ = 0, rounds_ = 0;  // 0: not all wait
  std::vector<WaitingBlock> rows_, found_;
};

// Launches that run in this process now: another one may change what this one waits for.
std::atomic<int>& running_launches();

}  // namespace workbench::ptx
