// The state of the machine: decoded instructions, warps, blocks, one launch, and the table of
// handlers.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "calls.hpp"
#include "checks/traffic.hpp"
#include "checks/wrapped.hpp"
#include "codes.hpp"
#include "operands.hpp"
#include "types.hpp"

namespace workbench::ptx {

struct Instruction;
struct Warp;

// Executes one instruction for the lanes of `mask` (never empty). `registers` is the warp's
// register file.
using Handler = void (*)(u8* registers, const Instruction& instruction, u32 mask, Warp& warp);

// The two forms of a handler, made from one definition: for a bare launch, and for a launch that is
// observed (statistics, checks or a recording).
struct Handlers {
  Handler bare, observed;
  Handlers(Handler both) : bare(both), observed(both) {}
  Handlers(Handler without, Handler with) : bare(without), observed(with) {}
};

// How the scheduler treats an instruction. `collective`: waits until every lane of its member mask
// has arrived. `poll`: tests something that other warps do, and lets them run if it has not
// happened; `wait`: is repeated until it has happened. `timed`: plain, but depends on the time at
// which it runs.
enum class Kind : u8 {
  plain,
  branch,
  exit,
  trap,
  barrier,
  collective,
  call,
  ret,
  poll,
  wait,
  timed
};

enum class Class : u8 {
  integer,
  fp32,
  fp16,
  fp64,
  conversion,
  special,
  tensor,
  global,
  shared,
  local,
  constant,
  control,
  sync,
  other
};

constexpr int kOperandWords = 18;

// One decoded instruction. The first 64 bytes are all that most arithmetic instructions touch.
struct alignas(64) Instruction {
  Handler run = nullptr;  // of a bare launch
  Slot guard = kTrueSlot;
  u32 guard_flip = 0;  // all ones for @!p
  Kind kind = Kind::plain;
  u8 counted = 1;          // 0 for jumps that the block layout inserted
  u8 elements = 1;         // vector width of a memory access
  u8 bytes = 0;            // bytes per element of a memory access
  s32 target = -1;         // branch target
  Slot address = kNoSlot;  // base address of an access to memory
  Slot member = kNoSlot;   // member mask of a collective; kNoSlot means the whole warp
  u32 flags = 0;           // of an access to memory (access.hpp)
  u32 negated = 0;         // all ones for a predicate operand !p
  union {
    s64 immediate = 0;  // an operand of the handler's choice
    s64 offset;         // from `address`, or of a parameter
    s64 groups;         // groups that may still be pending when a wait ends
    s64 saved;          // index of its list of registers in Kernel::saves
    s64 window;         // window (state space) that an address is tested against
    Combine combine;
    Meeting::Way meeting;
  };
  union {
    u32 words[kOperandWords] = {};
    operands::Elementwise elementwise;
    operands::Comparison comparison;
    operands::Unpacking unpacking;
    operands::Carrying carrying;
    operands::Access access;
    operands::Atomic atomic;
    operands::AsyncCopy copy;
    operands::AsyncStore store;
    operands::Mbarrier mbarrier;
    operands::Bulk bulk;
    operands::MapChange map_change;
    operands::MapCopy map_copy;
    operands::Fragment fragment;
    operands::Exchange exchange;
    operands::Product product;
    operands::ScaledProduct scaled_product;
    operands::SparseProduct sparse_product;
    operands::GroupProduct group_product;
    operands::TensorMove tensor_move;
    operands::TensorProduct tensor_product;
    operands::TensorCommit tensor_commit;
    operands::Barrier barrier;
    operands::Call call;
    operands::ParameterCopy parameter;
    operands::SystemCall system;
  };
  Handler run_observed = nullptr;
};
static_assert(sizeof(Instruction) == 128);

// ---- the handler table ----

struct TableEntry {
  std::string name;  // canonical PTX name, for example "add.s32"
  Handlers run;
  Kind kind;
  Class group;
  std::string destinations;  // comma-separated operand types, for example "b32" or "pred"
  std::string sources;       // the same; "imm" is an integer that goes into Instruction::immediate
};

const std::vector<TableEntry>& instruction_table();

// Entries of the handler table; each source file of a family has a function that adds its own.
using Table = std::vector<TableEntry>;
void add_integer(Table&);
void add_wide_integer(Table&);
void add_fields(Table&);
void add_float(Table&);
void add_special_functions(Table&);
void add_half(Table&);
void add_contractions(Table&);
void add_conversions(Table&);
void add_float_conversions(Table&);
void add_moves(Table&);
void add_comparisons(Table&);
void add_memory(Table&);
void add_atomics(Table&);
void add_async_copies(Table&);
void add_mbarriers(Table&);
void add_bulk_copies(Table&);
void add_tensor_maps(Table&);
void add_warp_groups(Table&);
void add_tensor_memory(Table&);
void add_tensor_products(Table&);
void add_clusters(Table&);
void add_collectives(Table&);
void add_matrix(Table&);
void add_integer_matrix(Table&);
void add_byte_matrix(Table&);
void add_small_matrix(Table&);
void add_sparse_matrix(Table&);
void add_matrix_memory(Table&);
// Replaces handlers by faster ones where the processor supports them.
void widen_matrices(Table&);
void widen_integer_matrices(Table&);
void add_calls(Table&);
void add_carries(Table&);
void add_control(Table&);

// ---- memory ----

// Generic addresses at which the windows begin: memory that belongs to a block, a lane or a launch.
constexpr u64 kSharedWindow = u64{1} << 56;
constexpr u64 kLocalWindow = u64{2} << 56;
constexpr u64 kParamWindow = u64{3} << 56;
constexpr u64 kWindowMask = (u64{1} << 56) - 1;

constexpr u32 kReservedShared =
    1024;  // bytes of shared memory that cooperative groups use, beyond the kernel's own

// A range of global memory that a kernel may touch.
struct Buffer {
  u64 address;  // virtual, the same in every run
  u64 size;
  u8* host;
  bool writable;
  struct GlobalSector* shadow =
      nullptr;  // with checks, from the sector of `address` on (see global_shadow.hpp)
  struct GlobalLine* lines = nullptr;  // with checks, from the line of `address` on
  // By sector, a bit for each byte that was written, also by earlier launches; null: all bytes
  // count as written.
  u32* written = nullptr;
  const class DeviceHeap* heap = nullptr;  // the heap from which malloc in kernels took parts of it
  mutable u32 first_writes = 0;  // whether the launch wrote bytes that had never been written
};

// The range [low, high) that an access may touch because it can only mean one variable or argument.
// If an argument's elements have gaps, `filled` bytes of every `period` belong to it.
struct Extent {
  u64 low = 0, high = ~u64{0};
  u64 period = 0, filled = 0;
};

// The bounds of an Extent alone, as an offset in shared memory. Every access looks at them, so they
// are kept small.
struct SharedBounds {
  u32 low = 0, size = ~u32{0};
};

// Number of executions of one instruction, and the sum of their active lanes.
struct Tally {
  u64 executions = 0, lanes = 0;
};

// Counts of one instruction, summed over warps.
struct Counts {
  u64 executions = 0, lanes = 0, requests = 0, sectors = 0, wavefronts = 0, ideal = 0, bytes = 0,
      waits = 0;
  u64 distinct_bytes = 0, ideal_sectors = 0, landed_bytes = 0, filled_bytes = 0, slow_paths = 0;
  u64 products = 0;     // multiply-adds of tcgen05.mma, whose size is in registers
  u64 scale_bytes = 0;  // bytes of scale factors that tcgen05.mma reads
  Counts& operator+=(const Counts& other) {
    executions += other.executions, lanes += other.lanes, requests += other.requests,
        sectors += other.sectors;
    wavefronts += other.wavefronts, ideal += other.ideal, bytes += other.bytes,
        waits += other.waits;
    distinct_bytes += other.distinct_bytes, ideal_sectors += other.ideal_sectors;
    landed_bytes += other.landed_bytes, filled_bytes += other.filled_bytes,
        slow_paths += other.slow_paths;
    products += other.products;
    scale_bytes += other.scale_bytes;
    return *this;
  }
};

// ---- findings and faults ----

enum class Problem : u8 {
  out_of_bounds,
  misaligned,
  read_only,
  shared_out_of_bounds,
  local_out_of_bounds,
  shared_race,
  uninitialised_shared,
  divergent_barrier,
  warp_race,
  absent_lane,
  pending_copy,
  trap,
  deadlock,
  timeout,
  parameter_out_of_bounds,
  assertion,
  stack_overflow,
  global_race,
  uninitialised_global,
  mbarrier_misuse,
  absent_self,
  mismatched_mask,
  barrier_misuse,
  proxy_fence,
  bulk_misuse,
  pending_read,
  remote_misuse,
  undefined_lane,
  unawaited_arrivals,
  scattered_barrier,
  unawaited_copy,
  unknown_mbarrier,
  refill_fence,
  unknown_map,
  map_in_use,
  store_unawaited,
  warp_synchronous,
  acquire_fence,
  ended_threads,
  dependency_wait,
  heap_misuse,
  tensor_misuse,
  tensor_race,
  unwritten_tensor,
  invalid_metadata,
  pending_source,
  outside_extent,
  between_elements,
  wrapped_index,
  order_of_additions,
  endless_wait,
  later_block,
  without_rule
};

struct Finding {
  Problem problem;
  s32 pc = -1;
  s32 other_pc = -1;
  s64 block = 0;
  s32 thread = 0;
  s32 other_thread = -1;
  u64 address = 0;
  u32 bytes = 0;
  u64 count = 1;
  u64 least = 0, most = 0;  // of outside_extent: the lowest and the highest address outside
  s64 other_block = -1;
  // Of a race of a write with a read: the lanes have exchanged values in between
  // (Clocks::exchange).
  bool exchanged = false;
  std::string text =
      {};  // the message of an assertion, or the fault of a barrier, an mbarrier or a mask
};

// Thrown inside a worker to end the launch.
struct Stop {
  Finding finding;
};

// Findings of one worker, one per (problem, pc, other pc, within a block or not, exchanged or not),
// keeping the lowest block and thread.
class FindingList {
 public:
  void add(const Finding& finding);
  void merge(const FindingList& other);
  const std::vector<Finding>& items() const { return items_; }

