// Runs one block after the other on one worker: registers, barriers, the watchdog and faults.
#include <algorithm>
#include <cfenv>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>

#include "checks/global_shadow.hpp"
#include "checks/source_watch.hpp"
#include "checks/trusted.hpp"
#include "checks/waits.hpp"
#include "codes.hpp"
#include "debug/debugger.hpp"
#include "matrices/tensor_memory.hpp"
#include "memory/allocation.hpp"
#include "memory/bulk_copy.hpp"
#include "memory/cluster.hpp"
#include "memory/mbarrier.hpp"
#include "schedule.hpp"
#include "scheduler.hpp"

namespace workbench::ptx {
namespace {

constexpr std::size_t kAlignment = 64;

// The axis (0, 1, 2 for x, y, z) of a special register whose group of three begins with `x`.
constexpr u32 axis_of(Special special, Special x) {
  return static_cast<u32>(special) - static_cast<u32>(x);
}

constexpr bool changes_with_block(Special special) {
  return (special >= Special::ctaid_x && special <= Special::ctaid_z) ||
         (special >= Special::clusterid_x && special <= Special::cluster_ctarank);
}

constexpr u32 parts_of(const Kernel& kernel) {
  return kernel.uses_tensor_memory ? Clocks::kTensorParts : Clocks::kParts;
}

class BlockRunner {
 public:
  // `clocks`: the clocks of the block's cluster; null where the block uses its own.
  BlockRunner(Launch& launch, WorkerResult& result, Clocks* clocks = nullptr);
  // `cluster`: the cluster that the block belongs to, filled up to this block; null for a block
  // alone.
  void start(s64 index, Cluster* cluster = nullptr);
  // Gives each warp a turn. Returns false once the block is done or no longer has to run.
  bool turn();
  // Whether the block waits in plain memory for another block, as one proof found; proved(): as a
  // second proof found, begun by prove_again().
  bool waits() const { return waits_; }
  bool proved() const { return proved_; }
  void prove_again();
  WaitingBlock waiting() const;
  // Whether the block waits for memory that the host may change.
  bool waits_for_host() const;
  // Notes, once, that only a block which starts later can end the wait of this one.
  void note_later_block();
  // The finding that describes the block's wait.
  Finding wait(Problem problem) const;
  Block block;

 private:
  void begin();
  void clear();
  void finish();
  double seconds() const;
  void fill_specials(Warp& warp);
  void fill_block_specials();
  u32 block_index(u32 axis) const;
  u32 shared_special(Special special) const;
  bool release_barriers();
  void release(u32 number);
  u64 completion(const Barrier& barrier) const;
  void pass_time(u32 number, u64 completed);
  void report_release(u32 number, bool of_all);
  template <class F>
  bool reaches(s32 from, F found) const;
  void watch();
  void report_arrivals();
  std::string missing(const Warp& warp) const;
  [[noreturn]] void deadlock();
  // What the warps of a block did in one round over them.
  struct Round {
    bool all_done = true, progress = false, polling = false, faulted_before = false;
  };
  bool advance(Warp& warp, Round& round);
  void scheduled_round(Round& round);
  Place place_of(const Warp& warp) const;
  bool grow_older();
  void look_for_waits();

