// Execution state of a warp and of its block, used by handlers and by the scheduler.
#pragma once
#include <memory>
#include <unordered_set>

#include "checks/lane_offsets.hpp"
#include "checks/pattern.hpp"
#include "checks/recorder.hpp"
#include "checks/shadow.hpp"
#include "machine.hpp"
#include "memory/pending_copies.hpp"
#include "memory/tensor_map.hpp"

namespace workbench::ptx {

// Lanes of a warp that stand at the same instruction.
struct Split {
  enum State : u8 {
    ready,
    polled,
    at_barrier,
    at_collective
  };  // polled: ready, but runs after ready groups
  s32 pc;
  u32 mask;
  State state = ready;
  u32 need = 0;        // collective: lanes it waits for; barrier: barrier number
  u32 exited = 0;      // barrier: lanes of the warp that had exited on arrival, or were about to
  s32 elsewhere = -1;  // barrier: where other lanes of the warp stood on arrival
  u64 last_run = 0;    // scheduler tick, for fairness between spinning lanes
  u64 arrived = 0;     // barrier: the warp's clock on arrival
};

struct Block;
struct Warp;

// One piece of a bulk copy that has been issued; it lies within one row of a box.
struct BulkPiece {
  u8* host;     // in global memory; null for a piece outside the tensor
  u64 address;  // in global memory
  u32 offset;   // offset in shared memory
  u32 bytes;
};

struct BulkCopy {
  static constexpr u32 kOpen = 0xffffffffu;  // not committed to a group yet
  s32 pc;
  Warp* warp;
  u32 lane;
  u32 barrier = 0;  // of a load: offset of its mbarrier
  // Of a load: the block in which it lands, if the mbarrier is in another one.
  Block* to = nullptr;
  Block* from = nullptr;            // of a copy between blocks: whose shared memory it reads
  u32 bytes = 0;                    // bytes that the mbarrier counts, with the filled ones
  u64 fill = 0;                     // element that fills places outside the tensor
  u32 element = 1;                  // bytes of an element
  MapType type = MapType::u8_;      // of the elements that a store reduces
  u32 group = kOpen;                // group of a store
  u8 swizzle = Shadow::kNoSwizzle;  // of a tensor copy, as numbered in its map
  // Of a load: its source has not been read yet, and has not changed.
  bool unread = false;
  bool performed = false;  // of a store: it has read its source and written
  bool released = false;   // of a store: a thread has waited until its source was read
  // Of a store: the address of its tensor map, with checks of maps.
  u64 map = 0;
  u32 clock = 0;  // of a store: its warp's clock, with checks
  std::vector<BulkPiece> pieces = {};
  std::vector<u8> values = {};  // the bytes read, piece after piece
  std::vector<u32> seen = {};   // with checks: the warp's clocks when a load was issued
};

// The four warps that multiply matrices together (wgmma). A product is over for all four at once.
struct WarpGroup {
  u64 issued[4] = {};  // number of products of each warp
  struct Reading {
    // Number of the product; its operands in shared memory must not change before a thread has
    // waited for it.
    u64 product;
    const Chunks* chunks;
    u32 base;  // start of the chunks' offsets
  };
  std::vector<Reading> reading;  // products whose operands are being read, with checks
};

struct Warp {
  u8* registers = nullptr;
  u8* local = nullptr;
  Block* block = nullptr;
  int index = 0;
  // Number among the warps whose clocks are kept together: those of the block or of the cluster.
  u32 agent = 0;
  u32 all = 0;  // lanes that exist
  u32 exited = 0;
  u64 tick = 0;  // instructions issued
  // Like `tick`, including the instruction that runs; not updated by plain instructions.
  u64 now = 0;
  u32 sectors = 0;  // sectors of global memory read so far, with statistics
  u64 waited = 0;   // clocks spent at barriers, by the logical clock of recorder.hpp
  std::vector<Split> splits;
  PendingCopies copies;
  Calls calls;
  u64 issued = 0;  // number of cp.async instructions so far
  // The source of some cp.async has not been read yet (unread_copies.hpp).
  bool unread = false;
  u32 committed[kLanes] = {};               // cp.async groups that each lane has committed
  std::unique_ptr<WrappedIndexes> wrapped;  // with checks; null where no index can wrap
  std::vector<BulkCopy> bulk_stores;
  u32 bulk_committed[kLanes] = {};  // bulk groups that each lane has committed
  std::vector<u64>
      products;  // committed groups of warp-group products: the number of the last product of each
  // With checks: mbarrier phases for which a try_wait has given up early, on purpose, once.
  std::unordered_set<u64> refused;
  u32 asked = 0;  // offset of the mbarrier that was last found incomplete
  u64 cluster_phase[kLanes] =
      {};  // the phase of barrier.cluster at which each lane arrived last; 0 before the first

