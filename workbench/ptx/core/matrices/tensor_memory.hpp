// Tensor memory: 128 lanes of 512 columns of 32 bits, which a block allocates by columns (PTX ISA,
// "Tensor Memory"). Products keep their sums there; warps load and store it.
//
// Every operation is performed when it is issued, which is the earliest time that a GPU may choose.
// Checks find operations that a GPU may reorder: for each column and sixteen lanes the last write
// and two reads are kept, and an access races with one that it does not come after. Loads and
// stores are complete at tcgen05.wait; products, copies and shifts at the mbarrier of a
// tcgen05.commit, and they keep the order in which they were issued (Clocks::Part). A strict launch
// also requires both fences, which Triton does not write: other warps see loads and stores from
// tcgen05.fence::before_thread_sync on, and an access comes after the clocks that its warp had seen
// at its last tcgen05.fence::after_thread_sync.
#pragma once
#include <array>
#include <vector>

#include "checks/clocks.hpp"
#include "memory/allocation.hpp"

namespace workbench::ptx {

struct Block;
struct Instruction;
struct Warp;

enum class TensorAccess : u8 { none, load, store, product, copy, shift };

class TensorMemory {
 public:
  static constexpr u32 kRows = 128, kColumns = 512;  // rows are called lanes in PTX
  // Columns of an allocation are a multiple of this.
  static constexpr u32 kUnit = 32;
  static constexpr u32 kRowsTogether = 16;  // rows that one record of the checks covers
  static constexpr u32 kNowhere = ~0u;

  explicit TensorMemory(bool checks);
  void begin();  // begins a block

  u32* column(u32 number) { return cells_.get() + number * kRows; }

  // ---- allocation ----

  // Returns the first column, or kNowhere while there are not enough adjacent free columns.
  u32 allocate(u32 columns, s32 pc);
  // Frees these columns. Returns false if they were not allocated together.
  bool release(u32 first, u32 columns);
  bool is_allocated(u32 first, u32 columns) const;
  // The smallest number of columns allocated so far: a block must not allocate more later.
  u32 least() const { return least_; }
  bool relinquished = false;  // after this a further allocation would wait forever
  void report_leaks(Block& block) const;

  // ---- checks ----

  // Records an access to the rows from `row` on, a multiple of sixteen, of allocated columns.
  // `kind` is not `none`.
  void access(Warp& warp, const Instruction& in, TensorAccess kind, u32 first, u32 columns, u32 row,
              u32 rows, bool reads, bool writes);
  // Reports accesses in these columns that are not complete for the warp that frees them.
  void check_released(Warp& warp, const Instruction& in, u32 first, u32 columns);

  static bool is_strict(const Warp& warp);
  // Executes tcgen05.wait::ld or ::st of a warp of this block, and its fences.
  void wait(Warp& warp, TensorAccess kind);
  void fence_before(Warp& warp);
  void fence_after(Warp& warp);

  // Notes bytes of shared memory that products and copies read: they must not be written before the
  // mbarrier of their commit.
  void keep(Block& home, const Warp& issuer, u32 offset, u32 bytes);
  // A phase of an mbarrier: its flag (Block::flag) and parity.
  struct Phase {
    u64 flag;
    bool parity;
    bool operator==(const Phase& other) const = default;
  };
  // A commit will arrive in these phases: then all earlier operations of its thread are complete,
  // even with other commits in between.
  void committed(const Warp& issuer, std::vector<Phase> arrivals);
  // A thread has seen that a phase is over.
  void waited(Phase phase);
  bool reads_shared() const { return !open_.empty() || !commits_.empty(); }

 private:
  struct Allocation {
    u32 first, columns;
    s32 pc;
  };
  struct Access {
    u32 clock = 0;
    s32 pc = -1;
    u16 agent = 0;
    TensorAccess kind = TensorAccess::none;
    u8 warp = 0;  // index in its block
  };
  struct Cell {
    Access write, reads[2];
  };
  struct Reading {
    Block* home;
    u32 agent, offset, bytes;
  };
  struct Commit {
    u32 agent;
    std::vector<Phase> arrivals;  // any of these phases shows that it is complete
    std::vector<Reading> readings;
  };

  Cell* cells_of(u32 column, u32 row) {
    return shadow_.data() + column * (kRows / kRowsTogether) + row / kRowsTogether;
  }
  // The state of a warp for the additional order that a strict launch requires.
  struct WarpOrder {
    std::vector<u32> fenced;     // clocks that it had seen at its last fence::after_thread_sync
    std::array<u32, 2> waited;   // clocks up to which its loads and stores are complete
    std::array<bool, 2> issued;  // whether it issued loads or stores since it last waited
  };

  static bool is_before(const Warp& warp, const Access& earlier, const Access& later);
  static bool is_fenced(const Warp& warp, const Access& earlier, const Access& later);
  static bool is_ordered(const Warp& warp, const Access& earlier, const Access& later) {
    return is_strict(warp) ? is_fenced(warp, earlier, later) : is_before(warp, earlier, later);
  }
  static void record_read(const Warp& warp, Cell& cell, const Access& access);
  static void report(Warp& warp, const Instruction& in, const Access& earlier, u32 column, u32 row);

  Memory<u32> cells_;  // by column, then by row
  std::vector<Allocation> allocations_;
  u32 used_ = 0;  // allocated units, as bits
  u32 least_ = kColumns;
  std::vector<Cell> shadow_;       // with checks, by column and sixteen rows
  std::vector<WarpOrder> orders_;  // with checks, of the block's warps
  std::vector<Reading> open_;      // operations that are not committed yet
  std::vector<Commit> commits_;
};

}  // namespace workbench::ptx
