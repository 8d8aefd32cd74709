// Execution state of a warp and of the block it belongs to; seen by handlers and by the scheduler.
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
  };  // polled: ready, after those that are no worse off
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

// A bulk copy that has been issued. Its pieces lie within one row of a box each.
struct BulkPiece {
  u8* host;     // in global memory; null for what lies outside the tensor
  u64 address;  // likewise
  u32 offset;   // in shared memory
  u32 bytes;
};

struct BulkCopy {
  static constexpr u32 kOpen = 0xffffffffu;  // not committed to a group yet
  s32 pc;
  Warp* warp;
  u32 lane;
  u32 barrier = 0;                  // of a load: where its mbarrier lies
  Block* to = nullptr;              // likewise: where it lands, if not beside its mbarrier
  Block* from = nullptr;            // of a copy between blocks: whose shared memory it reads
  u32 bytes = 0;                    // with those that are filled in: what the mbarrier counts
  u64 fill = 0;                     // the element that is filled in
  u32 element = 1;                  // bytes of an element
  MapType type = MapType::u8_;      // of the elements that a store reduces
  u32 group = kOpen;                // of a store
  u8 swizzle = Shadow::kNoSwizzle;  // of a tensor copy, as its map numbers it
  bool unread = false;              // of a load: its source is to be read, and is as it was
  bool performed = false;           // of a store: it has read its source and written
  bool released = false;            // likewise: somebody has waited until its source was read
  u64 map = 0;                      // likewise: the address of its tensor map, with checks of those
  u32 clock = 0;                    // likewise: its warp's, with checks
  std::vector<BulkPiece> pieces = {};
  std::vector<u8> values = {};  // what it has read, piece after piece
  std::vector<u32> seen = {};   // with checks: the warp's clocks at the time of a load
};

// The four warps that multiply matrices together. A product of theirs is over for all of them at
// once.
struct WarpGroup {
  u64 issued[4] = {};  // products of each warp
  struct Reading {
    u64 product;  // its number; what it reads in shared memory may not change before somebody has
                  // waited for it
    const Chunks* chunks;
    u32 base;  // their offsets count from here
  };
  std::vector<Reading> reading;  // with checks
};

struct Warp {
  u8* registers = nullptr;
  u8* local = nullptr;
  Block* block = nullptr;
  int index = 0;
  u32 agent = 0;  // its number among the warps whose clocks are kept together: of the block, or of
                  // the cluster
  u32 all = 0;    // lanes that exist
  u32 exited = 0;
  u64 tick = 0;     // instructions issued
  u64 now = 0;      // likewise, with the one that runs; not of a plain one
  u32 sectors = 0;  // of global memory read so far, with statistics
  u64 waited = 0;   // at barriers, by the logical clock of recorder.hpp
  std::vector<Split> splits;
  PendingCopies copies;
  Calls calls;
  u64 issued = 0;              // cp.async instructions so far
  bool unread = false;         // there is one whose source is to be read (unread_copies.hpp)
  u32 committed[kLanes] = {};  // cp.async groups that each lane has committed
  std::unique_ptr<WrappedIndexes> wrapped;  // with checks; null where none is
  std::vector<BulkCopy> bulk_stores;
  u32 bulk_committed[kLanes] = {};  // bulk groups that each lane has committed
  std::vector<u64>
      products;  // committed groups of warp-group products: how many products each ends with
  std::unordered_set<u64> refused;  // phases of mbarriers that a try_wait was not told of at once
  u32 asked = 0;                    // offset of the mbarrier that it found unfinished last
  u64 cluster_phase[kLanes] =
      {};  // of barrier.cluster, in which each lane arrived last; 0 before the first

  bool done() const { return exited == all; }
  u64 clock() const { return tick + waited; }
  s32 thread(u32 lane) const { return index * kLanes + static_cast<s32>(lane); }
};