  Launch& launch_;
  const Kernel& kernel_;
  Memory<u8> registers_, local_, shared_;
  Clocks own_clocks_;
  Shadow shadow_;
  WrittenShared written_;
  std::vector<Warp> warps_;
  Cluster alone_;  // the cluster of a block that is alone
  struct BlockSpecial {
    Special special;
    u32 slot;
    u32 value = 0;        // the value that every warp's register holds
    bool filled = false;  // whether `value` has been set
  };
  std::vector<BlockSpecial> block_specials_;
  u64 reported_ = 0;  // instructions already added to the launch's total
  // Cost since the calling thread last checked signals and the time limit, in instructions. That
  // check reads the clock, which is too dear for both ends of a small block.
  u64 unwatched_ = 0;
  static constexpr u64 kWatchPrice = 256, kUnwatched = 4096;
  // The search for waits in plain memory: it begins after kFirstLook CPU seconds, and is repeated
  // after pauses that grow up to kLastPause.
  std::unique_ptr<Proof> proof_;
  bool waits_ = false, proved_ = false, due_ = false, noted_later_ = false;
  u64 unaged_ = 0;  // instructions since the CPU time was last read
  double next_look_ = -1, pause_ = kFirstLook;
  // Ends of warps, barriers and phases: all, and those added to the launch's total.
  u64 moves_ = 0, moves_told_ = 0;
  static constexpr double kFirstLook = 0.1, kLastPause = 10;
  static constexpr u32 kMostTurns = 32;
  std::vector<u32> order_;  // with a schedule: the warps, those that go first in front
  u64 fruitless_ = 0;       // turns in which all warps of the cluster did nothing but poll
  u64 seen_turns_ = 0;
};

BlockRunner::BlockRunner(Launch& launch, WorkerResult& result, Clocks* clocks)
    : launch_(launch), kernel_(*launch.kernel), shadow_(clocks ? *clocks : own_clocks_) {
  const u32 threads = launch.threads_per_block(), count = (threads + kLanes - 1) / kLanes;
  const std::size_t stride = (kernel_.image.size() + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t local = std::size_t{kernel_.local_bytes} * kLanes;
  registers_ = aligned_bytes(stride * count);
  if (!registers_) throw OutOfMemory("%u warps x %zu bytes of registers", count, stride);
  local_ = zeros<u8>(local * count);
  if (!local_)
    throw OutOfMemory("%u threads x %u bytes of local memory", threads, kernel_.local_bytes);
  shared_ = aligned_bytes(launch.shared_bytes + kAlignment);
  if (!shared_) throw OutOfMemory("%u bytes of shared memory", launch.shared_bytes);
  warps_.resize(count);
  block.launch = &launch, block.worker = &result, block.kernel = &kernel_,
  block.shared = shared_.get();
  block.findings = &result.findings, block.printed = &result.printed;
  block.warps = &warps_, block.cluster = &alone_, alone_.blocks = {&block};
  if (launch.statistics) {
    result.counts.resize(kernel_.code.size()), result.tallies.resize(kernel_.code.size());
    block.counts = result.counts.data(), block.tallies = result.tallies.data();
    if (!result.traffic) result.traffic = std::make_unique<Traffic>(launch.buffers);
    block.traffic = result.traffic.get();
  }
  if (kernel_.trusts) {
    written_.resize(launch.shared_bytes, kernel_.shared_granule);
    block.written = &written_;
  }
  if (launch.checks && !launch.proved) {
    try {
      const bool alone = launch.blocks_per_cluster() == 1 && !kernel_.has_bulk_copies &&
                         !kernel_.uses_tensor_memory;
      shadow_.resize(launch.shared_bytes, kernel_.shared_granule,
                     alone && launch.takes_shortcuts ? count : 0, kernel_.uses_async_proxy);
      if (!clocks) own_clocks_.resize(count, 1, parts_of(kernel_));
    } catch (const std::bad_alloc&) {
      throw OutOfMemory("the checks of %u bytes of shared memory", launch.shared_bytes);
    }
    block.shadow = &shadow_;
    if (!launch.shared_bounds.empty()) block.shared_bounds = launch.shared_bounds.data();
    if (kernel_.has_async_copies || kernel_.has_bulk_copies) {
      if (!result.sources) result.sources = std::make_shared<SourceWatch>();
      block.sources = result.sources.get();
      block.sources->begin(block);
    }
  }
  block.last_buffer.assign(kernel_.code.size(), nullptr);
  block.lane_offsets = LaneOffsetList(kernel_.code.size(), launch.takes_shortcuts);
  if (launch.statistics || block.shadow || launch.recorder)
    block.patterns.resize(2 * kernel_.code.size());
  for (u32 i = 0; i < count; ++i) {
    Warp& warp = warps_[i];
    warp.index = static_cast<int>(i), warp.block = &block;
    warp.registers = registers_.get() + stride * i;
    warp.local = local_.get() + local * i;
    const u32 left = threads - i * kLanes;
    warp.all = left >= kLanes ? kAllLanes : (1u << left) - 1;
    std::memcpy(warp.registers, kernel_.image.data(), kernel_.image.size());
    fill_specials(warp);
  }
  for (const auto& [special, slot] : kernel_.specials)
    if (changes_with_block(special)) block_specials_.push_back({special, slot});
  block.groups.resize((count + 3) / 4);
  if (kernel_.uses_tensor_memory) block.tensor = std::make_shared<TensorMemory>(launch.checks);
}

// Fills the special registers that differ between the threads of a block. shared_special() gives
// the others, which hold one value for all threads.
void BlockRunner::fill_specials(Warp& warp) {
  const u32* shape = launch_.block;
  const u32 first = static_cast<u32>(warp.index) * kLanes;
  u32 thread[3] = {first % shape[0], first / shape[0] % shape[1], first / shape[0] / shape[1]};
  u32 indices[3][kLanes];
  for (u32 lane = 0; lane < kLanes; ++lane) {
    for (int axis = 0; axis < 3; ++axis) indices[axis][lane] = thread[axis];
    if (++thread[0] < shape[0]) continue;
    thread[0] = 0;
    if (++thread[1] < shape[1]) continue;
    thread[1] = 0;
    ++thread[2];
  }
  const auto fill = [&](u32 slot, auto value) {
    u32* lanes = at<u32>(warp.registers, slot);
    PTX_LANES {
      lanes[lane] = value(static_cast<u32>(lane));
    }
  };
  for (const auto& [special, slot] : kernel_.specials) {
    switch (special) {
      case Special::tid_x:
      case Special::tid_y:
      case Special::tid_z:
        std::memcpy(at<u32>(warp.registers, slot), indices[axis_of(special, Special::tid_x)],
                    sizeof indices[0]);
        break;
      case Special::laneid: fill(slot, [](u32 lane) { return lane; }); break;
      case Special::lanemask_eq: fill(slot, [](u32 lane) { return 1u << lane; }); break;
      case Special::lanemask_le: fill(slot, [](u32 lane) { return (2u << lane) - 1; }); break;
      case Special::lanemask_lt: fill(slot, [](u32 lane) { return (1u << lane) - 1; }); break;
      case Special::lanemask_ge: fill(slot, [](u32 lane) { return ~((1u << lane) - 1); }); break;
      case Special::lanemask_gt: fill(slot, [](u32 lane) { return ~((2u << lane) - 1); }); break;
      case Special::warpid: fill(slot, [&](u32) { return static_cast<u32>(warp.index); }); break;
      default:
        if (!changes_with_block(special)) {
          const u32 value = shared_special(special);
          fill(slot, [value](u32) { return value; });
        }
    }
  }
}

// Fills the special registers whose values change from block to block on this worker.
void BlockRunner::fill_block_specials() {
  for (BlockSpecial& one : block_specials_) {
    const u32 value = shared_special(one.special);
    if (one.filled && one.value == value) continue;
    one.value = value;
    one.filled = true;
    for (Warp& warp : warps_) {
      u32* lanes = at<u32>(warp.registers, one.slot);
      PTX_LANES {
        lanes[lane] = value;
      }
    }
  }
}

u32 BlockRunner::block_index(u32 axis) const {
  const u32* grid = launch_.grid;
  const u64 index = static_cast<u64>(block.index);
  if (axis == 0) return static_cast<u32>(index < grid[0] ? index : index % grid[0]);
  if (index < grid[0]) return 0;
  const u64 row = index / grid[0];
  return static_cast<u32>(axis == 1 ? row % grid[1] : row / grid[1]);
}

// The value of a special register that all threads of the block share.
u32 BlockRunner::shared_special(Special special) const {
  const u32* shape = launch_.block;
  const u32* grid = launch_.grid;
  const u32* cluster = launch_.cluster;
  const auto axis = [&](Special x) { return axis_of(special, x); };
  switch (special) {
    case Special::ctaid_x:
    case Special::ctaid_y:
    case Special::ctaid_z: return block_index(axis(Special::ctaid_x));
    case Special::ntid_x:
    case Special::ntid_y:
    case Special::ntid_z: return shape[axis(Special::ntid_x)];
    case Special::nctaid_x:
    case Special::nctaid_y:
    case Special::nctaid_z: return grid[axis(Special::nctaid_x)];
    case Special::nwarpid: return 64;
    case Special::smid:
      return static_cast<u32>(static_cast<u64>(block.index) % launch_.multiprocessors);
    case Special::nsmid: return launch_.multiprocessors;
    case Special::dynamic_smem_size: return launch_.dynamic_shared;
    case Special::total_smem_size: return launch_.shared_bytes;
    case Special::envreg1: return static_cast<u32>(launch_.workspace >> 32);
    case Special::envreg2: return static_cast<u32>(launch_.workspace);
    case Special::clusterid_x:
    case Special::clusterid_y:
    case Special::clusterid_z:
      return block_index(axis(Special::clusterid_x)) / cluster[axis(Special::clusterid_x)];
    case Special::nclusterid_x:
    case Special::nclusterid_y:
    case Special::nclusterid_z:
      return grid[axis(Special::nclusterid_x)] / cluster[axis(Special::nclusterid_x)];
    case Special::cluster_ctaid_x:
    case Special::cluster_ctaid_y:
    case Special::cluster_ctaid_z:
      return block_index(axis(Special::cluster_ctaid_x)) % cluster[axis(Special::cluster_ctaid_x)];
    case Special::cluster_nctaid_x:
    case Special::cluster_nctaid_y:
    case Special::cluster_nctaid_z: return cluster[axis(Special::cluster_nctaid_x)];
    case Special::cluster_ctarank: return block.rank;
    case Special::cluster_nctarank: return launch_.blocks_per_cluster();
    case Special::is_explicit_cluster: return launch_.blocks_per_cluster() > 1;
    case Special::reserved_begin:
    case Special::reserved_0:
    case Special::reserved_1: return launch_.reserved_shared;
    case Special::reserved_end:
    case Special::reserved_cap: return launch_.reserved_shared + kReservedShared;
    default: return 0;
  }
}

// Gives registers, local and tensor memory the values of a first block: under a debugger no block
// sees what another one left, since it may be repeated alone.
void BlockRunner::clear() {
  for (Warp& warp : warps_) {
    std::memcpy(warp.registers, kernel_.image.data(), kernel_.image.size());
    std::memset(warp.local, 0, std::size_t{kernel_.local_bytes} * kLanes);
    fill_specials(warp);
    warp.issued = 0;
  }
  for (BlockSpecial& one : block_specials_) one.filled = false;
  constexpr std::size_t kCells = std::size_t{TensorMemory::kRows} * TensorMemory::kColumns;
  if (block.tensor) std::memset(block.tensor->column(0), 0xff, kCells * sizeof(u32));
}

void BlockRunner::begin() {
  if (launch_.debugger) clear();
  // Shared memory starts as NaNs and -1, not as zeros, so that a read before any write shows.
  std::memset(block.shared, 0xff, launch_.shared_bytes);
  if (kernel_.reserves_shared)
    std::memset(block.shared + launch_.reserved_shared, 0, kReservedShared);
  if (block.written) written_.begin_block();
  if (block.shadow) {
    if (block.cluster == &alone_) own_clocks_.begin();
    block.shadow->begin_block();
  }
  block.recorder =
      launch_.recorder && launch_.recorder->block == block.index ? launch_.recorder : nullptr;
  block.observed = launch_.statistics || launch_.checks || block.recorder;
  if (block.recorder) block.recorder->begin(warps_.size());
  block.async_arrivals.clear(), block.bulk_loads.clear(), block.dependency_waits.clear();
  for (WarpGroup& group : block.groups) {
    std::fill(std::begin(group.issued), std::end(group.issued), 0);
    group.reading.clear();
  }
  block.chunk_lists.begin_block();
  if (block.tensor) block.tensor->begin();
  for_each_bit(block.barriers_met, [&](u32 number) { block.barriers[number] = Barrier{}; });
  block.barriers_met = 0;
  block.exited = 0;
  fill_block_specials();
  for (Warp& warp : warps_) {
    warp.agent = block.rank * static_cast<u32>(warps_.size()) + static_cast<u32>(warp.index);
    warp.exited = 0, warp.tick = 0, warp.waited = 0, warp.sectors = 0;
    warp.splits.assign(1, Split{.pc = 0, .mask = warp.all});
    warp.copies.clear();
    warp.bulk_stores.clear();
    warp.products.clear();
    if (!warp.refused.empty()) warp.refused.clear();
    warp.wrapped.reset();
    // Only a kernel with a frame register can call.
    if (kernel_.frame_slot != kNoSlot) {
      warp.calls.clear();
      std::memset(at<u64>(warp.registers, kernel_.frame_slot), 0, sizeof(u64) * kLanes);
    }
    std::fill(std::begin(warp.committed), std::end(warp.committed), 0);
    std::fill(std::begin(warp.bulk_committed), std::end(warp.bulk_committed), 0);
    std::fill(std::begin(warp.cluster_phase), std::end(warp.cluster_phase), 0);
  }
}

// Whether execution can go from the instruction at `from` to one (perhaps itself) for which `found`
// holds.
template <class F>
bool BlockRunner::reaches(s32 from, F found) const {
  std::vector<bool> seen(kernel_.code.size() + 1);
  std::vector<s32> work{from};
  while (!work.empty()) {
    const s32 pc = work.back();
    work.pop_back();
    if (pc >= static_cast<s32>(kernel_.code.size()) || seen[static_cast<std::size_t>(pc)]) continue;
    if (found(pc)) return true;
    seen[static_cast<std::size_t>(pc)] = true;
    const Instruction& in = kernel_.code[static_cast<std::size_t>(pc)];
    const bool always = in.guard == kTrueSlot && !in.guard_flip;
    if (in.kind == Kind::branch) work.push_back(in.target);
    if (!((in.kind == Kind::branch || in.kind == Kind::exit) && always)) work.push_back(pc + 1);
  }
  return false;
}

// Reports a barrier that lanes of a warp reached at different places (only a barrier without
// .aligned allows it) or bypassed. Different warps may arrive at different places: PTX counts
// arrivals, while CUDA C++ requires one __syncthreads() for the whole block.
//
// Threads that return before the barrier are no fault: it waits for all threads that have not
// exited (CUDA C++ Programming Guide, from compute capability 7.0 on). Lanes bypassed the barrier
// if they had not exited and stood at a place that the code behind the barrier leads to. Compilers
// also send a thread that returns early to such a place, where its last steps are shared with the
// other threads; so lanes count as returning if no instruction left to them involves other threads
// of the block. (Accesses to global memory are checked elsewhere; that check knows that these lanes
// did not wait.)
//
// `of_all`: the barrier waits for the whole block, not for a number of threads, which may be any
// threads.
void BlockRunner::report_release(u32 number, bool of_all) {
  const auto aligned = [&](const Split& split) {
    return kernel_.code[static_cast<std::size_t>(split.pc)].barrier.unaligned == 0;
  };
  const auto apart = [&](const Split& a, const Split& b) {
    return a.pc != b.pc && (aligned(a) || aligned(b));
  };
  Finding finding{.problem = Problem::divergent_barrier, .block = block.index};
  Finding scattered{.problem = Problem::scattered_barrier, .block = block.index};
  Finding ended{.problem = Problem::ended_threads, .block = block.index};
  const Split* first = nullptr;
  s32 first_thread = 0;
  for (const Warp& warp : warps_) {
    const Split* here = nullptr;
    for (const Split& split : warp.splits) {
      if (split.state != Split::at_barrier || split.need != number) continue;
      finding.pc = split.pc, finding.thread = warp.thread(first_lane(split.mask));
      if (!here) here = &split;
      if (apart(*here, split)) {
        finding.other_pc = here->pc, finding.other_thread = warp.thread(first_lane(here->mask));
        return block.note(finding);
      }
      if (!of_all) continue;
      const u32 skipped = warp.exited & ~split.exited;
      if (skipped && split.elsewhere >= 0 &&
          reaches(split.pc + 1, [&](s32 pc) { return pc == split.elsewhere; }) &&
          reaches(split.elsewhere,
                  [&](s32 pc) { return kernel_.needs_others[static_cast<std::size_t>(pc)]; })) {
        finding.other_thread = warp.thread(first_lane(skipped));
        return block.note(finding);
      }
      if (ended.pc < 0 && warp.exited) {
        ended.pc = split.pc, ended.thread = finding.thread;
        ended.other_thread = warp.thread(first_lane(warp.exited));
      }
      if (!first) {
        first = &split;
        first_thread = finding.thread;
      } else if (scattered.pc < 0 && apart(*first, split)) {
        scattered.pc = split.pc, scattered.thread = finding.thread;
        scattered.other_pc = first->pc, scattered.other_thread = first_thread;
      }
    }
  }
  if (scattered.pc >= 0) block.note(scattered);
  if (ended.pc >= 0) block.note(ended);
}

// The clock at which the barrier completed: the latest arrival or, where all threads are expected,
// the latest exit.
u64 BlockRunner::completion(const Barrier& barrier) const {
  u64 latest = barrier.latest;
  if (barrier.expected == 0)
    for (const Warp& warp : warps_) latest = std::max(latest, warp.clock());
  return latest;
}

// Moves the clocks of the warps that wait at a barrier. A warp does not wait as long as some of its
// lanes can run.
void BlockRunner::pass_time(u32 number, u64 completed) {
  for (Warp& warp : warps_) {
    const Split* last = nullptr;
    bool runnable = false;
    for (const Split& split : warp.splits) {
      runnable |= split.state == Split::ready;
      if (split.state != Split::at_barrier || split.need != number) continue;
      if (!last || split.arrived > last->arrived) last = &split;
    }
    if (!last || runnable) continue;
    const u64 now = warp.clock();
    if (block.recorder)
      block.recorder->wait(warp.index, last->pc, static_cast<s32>(number), now, completed);
    if (completed <= now) continue;
    warp.waited += completed - now;
    if (block.counts) block.counts[last->pc].waits += completed - now;
  }
}

void BlockRunner::release(u32 number) {
  Barrier& barrier = block.barriers[number];
  if (launch_.checks) report_release(number, barrier.expected == 0);
  if (block.counts || block.recorder) pass_time(number, completion(barrier));
  if (block.shadow) {
    const bool all = std::all_of(warps_.begin(), warps_.end(), [&](const Warp& warp) {
      return warp.splits.empty() || barrier.warps >> warp.index & 1;
    });
    if (all) block.shadow->forget_log(block.rank * Clocks::kBarriers + number);
  }
  for_each_bit(barrier.warps, [&](u32 index) {
    Warp& warp = warps_[index];
    for (Split& split : warp.splits) {
      if (split.state != Split::at_barrier || split.need != number) continue;
      if (block.shadow) block.shadow->leave(warp.agent, block.rank * Clocks::kBarriers + number);
      const Instruction& in = kernel_.code[static_cast<std::size_t>(split.pc)];
      if (in.meeting == Meeting::popc) {
        alignas(64) u32 counts[kLanes];
        PTX_LANES {
          counts[lane] = barrier.votes;
        }
        write_lanes(warp.registers, in.barrier.result, split.mask, counts);
      } else if (in.meeting > Meeting::popc) {
        const bool result =
            in.meeting == Meeting::and_ ? barrier.votes == barrier.waiting : barrier.votes != 0;
        set_predicate(warp.registers, in.barrier.result, split.mask, result ? ~0u : 0u);
      }
      split.state = Split::ready, split.pc += 1;
    }
  });
  barrier = Barrier{};
  block.barriers_met &= ~(1u << number);
  if (block.recorder) block.recorder->let_go(number);
  if (block.shadow) block.shadow->clocks.clear(block.rank * Clocks::kBarriers + number);
}

bool BlockRunner::release_barriers() {
  const u32 live = launch_.threads_per_block() - block.exited;
  bool any = false;
  for_each_bit(block.barriers_met, [&](u32 number) {
    const Barrier& barrier = block.barriers[number];
    const u32 expected = barrier.expected ? barrier.expected : live;
    if (!barrier.waiting || barrier.waiting + barrier.arrivals < expected) return;
    release(number);
    any = true;
  });
  return any;
}

// Reports arrivals that are still counted at a barrier when the block ends: no thread waited for
// them.
void BlockRunner::report_arrivals() {
  for (u32 number = 0; number < 16; ++number) {
    const Barrier& barrier = block.barriers[number];
    if (!barrier.arrivals) continue;
    block.note({.problem = Problem::unawaited_arrivals,
                .pc = barrier.pc,
                .block = block.index,
                .thread = barrier.thread,
                .text = std::to_string(barrier.arrivals) + " threads arrived at barrier " +
                        std::to_string(number) + ", and nobody waited for them"});
  }
}

// Describes the mbarrier that a warp tested last, and the arrivals or bytes that it still lacks.
std::string BlockRunner::missing(const Warp& warp) const {
  const MbarrierWord word(block.shared + warp.asked);
  if (warp.asked + 8 > launch_.shared_bytes || !word.valid()) return {};
  const s64 coming = bytes_under_way(block, warp.asked);
  std::string text = "the mbarrier at offset " + std::to_string(warp.asked) + " (parity " +
                     std::to_string(word.parity()) + ") ";
  if (word.pending())
    text += "waits for " + std::to_string(word.pending()) + " of " +
            std::to_string(word.expected()) + " arrivals";
  if (word.pending() && word.bytes() != coming) text += " and ";
  if (word.bytes() != coming)
    text += "expects " + std::to_string(word.bytes()) + " bytes, of which " +
            std::to_string(coming) + " come";
  return text;
}

void BlockRunner::deadlock() {
  for (const Warp& warp : warps_) {
    if (warp.splits.empty()) continue;
    const Split& split = warp.splits.front();
    throw Stop{{.problem = Problem::deadlock,
                .pc = split.pc,
                .block = block.index,
                .thread = warp.thread(first_lane(split.mask)),
                .text = split.state == Split::polled ? missing(warp) : std::string()}};
  }
  throw Stop{{.problem = Problem::deadlock, .block = block.index}};
}

// CPU seconds of this thread; under a debugger the same in every run.
double BlockRunner::seconds() const {
  constexpr double kOfAnInstruction = 1e-7;
  if (!launch_.debugger) return thread_seconds();
  return kOfAnInstruction * static_cast<double>(block.instructions);
}

// Updates the record of the last progress from the CPU time. Returns true if nothing has progressed
// for longer than the idle limit.
bool BlockRunner::grow_older() {
  const double now = seconds();
  if (next_look_ < 0) next_look_ = now + pause_;
  due_ |= !block.proof && now >= next_look_;
  if (moves_ != moves_told_) launch_.moves.fetch_add(1, std::memory_order_relaxed);
  moves_told_ = moves_;
  WorkerResult& own = *block.worker;
  const u64 moves = launch_.moves.load(std::memory_order_relaxed);
  if (own.moved_at < 0 || moves != own.moves_seen) own.moves_seen = moves, own.moved_at = now;
  if (!(launch_.idle_limit > 0) || now - own.moved_at <= launch_.idle_limit) return false;
  launch_.idle = true;
  return true;
}

// Starts, continues or gives up the search for waits; called at the end of a turn.
void BlockRunner::look_for_waits() {
  if (!block.proof) {
    due_ = false;
    if (!proof_) proof_ = std::make_unique<Proof>(block);
    proof_->quantum = kQuantum;
    proof_->begin();
    block.proof = proof_.get();
    if (launch_.schedule)
      for (LateStores& late : launch_.schedule->late) late.show_all();
    return;
  }
  if (proof_->recurs()) {
    waits_ = proved_ = true;
    proof_->hurry();
    proof_->begin();
  } else if (proof_->changed() || proof_->turns() >= kMostTurns) {
    waits_ = proved_ = false;
    block.proof = nullptr;
    pause_ = std::min(4 * pause_, kLastPause);
    next_look_ = seconds() + pause_;
  }
}

void BlockRunner::prove_again() {
  proved_ = false;
  if (block.proof) proof_->begin();
}

WaitingBlock BlockRunner::waiting() const {
  WaitingBlock row{block.index, 0, 0};
  for (const Warp& warp : warps_)
    for (const Split& split : warp.splits)
      (split.state == Split::at_barrier ? row.at_barrier : row.reading) +=
          static_cast<u32>(count_lanes(split.mask));
  return row;
}

void BlockRunner::note_later_block() {
  if (!noted_later_) block.note(wait(Problem::later_block));
  noted_later_ = true;
}

bool BlockRunner::waits_for_host() const {
  for (const Warp& warp : warps_) {
    if (warp.splits.empty()) continue;
    const WaitingRead read = proof_->read_of(warp);
    for (const auto& [from, to] : launch_.of_host)
      if (read.pc >= 0 && read.address >= from && read.address < to) return true;
  }
  return false;
}

// `text` gives the value at the place of the wait and the comparison with it: "holds 5" and "setp
// <pc> <value>". Python turns it into a sentence.
Finding BlockRunner::wait(Problem problem) const {
  Finding finding{.problem = problem, .block = block.index};
  for (const Warp& warp : warps_) {
    if (warp.splits.empty()) continue;
    const WaitingRead read = proof_->read_of(warp);
    if (read.pc < 0 || !read.host) continue;
    const Instruction& in = kernel_.code[static_cast<std::size_t>(read.pc)];
    const bool is_atomic =
        kernel_.effects[static_cast<std::size_t>(read.pc)].effect != Effect::reads;
    const u32 bytes = is_atomic ? read.bytes : in.bytes;
    finding.pc = read.pc, finding.thread = warp.thread(read.lane);
    finding.address = read.address, finding.bytes = bytes;
    u64 holds = 0;
    std::memcpy(&holds, read.host, std::min<std::size_t>(bytes, sizeof holds));
    finding.text = "holds " + std::to_string(holds);
    const Slot loaded = is_atomic ? in.atomic.old : in.access.data[0];
    constexpr s32 kNear = 12;
    const s32 end = std::min<s32>(read.pc + kNear, static_cast<s32>(kernel_.code.size()));
    for (s32 pc = read.pc + 1; pc < end; ++pc) {
      if (!kernel_.effects[static_cast<std::size_t>(pc)].compares) continue;
      const operands::Comparison& by = kernel_.code[static_cast<std::size_t>(pc)].comparison;
      if (loaded == kNoSlot || (by.a != loaded && by.b != loaded)) continue;
      const Slot other = by.a == loaded ? by.b : by.a;
      const u64 value = bytes > 4 ? at<const u64>(warp.registers, other)[read.lane]
                                  : at<const u32>(warp.registers, other)[read.lane];
      finding.text += "; setp " + std::to_string(pc) + " " + std::to_string(value);
      break;
    }
    return finding;
  }
  for (const Warp& warp : warps_) {
    if (warp.splits.empty()) continue;
    const Split& split = warp.splits.front();
    finding.pc = split.pc, finding.thread = warp.thread(first_lane(split.mask));
    break;
  }
  return finding;
}

// Checks the launch's limits: whenever a warp yields, after every kQuantum instructions, and at the
// end of a block.
void BlockRunner::watch() {
  const u64 fresh = block.instructions - reported_;
  reported_ = block.instructions;
  if (block.worker->look_out && (unwatched_ += fresh + kWatchPrice) >= kUnwatched) {
    unwatched_ = 0;
    block.worker->look_out();
  }
  bool over = false;
  if ((unaged_ += fresh) >= kQuantum || block.proof) {
    unaged_ = 0;
    over = grow_older();
  }
  if (launch_.instruction_limit) {
    const u64 before = launch_.instructions_so_far.fetch_add(fresh, std::memory_order_relaxed);
    over |= before + fresh > launch_.instruction_limit;
  }
  if (!over && !launch_.stop.load(std::memory_order_relaxed)) return;
  if (waits_) throw Stop{wait(Problem::timeout)};
  Finding finding{.problem = Problem::timeout, .block = block.index};
  for (const Warp& warp : warps_) {
    if (warp.splits.empty()) continue;
    const Split* where = &warp.splits.front();
    for (const Split& split : warp.splits)
      if (split.state == Split::ready) where = &split;
    finding.pc = where->pc, finding.thread = warp.thread(first_lane(where->mask));
    if (where->state == Split::ready) break;
  }
  throw Stop{finding};
}

void BlockRunner::start(s64 index, Cluster* cluster) {
  block.index = index, fruitless_ = 0, block.ended = false;
  block.proof = nullptr;
  waits_ = proved_ = due_ = noted_later_ = false, next_look_ = -1, pause_ = kFirstLook;
  if (cluster) {
    block.cluster = cluster;
    block.rank = static_cast<u32>(cluster->blocks.size());
    block.first_flag = u64{block.rank + 1} << kRankShift;
    cluster->blocks.push_back(&block);
  } else {
    alone_.phase = 1;
  }
  if (launch_.debugger) launch_.debugger->starts(block);
  begin();
}

// Gives a warp its turn. Returns whether it did something other than wait.
bool BlockRunner::advance(Warp& warp, Round& round) {
  if (warp.splits.empty()) return false;
  if (warp.splits.size() == 1 && warp.splits[0].state == Split::at_barrier) {
    round.all_done = false;
    return false;
  }
  const u64 before = block.instructions;
  const Outcome outcome = run_warp(block, warp);
  const bool moved = outcome != Outcome::polled && block.instructions != before;
  round.polling |= outcome == Outcome::polled;
  round.progress |= moved;
  if (outcome == Outcome::yielded || outcome == Outcome::polled) {
    watch();
    round.faulted_before = launch_.lowest_fault.load(std::memory_order_relaxed) < block.index;
  }
  if (outcome != Outcome::finished)
    round.all_done = false;
  else
    ++moves_;
  return moved;
}

Place BlockRunner::place_of(const Warp& warp) const {
  Place place{block.index, warp.index, -1};
  for (const Split& split : warp.splits)
    if (place.pc < 0 || split.pc < place.pc) place.pc = split.pc;
  return place;
}

// Lets the first warp that can go on do so. At times it then has to wait for all others.
void BlockRunner::scheduled_round(Round& round) {
  Schedule& schedule = *launch_.schedule;
  if (order_.size() != warps_.size()) {
    order_.resize(warps_.size());
    std::iota(order_.begin(), order_.end(), 0u);
    schedule.shuffle(order_);
  }
  for (std::size_t i = 0; i < order_.size() && !round.faulted_before; ++i) {
    Warp& warp = warps_[order_[i]];
    const Place from = place_of(warp);
    const bool moved = advance(warp, round), stopped = schedule.stopped(warp);
    round.progress |= stopped;
    if (!moved && !stopped) continue;
    if (moved && !stopped) schedule.goes_on(from);
    if (stopped || (!warp.splits.empty() && (schedule.changes(place_of(warp)) || schedule.tires())))
      std::rotate(order_.begin() + static_cast<std::ptrdiff_t>(i),
                  order_.begin() + static_cast<std::ptrdiff_t>(i) + 1, order_.end());
    break;
  }
  for (const Warp& warp : warps_) round.all_done &= warp.splits.empty();
}

bool BlockRunner::turn() {
  Round round;
  const u64 phases = block.phases;
  if (__builtin_expect(launch_.schedule != nullptr, 0)) {
    scheduled_round(round);
  } else {
    for (std::size_t turn = 0; turn < warps_.size() && !round.faulted_before; ++turn)
      advance(warps_[launch_.last_warp_first ? warps_.size() - 1 - turn : turn], round);
  }
  if (round.faulted_before) return false;
  if (round.all_done) {
    finish();
    return false;
  }
  if (release_barriers() || block.phases != phases) {
    round.progress = true;
    ++moves_;
  }
  block.cluster->turns += round.progress;
  const bool others = block.cluster->turns != seen_turns_;
  seen_turns_ = block.cluster->turns;
  // Warps that meet at a barrier in every turn of a loop never yield, so check here too.
  if (block.instructions - reported_ >= kQuantum) watch();
  fruitless_ = others ? 0 : fruitless_ + 1;
  if (!round.progress && (!round.polling || fruitless_ > kFruitless)) deadlock();
  if (__builtin_expect(due_ || block.proof, 0)) look_for_waits();
  return true;
}

void BlockRunner::finish() {
  if (launch_.schedule)
    for (LateStores& late : launch_.schedule->late) late.end(block.index);
  for (Warp& warp : warps_) finish_bulk_stores(warp);
  if (block.shadow) {
    report_arrivals();
    if (block.tensor) block.tensor->report_leaks(block);
    const auto reads = [](const WarpGroup& group) { return !group.reading.empty(); };
    const bool pending = std::any_of(warps_.begin(), warps_.end(),
                                     [](const Warp& warp) { return !warp.copies.empty(); });
    if (pending || block.shadow->has_old_copies() || !block.bulk_loads.empty() ||
        std::any_of(block.groups.begin(), block.groups.end(), reads) ||
        (block.tensor && block.tensor->reads_shared()))
      block.shadow->drop_pending();
    launch_.global_shadow->end_block(block.index);
    if (block.sources) block.sources->end(block);
    for (Warp& warp : warps_) warp.copies.clear();
  }
  if (block.recorder)
    for (const Warp& warp : warps_) {
      block.recorder->finish(warp.index, warp.clock());
      block.recorder->event({.warp = warp.index,
                             .pc = -1,
                             .kind = RecordedEvent::end,
                             .at = 0,
                             .phase = 0,
                             .count = 0,
                             .bytes = 0,
                             .to = 0,
                             .tick = warp.tick});
    }
  watch();
  block.ended = true;
}

void note_fault(Launch& launch, WorkerResult& result, const Stop& stop, s64 index) {
  result.faulted = true, result.fault = stop.finding;
  s64 lowest = launch.lowest_fault.load();
  while (index < lowest && !launch.lowest_fault.compare_exchange_weak(lowest, index)) {}
}

// The number of a block or cluster, from its number in the order in which they start.
s64 place_in_order(const Launch& launch, s64 count, s64 turn) {
  return launch.schedule ? launch.schedule->start_of(turn, count) : turn;
}

// The linear index of a block, from its cluster and its rank in it; both count along x first.
s64 block_of_cluster(const Launch& launch, s64 cluster, u32 rank) {
  const u32* size = launch.cluster;
  const s64 across[2] = {launch.grid[0] / size[0], launch.grid[1] / size[1]};
  const s64 x = cluster % across[0] * size[0] + rank % size[0];
  const s64 y = cluster / across[0] % across[1] * size[1] + rank / size[0] % size[1];
  const s64 z = cluster / across[0] / across[1] * size[2] + rank / size[0] / size[1];
  return (z * launch.grid[1] + y) * launch.grid[0] + x;
}

}  // namespace

s64 take_cluster(Launch& launch) {
  if (launch.workspace || !launch.sample.empty()) return -1;
  const s64 clusters = launch.blocks() / launch.blocks_per_cluster();
  const s64 cluster = launch.next_block.fetch_add(1);
  if (cluster >= clusters) return -1;
  return block_of_cluster(launch, place_in_order(launch, clusters, cluster), 0);
}

namespace {

// Blocks that run at the same time: one, those of a cluster, or all of a cooperative launch.
struct Gang {
  std::vector<std::unique_ptr<BlockRunner>> runners;
  std::vector<BlockRunner*> left;
  Cluster together;
  std::unique_ptr<Clocks> clocks;  // of a cluster, with checks
  s64 turn = 0;                    // the gang's place in the order of the launch
  u64 before = 0;                  // instructions of the worker before the gang began
  bool behind = false;             // with a schedule: whether it waits for the others