 private:
  std::vector<Finding> items_;
};

// ---- kernels and launches ----

// Effect of an instruction on memory that other threads may access. `other`: unknown, or a result
// that changes from one execution to the next (the clock).
enum class Effect : u8 { nothing, reads, stores, other };
struct MemoryEffect {
  enum Window : u8 { global, shared, generic };
  Effect effect = Effect::other;
  Window window = global;
  bool reads = false;     // with `stores`: an atomic operation
  bool compares = false;  // whether it is a setp
  bool fences = false;    // whether it is a fence of the generic proxy
  u32 bytes = 0;          // bytes that each lane accesses
};

// A register that the launch fills with a value of the thread or block.
enum class Special : u8 {
  tid_x,
  tid_y,
  tid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  gridid,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  dynamic_smem_size,
  total_smem_size,
  envreg1,
  envreg2,
  clusterid_x,
  clusterid_y,
  clusterid_z,
  nclusterid_x,
  nclusterid_y,
  nclusterid_z,
  cluster_ctaid_x,
  cluster_ctaid_y,
  cluster_ctaid_z,
  cluster_nctaid_x,
  cluster_nctaid_y,
  cluster_nctaid_z,
  cluster_ctarank,
  cluster_nctarank,
  is_explicit_cluster,
  reserved_begin,
  reserved_end,
  reserved_cap,
  reserved_0,
  reserved_1,
  kCount
};
extern const char* const kSpecialNames[];

struct Constant {
  u32 slot;
  u32 width;  // bytes per lane; 0 for a predicate
  u64 value;
};

struct Kernel {
  std::vector<Instruction> code;
  // By instruction, whether it involves other threads of the block: shared memory, barriers,
  // collectives.
  std::vector<bool> needs_others;
  std::vector<MemoryEffect> effects;  // by instruction
  std::vector<u8> image;              // register file with the constants filled in
  std::vector<std::pair<Special, u32>> specials;
  u32 static_shared = 0;  // bytes; dynamic shared memory begins here
  u32 shared_end = 0;     // bytes of shared memory that variables take
  u32 local_bytes = 0;    // per lane
  u32 param_bytes = 0;
  u32 frame_slot = kNoSlot;  // register that holds where the running function's local memory begins
  std::vector<std::vector<SavedRegister>> saves;  // lists of registers, see Instruction::saved
  std::vector<std::vector<u32>>
      fragments;  // slots of results that do not fit into an instruction, indexed by its `target`
  bool reads_maps = false;             // copies read tensor maps, or instructions make them
  bool lets_dependents_start = false;  // it contains griddepcontrol.launch_dependents
  // Some instructions access shared memory through the async proxy.
  bool uses_async_proxy = false;
  bool has_bulk_copies = false;   // some of these are copies, not products of matrices
  bool has_async_copies = false;  // it contains cp.async
  // By instruction, in a kernel with copies: the handlers of those that write global memory
  // (unread_copies.hpp).
  std::vector<Handlers> writers;
  bool uses_tensor_memory = false;
  bool trusts = false;           // observed launches have instructions that a proof covers
  bool reserves_shared = false;  // it uses the shared memory that is reserved for the system
  std::vector<WrapStep> wraps;   // with checks, by instruction; empty where no index can wrap
  u32 shared_granule = 4;  // size and alignment of the smallest shared access (see shadow.hpp)
};

struct Launch {
  const Kernel* kernel = nullptr;
  u32 grid[3] = {1, 1, 1};
  u32 block[3] = {1, 1, 1};
  u32 cluster[3] = {1, 1, 1};  // in blocks
  u32 shared_bytes = 0;        // static and dynamic
  u32 dynamic_shared = 0;
  // Offset of the reserved part, which belongs to no variable and has kReservedShared bytes; 0 if
  // unused.
  u32 reserved_shared = 0;
  std::vector<u8> params;
  std::vector<Buffer> buffers;  // sorted by address
  bool statistics = false;
  bool checks = false;
  // With checks: a proof covers every access, so that there is no shadow state.
  bool proved = false;
  // By instruction, then by warp: the lanes whose loaded value reaches nothing, which checks
  // ignore. Empty where there are none.
  std::vector<std::vector<u32>> unused;
  // With checks, by instruction: the ranges that its access to shared memory (by offset) and to
  // global memory may touch. Empty where there are none.
  std::vector<Extent> shared_extents, global_extents;
  std::vector<SharedBounds> shared_bounds;  // the bounds of shared_extents
  // With checks, by instruction: whether it is a copy whose source the launch does not write. Empty
  // where there are none.
  std::vector<bool> unwritten_sources;
  bool has_aliases = false;            // of a kernel with copies: some memory has several addresses
  bool last_warp_first = false;        // the order in which the warps of a block take turns
  u32 undefined = ~0u;                 // value of a shuffle whose source lane takes no part
  class Schedule* schedule = nullptr;  // null: the usual order
  class Debugger* debugger = nullptr;
  bool copies_early = false;  // copies land when they are issued, not when a thread waits for them
  // Uses shortcuts where they do not change the result (lane_offsets.hpp, quiet_log.cpp).
  bool takes_shortcuts = true;
  // With checks: adds checks that even programs which run well on GPUs can fail.
  bool strict = false;
  class GlobalShadow* global_shadow = nullptr;  // with checks
  class FloatSums* float_sums = nullptr;        // with checks
  // With checks: footprint of the launch that this one may run beside.
  const struct Footprint* overlapped = nullptr;
  // Number of the kernel, stored with each block that it takes from the heap.
  u64 number_in_heap = 0;
  // Heap of malloc in kernels; null where no kernel has used it so far.
  class DeviceHeap* heap = nullptr;
  class MapWatch* maps = nullptr;      // with checks, of a kernel that reads tensor maps
  class Recorder* recorder = nullptr;  // records one block
  int threads = 1;
  std::vector<s64> sample;   // the blocks to run, ascending; empty: all
  std::vector<u64> sampled;  // number of warp instructions of each of them
  u64 workspace =
      0;  // of a cooperative launch, whose blocks take turns: the address of their barrier
  u32 multiprocessors = 1;    // %nsmid; blocks take turns on them
  u64 clock_start = 0;        // what %clock and %globaltimer begin at
  u64 instruction_limit = 0;  // limit of warp instructions of the whole launch; 0 is none
  double idle_limit = 0;      // limit of CPU seconds of a worker without progress; 0 is none
  // Ranges of memory that the host may change during the launch.
  std::vector<std::pair<u64, u64>> of_host;
  class Waits* waits = nullptr;  // see waits.hpp