struct Barrier {
  u32 waiting = 0;   // threads that wait
  u32 arrivals = 0;  // threads that arrived without waiting (bar.arrive)
  u32 expected = 0;  // threads; 0 means every thread that has not exited
  u32 votes = 0;     // threads whose predicate is true (bar.red)
  u32 warps = 0;     // those, by index, of which lanes wait
  u64 latest = 0;    // clock of the latest arrival
  u32 threads = 0;   // with checks: those that the first arrival expects, in whole warps
  s32 pc = -1;       // with checks: the first arrival
  s32 thread = 0;
};

// Lanes that asked an mbarrier to count them in as soon as their copies have landed
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
  Counts* counts = nullptr;                     // null without statistics
  Tally* tallies = nullptr;                     // likewise
  Traffic* traffic = nullptr;                   // likewise
  Shadow* shadow = nullptr;                     // null without checks
  SourceWatch* sources = nullptr;               // with checks, of a kernel with copies
  const SharedBounds* shared_bounds = nullptr;  // with checks, by instruction, where there are any
  FindingList* findings = nullptr;
  std::vector<Printed>* printed = nullptr;
  Recorder* recorder = nullptr;            // of this block, if it is the one to record
  bool observed = false;                   // statistics, checks or recorder
  std::vector<const Buffer*> last_buffer;  // per instruction: the buffer it touched last
  Patterns patterns;  // likewise, for global and for shared memory, how it asked
  LaneOffsetList lane_offsets{0, false};
  // The request that an instruction makes, if it is known how its lanes lie.
  const u64* located = nullptr;  // its addresses
  u64 located_by = 0;            // LaneOffsets::number
  u64 instructions = 0;          // warp instructions executed so far by this worker
  u64 lanes = 0;
  bool polled = false;  // the last poll found nothing
  u64 phases = 0;       // of mbarriers that were completed
  Barrier barriers[16];
  u32 barriers_met = 0;  // by number, those that threads have come to since the last release
  u32 exited = 0;        // threads
  std::vector<AsyncArrival> async_arrivals;
  std::vector<BulkCopy> bulk_loads;
  bool unread = false;                         // there is one whose source is to be read
  std::vector<WarpGroup> groups;               // by four warps
  ChunkLists chunk_lists;                      // that they read, with checks
  std::shared_ptr<class TensorMemory> tensor;  // of a kernel that uses it
  std::vector<std::pair<u32, u32>>
      dependency_waits;  // griddepcontrol.wait: by which agent, at which clock
  std::vector<Warp>* warps = nullptr;
  struct Cluster* cluster = nullptr;
  u32 rank = 0;        // in the cluster
  u64 first_flag = 0;  // what offsets in its shared memory count from, as flags (Clocks::release)
  bool ended = false;
  class Proof* proof = nullptr;  // that watches whether it waits for others in plain memory

  // The number of a flag, or an mbarrier, at an offset of shared memory that may name another block
  // of the cluster.
  u64 flag(u64 offset) const { return offset >> 24 ? offset : first_flag + offset; }

  s32 pc_of(const Instruction& instruction) const {
    return static_cast<s32>(&instruction - kernel->code.data());
  }

  // How these lanes ask, as that instruction asked before if possible.
  Pattern& pattern(const Instruction& instruction, bool shared, const u64* addresses, u32 mask,
                   u32 bytes);

  // The buffer that holds [address, address + bytes), or null.
  const Buffer* find(u64 address, u64 bytes) const;
  // Where that is in this process, or null.
  u8* host_of(u64 address, u64 bytes) const {
    const Buffer* buffer = find(address, bytes);
    return buffer ? buffer->host + (address - buffer->address) : nullptr;
  }

  // A problem after which execution can go on: a finding with checks, else the end of the launch.
  // `text`: in words.
  void problem(Problem problem, const Instruction& instruction, s32 thread, u64 address, u32 bytes,
               std::string text = {});
  // Text of a device printf, kept in the order of the block's threads.
  void print(const std::string& text);
  // A finding that only checks report.
  void note(const Finding& finding);
};

// Lanes of a register in memory order.
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