  bool waits() const {
    return std::all_of(left.begin(), left.end(),
                       [](const BlockRunner* one) { return one->waits(); });
  }
};

// The work of one worker: one gang after the other. While a gang waits for others, further gangs
// start beside it as long as there is room, as on a GPU.
class GangWorker {
 public:
  GangWorker(Launch& launch, WorkerResult& result) : launch_(launch), result_(result) {}
  GangWorker(const GangWorker&) = delete;
  ~GangWorker() { launch_.waits->done(part_); }
  void run();

 private:
  static constexpr std::size_t kMostGangs = 4096;
  std::unique_ptr<Gang> made() const;
  bool start(Gang& gang);
  bool ended(Gang& gang);
  bool start_beside(bool told = true);
  void wait_together();
  bool is_scheduled() const { return launch_.schedule != nullptr; }
  std::size_t scheduled_gang();
  void mark_place(const Gang& gang) const;

  Launch& launch_;
  WorkerResult& result_;
  std::vector<std::unique_ptr<Gang>> gangs_;  // running gangs
  std::unique_ptr<Gang> spare_;
  Waits::Worker part_;
  bool is_last_ = false;    // no further gang starts here
  s64 index_ = 0;           // index of the block whose turn it is
  std::size_t latest_ = 0;  // with a schedule: the gang that had the latest turn
};

std::unique_ptr<Gang> GangWorker::made() const {
  auto gang = std::make_unique<Gang>();
  const u32 size = launch_.blocks_per_cluster();
  if (size > 1 && launch_.checks && !launch_.workspace) {
    gang->clocks = std::make_unique<Clocks>();
    gang->clocks->resize((launch_.threads_per_block() + kLanes - 1) / kLanes, size,
                         parts_of(*launch_.kernel));
  }
  const s64 count = launch_.workspace ? launch_.blocks() : s64{size};
  for (s64 i = 0; i < count; ++i)
    gang->runners.push_back(std::make_unique<BlockRunner>(launch_, result_, gang->clocks.get()));
  return gang;
}

// Tells a debugger that the launch can be repeated from here: no other blocks run.
void GangWorker::mark_place(const Gang& gang) const {
  if (!launch_.debugger || gangs_.size() > 1 || (!gangs_.empty() && gangs_[0].get() != &gang))
    return;
  u64 instructions = result_.instructions, lanes = result_.lanes;
  for (const auto& runner : gang.runners)
    instructions += runner->block.instructions, lanes += runner->block.lanes;
  launch_.debugger->begin(gang.turn, instructions, lanes);
}

// Starts the next blocks of the launch; false if there are none.
bool GangWorker::start(Gang& gang) {
  const u32 size = launch_.blocks_per_cluster();
  gang.behind = false;
  gang.turn = launch_.next_block.fetch_add(1);
  gang.left.clear();
  if (launch_.workspace) {
    if (gang.turn > 0) return false;
    mark_place(gang);
    for (s64 index = 0; index < launch_.blocks(); ++index) {
      index_ = index;
      gang.runners[static_cast<std::size_t>(index)]->start(index);
    }
  } else if (size > 1) {
    if (gang.turn >= launch_.blocks() / size) return false;
    const s64 cluster = place_in_order(launch_, launch_.blocks() / size, gang.turn);
    index_ = block_of_cluster(launch_, cluster, 0);
    if (index_ > launch_.lowest_fault.load()) return false;
    mark_place(gang);
    gang.together = {};
    if (gang.clocks) gang.clocks->begin();
    for (u32 rank = 0; rank < size; ++rank)
      gang.runners[rank]->start(block_of_cluster(launch_, cluster, rank), &gang.together);
  } else {
    if (gang.turn >= launch_.blocks_run()) return false;
    const s64 place = place_in_order(launch_, launch_.blocks_run(), gang.turn);
    index_ = launch_.sample.empty() ? place : launch_.sample[static_cast<std::size_t>(place)];
    if (index_ > launch_.lowest_fault.load()) return false;
    mark_place(gang);
    gang.before = gang.runners[0]->block.instructions;
    gang.runners[0]->start(index_);
  }
  for (const auto& runner : gang.runners) gang.left.push_back(runner.get());
  return true;
}

// Gives each block of a gang a turn, or as many turns as it needs if it is the only one. Returns
// true once all are done.
bool GangWorker::ended(Gang& gang) {
  if (gang.left.size() == 1) {
    BlockRunner& runner = *gang.left.front();
    index_ = runner.block.index;
    while (runner.turn())
      if (gangs_.size() > 1 || part_.waits || runner.waits()) return false;
    gang.left.clear();
  } else {
    std::erase_if(gang.left, [&](BlockRunner* runner) {
      index_ = runner->block.index;
      return !runner->turn();
    });
    if (!gang.left.empty()) return false;
  }
  if (!launch_.sample.empty())
    launch_.sampled[static_cast<std::size_t>(gang.turn)] =
        gang.runners[0]->block.instructions - gang.before;
  return true;
}

// Starts further blocks beside those that wait, as these may wait for them. Returns false if no
// block is left, or no room.
bool GangWorker::start_beside(bool told) {
  if (is_last_ || launch_.workspace || !launch_.sample.empty() || gangs_.size() >= kMostGangs)
    return false;
  try {
    if (!spare_) spare_ = made();
  } catch (const std::bad_alloc&) {
    is_last_ = true;
    return false;
  }
  if (!start(*spare_)) {
    is_last_ = true;
    return false;
  }
  for (const auto& gang : gangs_)
    for (BlockRunner* runner : gang->left)
      if (told) runner->note_later_block();
  gangs_.push_back(std::move(spare_));
  return true;
}

// Handles the case that every block of this worker waits and no other can start here.
void GangWorker::wait_together() {
  std::vector<WaitingBlock> blocks;
  bool proved = true;
  for (const auto& gang : gangs_)
    for (const BlockRunner* runner : gang->left) {
      if (runner->waits_for_host()) return;
      blocks.push_back(runner->waiting());
      proved &= runner->proved();
    }
  if (running_launches() > 1) return;
  switch (launch_.waits->waits(part_, proved, blocks)) {
    case Waits::Step::go_on: break;
    case Waits::Step::prove_again:
      for (const auto& gang : gangs_)
        for (BlockRunner* runner : gang->left) runner->prove_again();
      return;
    case Waits::Step::deadlock: {
      const BlockRunner& first = *gangs_.front()->left.front();
      index_ = first.block.index;
      Finding finding = first.wait(Problem::endless_wait);
      for (const WaitingBlock& one : launch_.waits->blocks())
        finding.text += "; block " + std::to_string(one.index) + " " + std::to_string(one.reading) +
                        " " + std::to_string(one.at_barrier);
      const s64 clusters = launch_.blocks_run() / launch_.blocks_per_cluster();
      const s64 begun =
          launch_.workspace ? clusters : std::min(launch_.next_block.load(), clusters);
      if (begun < clusters)
        finding.text +=
            "; unstarted " + std::to_string((clusters - begun) * launch_.blocks_per_cluster());
      throw Stop{finding};
    }
  }
  if (launch_.threads > 1) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

// Starts as many blocks as there is room for, and picks one: often the same as before.
std::size_t GangWorker::scheduled_gang() {
  Schedule& schedule = *launch_.schedule;
  while (gangs_.size() < Schedule::kResident && start_beside(false)) {}
  if (latest_ < gangs_.size() && schedule.holds_block()) gangs_[latest_]->behind = true;
  if (schedule.is_aimed()) {
    const auto is_behind = [](const auto& gang) { return gang->behind; };
    // Those who run ahead may wait for one that is behind, in plain memory.
    if (std::all_of(gangs_.begin(), gangs_.end(), is_behind) || !schedule.below(256))
      for (const auto& gang : gangs_) gang->behind = false;
    if (latest_ >= gangs_.size() || gangs_[latest_]->behind || !schedule.below(16)) do
        latest_ = schedule.below(gangs_.size());
      while (gangs_[latest_]->behind);
    return latest_;
  }
  if (latest_ >= gangs_.size() || !schedule.below(4)) latest_ = schedule.below(gangs_.size());
  return latest_;
}

void GangWorker::run() {
  spare_ = made();
  result_.began = true;
  const auto count = [&](const Gang& gang) {
    for (const auto& runner : gang.runners)
      result_.instructions += runner->block.instructions, result_.lanes += runner->block.lanes;
  };
  try {
    if (start(*spare_)) gangs_.push_back(std::move(spare_));
    while (!gangs_.empty()) {
      bool all_wait = true;
      for (std::size_t i = is_scheduled() ? scheduled_gang() : 0; i < gangs_.size();) {
        Gang& gang = *gangs_[i];
        if (!ended(gang)) {
          all_wait &= gang.waits();
          ++i;
        } else if (gangs_.size() > 1 || !start(gang)) {
          if (spare_) count(*spare_);
          spare_ = std::move(gangs_[i]);
          gangs_.erase(gangs_.begin() + static_cast<std::ptrdiff_t>(i));
          all_wait = false;
        } else {
          all_wait = false;
        }
        if (is_scheduled()) break;
      }
      if (is_scheduled())
        for (const auto& gang : gangs_) all_wait &= gang->waits();
      if (!all_wait)
        launch_.waits->goes_on(part_);
      else if (!start_beside())
        wait_together();
    }
  } catch (const Stop& stop) {
    if (launch_.debugger) launch_.debugger->fault(stop.finding);
    note_fault(launch_, result_, stop, index_);
  }
  if (spare_) count(*spare_);
  for (const auto& gang : gangs_) count(*gang);
}

// Sets the floating-point mode that the C library starts with, and restores the caller's: that may
// round differently or flush subnormals to zero.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  ~DefaultArithmetic() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

}  // namespace

void run_worker(Launch& launch, WorkerResult& result) noexcept {
  const DefaultArithmetic arithmetic;
  const auto work = [&] {
    try {
      GangWorker(launch, result).run();
    } catch (const Unwind&) {}
    return launch.debugger && launch.debugger->again();
  };
  try {
    while (work()) {}
  } catch (...) {
    result.error = std::current_exception();
    if (result.began) launch.stop = true;
  }
}

}  // namespace workbench::ptx