  bool done() const { return exited == all; }
  u64 clock() const { return tick + waited; }
  s32 thread(u32 lane) const { return index * kLanes + static_cast<s32>(lane); }
};

struct Barrier {
  u32 waiting = 0;   // threads that wait
  u32 arrivals = 0;  // threads that arrived without waiting (bar.arrive)
  u32 expected = 0;  // threads; 0 means every thread that has not exited
  u32 votes = 0;     // threads whose predicate is true (bar.red)
  u32 warps = 0;     // bit mask of the warps with lanes that wait
  u64 latest = 0;    // clock of the latest arrival
  u32 threads = 0;   // with checks: threads that the first arrival expects, in whole warps
  s32 pc = -1;       // with checks: pc of the first arrival
  s32 thread = 0;
};

// Lanes whose arrival an mbarrier counts as soon as their copies have landed
// (cp.async.mbarrier.arrive).
struct AsyncArrival {
  u32 address;
  u32 mask;
  Warp* warp;
  u64 last_copy;               // Warp::issued at that time
  std::vector<u32> seen = {};  // with checks: the warp's clocks at that time
};

struct Block {
  Launch* launch = nullptr;
  WorkerResult* worker = nullptr;
  const Kernel* kernel = nullptr;
  s64 index = 0;
  u8* shared = nullptr;
  Counts* counts = nullptr;                // null without statistics
  Tally* tallies = nullptr;                // null without statistics
  Traffic* traffic = nullptr;              // null without statistics
  Shadow* shadow = nullptr;                // null without checks
  SourceWatch* sources = nullptr;          // with checks, of a kernel with copies
  class WrittenShared* written = nullptr;  // with accesses that a proof covers
  // With checks, by instruction; null where there are no bounds.
  const SharedBounds* shared_bounds = nullptr;
  FindingList* findings = nullptr;
  std::vector<Printed>* printed = nullptr;
  Recorder* recorder = nullptr;            // recorder of this block, if it is recorded
  bool observed = false;                   // with statistics, checks or a recorder
  std::vector<const Buffer*> last_buffer;  // by instruction: the buffer that it accessed last
  // By instruction, for global and for shared memory: the pattern of its requests.
  Patterns patterns;
  LaneOffsetList lane_offsets{0, false};
  // The current request, if the relative positions of its lanes are known.
  const u64* located = nullptr;  // its addresses
  u64 located_by = 0;            // LaneOffsets::number
  u64 instructions = 0;          // warp instructions executed so far by this worker
  u64 lanes = 0;
  bool polled = false;  // the last poll found nothing
  u64 phases = 0;       // number of completed mbarrier phases
  Barrier barriers[16];
  // Bit mask of barriers at which threads have arrived since the last release.
  u32 barriers_met = 0;
  u32 exited = 0;  // number of threads that have exited
  std::vector<AsyncArrival> async_arrivals;
  std::vector<BulkCopy> bulk_loads;
  bool unread = false;                         // the source of some bulk load has not been read yet
  std::vector<WarpGroup> groups;               // by groups of four warps
  ChunkLists chunk_lists;                      // chunks that products read, with checks
  std::shared_ptr<class TensorMemory> tensor;  // of a kernel that uses tensor memory
  std::vector<std::pair<u32, u32>>
      dependency_waits;  // griddepcontrol.wait: agents and their clocks
  std::vector<Warp>* warps = nullptr;
  struct Cluster* cluster = nullptr;
  u32 rank = 0;        // in the cluster
  u64 first_flag = 0;  // number of the flag at offset 0 of its shared memory (Clocks::release)
  bool ended = false;
  // Watches whether the block waits for others in plain memory; null if not watched.
  class Proof* proof = nullptr;

  // The number of the flag or mbarrier at an offset of shared memory; the offset may name another
  // block of the cluster.
  u64 flag(u64 offset) const { return offset >> 24 ? offset : first_flag + offset; }

  s32 pc_of(const Instruction& instruction) const {
    return static_cast<s32>(&instruction - kernel->code.data());
  }

  // The pattern of this request, reused from the instruction's last one if it fits.
  Pattern& pattern(const Instruction& instruction, bool shared, const u64* addresses, u32 mask,
                   u32 bytes);

  // The buffer that holds [address, address + bytes), or null.
  const Buffer* find(u64 address, u64 bytes) const;
  // Where the range is in this process, or null.
  u8* host_of(u64 address, u64 bytes) const {
    const Buffer* buffer = find(address, bytes);
    return buffer ? buffer->host + (address - buffer->address) : nullptr;
  }

  // Reports a problem after which execution can go on: with checks a finding, otherwise the end of
  // the launch. `text`: details in words.
  void problem(Problem problem, const Instruction& instruction, s32 thread, u64 address, u32 bytes,
               std::string text = {});
  // Adds the text of a device printf, in the order of the block's threads.
  void print(const std::string& text);
  // Adds a finding that only checks report.
  void note(const Finding& finding);
};

// The lanes of a register, in memory order.
template <class T>
inline T* at(u8* registers, u32 slot) {
  return reinterpret_cast<T*>(registers + slot);
}

template <class T>
inline void blend(T* destination, const T* source, u32 mask) {
  PTX_LANES {
    destination[lane] = (mask >> lane & 1) ? source[lane] : destination[lane];
  }
}

inline void set_predicate(u8* registers, u32 slot, u32 mask, u32 value) {
  u32* destination = at<u32>(registers, slot);
  *destination = (*destination & ~mask) | (value & mask);
}

template <class T>
inline void write_lanes(u8* registers, u32 slot, u32 mask, const T* values) {
  if (mask == kAllLanes)
    std::memcpy(at<T>(registers, slot), values, sizeof(T) * kLanes);
  else
    blend(at<T>(registers, slot), values, mask);
}

}  // namespace workbench::ptx