  std::atomic<s64> next_block{0};
  std::atomic<s64> lowest_fault{
      INT64_MAX};                 // lowest block that faulted: blocks above it need not run
  std::atomic<bool> stop{false};  // the caller ends the launch (time limit or interrupt)
  std::atomic<u64> instructions_so_far{0};
  std::atomic<u64> moves{0};      // grows while threads end and barriers complete
  std::atomic<bool> idle{false};  // idle_limit ended the launch

  s64 blocks() const { return s64{grid[0]} * grid[1] * grid[2]; }
  u32 blocks_per_cluster() const { return cluster[0] * cluster[1] * cluster[2]; }
  s64 blocks_run() const { return sample.empty() ? blocks() : static_cast<s64>(sample.size()); }
  u32 threads_per_block() const { return block[0] * block[1] * block[2]; }
};

// The results of one worker, which is one OS thread.
struct WorkerResult {
  u64 instructions = 0;
  u64 lanes = 0;
  // By instruction, with statistics; executions and lanes are in `tallies`.
  std::vector<Counts> counts;
  // By instruction; apart from `counts`, as every execution adds to them.
  std::vector<Tally> tallies;
  std::unique_ptr<Traffic> traffic;  // with statistics
  FindingList findings;
  std::vector<Printed> printed;
  bool faulted = false;
  Finding fault;
  u64 moves_seen = 0;                           // Launch::moves when it was last read
  double moved_at = -1;                         // CPU seconds when Launch::moves last changed
  bool began = false;                           // whether the worker had memory for a block
  std::exception_ptr error;                     // the exception that ended the worker: no memory
  std::shared_ptr<struct KeptFactors> factors;  // see warp_group.cpp
  std::shared_ptr<class SourceWatch> sources;   // with checks, of a kernel with copies
  // Warps with a cp.async whose source has not been read.
  std::vector<Warp*> unread_warps;
  // Blocks with a bulk load whose source has not been read.
  std::vector<struct Block*> unread_blocks;
  u64 unread_low = ~u64{0}, unread_high = 0;  // range of addresses that contains these sources
  // Of a worker in the calling thread: checks signals and the time limit.
  std::function<void()> look_out;

  void widen_unread(u64 low, u64 high) {
    unread_low = std::min(unread_low, low);
    unread_high = std::max(unread_high, high);
  }
};

// Takes a cluster that has not started from the launch, which then does not run it. Returns the
// index of its first block, or -1 if none is left or where all blocks run together or were chosen.
s64 take_cluster(Launch& launch);

// Runs blocks until none is left or the launch stops. An exception is stored in the result. It ends
// the launch, unless the worker had no memory to begin with and others can do its work.
void run_worker(Launch& launch, WorkerResult& result) noexcept;

}  // namespace workbench::ptx
