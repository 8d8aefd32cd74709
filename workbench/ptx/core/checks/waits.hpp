// Endless waits in plain memory: loops that only read memory which nothing that is left to run will
// change.
//
// A block that has run for a while is watched for a few turns. It waits if the registers at the end
// of one turn equal those at the end of an earlier turn, every group of lanes has run in between,
// and nothing that others can read has changed: it then repeats itself unless another block changes
// the memory that it reads. A counting loop, or one that reads the clock, does not wait. If every
// block of a launch waits, none is left to end the wait. This is proved twice; the second proof
// begins when all blocks wait.
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
  u64 address = 0;  // address as in the instruction
  u8* host = nullptr;
  u32 bytes = 0;
};

// Watches one block, as described above.
class Proof {
 public:
  explicit Proof(Block& block) : block_(block) {}
  const Warp* warp = nullptr;  // warp whose turn it is
  u64 quantum = kQuantum;      // instructions of a warp's turn
  // Begins again: the block's current state is the one that has to recur.
  void begin();
  // A warp is about to execute an instruction with these lanes; there may be none.
  void look(s32 pc, u32 lanes);
  // Shortens the block's turns, because it waits. Warps with diverged lanes need long turns to wait
  // for each other.
  void hurry();
  // Called after a turn of the whole block: whether its state has recurred.
  bool recurs();
  bool changed() const { return changed_; }
  u32 turns() const { return turns_; }
  // The read that a warp repeats; its pc is -1 if there is none.
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
  std::vector<u64> ticks_;                       // tick of each warp when the mark was set
  std::vector<Word> words_;                      // words that the latest instruction may change
  std::vector<std::vector<WaitingRead>> reads_;  // by warp
};

// The wait of one block, for the message.
struct WaitingBlock {
  s64 index;
  u32 reading, at_barrier;  // numbers of threads
};

// The waits of one launch, for all its workers.
class Waits {
 public:
  // The state of one worker, which at first does not wait.
  struct Worker {
    bool waits = false, confirmed = false;
    u64 round = 0;
  };
  enum class Step : u8 { go_on, prove_again, deadlock };

  explicit Waits(int workers) : working_(workers) {}
  // The number of workers that have memory to run; none has begun yet.
  void expect(int workers) { working_ = workers; }
  // All blocks of a worker wait, and no other can start there. `proved`: proved again since
  // Step::prove_again.
  Step waits(Worker& worker, bool proved, const std::vector<WaitingBlock>& blocks);
  // Some block of the worker goes on.
  void goes_on(Worker& worker) {
    if (worker.waits) forget(worker);
  }
  void done(Worker& worker);
  // The blocks that waited when the deadlock was found.
  std::vector<WaitingBlock> blocks();

 private:
  void forget(Worker& worker);
  void begin_again() { round_ = 0, confirmed_ = 0, rows_.clear(); }

  std::mutex mutex_;
  int working_, waiting_ = 0, confirmed_ = 0;
  u64 round_ = 0, rounds_ = 0;  // 0: not all wait
  std::vector<WaitingBlock> rows_, found_;
};

// The number of launches that run in this process now: another one may change memory that this one
// waits for.
std::atomic<int>& running_launches();

}  // namespace workbench::ptx
