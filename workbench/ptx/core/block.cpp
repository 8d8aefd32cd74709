// One block after the other on one worker: registers, barriers, the watchdog, faults.
#include <algorithm>
#include <cfenv>
#include <memory>

#include "allocation.hpp"
#include "bulk_copy.hpp"
#include "cluster.hpp"
#include "codes.hpp"
#include "global_shadow.hpp"
#include "mbarrier.hpp"
#include "scheduler.hpp"
#include "tensor_memory.hpp"

namespace workbench::ptx {
namespace {

constexpr std::size_t kAlignment = 64;

// Which one of the three registers for x, y and z that begin with `x`.
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
  // `clocks`: those of its cluster, if it is for one.
  BlockRunner(Launch& launch, WorkerResult& result, Clocks* clocks = nullptr);
  // `cluster`: the one that it belongs to, with the blocks up to this one; null for a block alone.
  void start(s64 index, Cluster* cluster = nullptr);
  // Gives each warp a turn. False once the block is done, or need not run any more.
  bool turn();
  Block block;

 private:
  void begin();
  void finish();
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

  Launch& launch_;
  const Kernel& kernel_;
  Memory<u8> registers_, local_, shared_;
  Clocks own_clocks_;
  Shadow shadow_;
  std::vector<Warp> warps_;
  Cluster alone_;  // of one block
  struct BlockSpecial {
    Special special;
    u32 slot;
    u32 value = 0;        // which every warp's register holds
    bool filled = false;  // there is one
  };
  std::vector<BlockSpecial> block_specials_;
  u64 reported_ = 0;  // instructions already added to the launch's total
  // Since the calling thread looked out last. That asks for the time, which costs a small block too
  // much at each end.
  u64 unwatched_ = 0;
  static constexpr u64 kWatchPrice = 256, kUnwatched = 4096;
  u64 fruitless_ = 0;  // turns in which all warps of the cluster did nothing but poll
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
  if (launch.checks) {
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
  }
  block.last_buffer.assign(kernel_.code.size(), nullptr);
  block.lane_offsets = LaneOffsetList(kernel_.code.size(), launch.takes_shortcuts);
  if (launch.statistics || launch.checks || launch.recorder)
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

// Special registers that differ between the threads of a block: the other ones hold one value for
// all of them (shared_special).
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

// Special registers that the blocks which run here one after the other do not agree in.
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
    case Special::smid: return 0;
    case Special::nsmid: return 1;
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

void BlockRunner::begin() {
  // Shared memory starts as NaNs and -1: whoever reads it before writing does not get a friendly
  // zero.
  std::memset(block.shared, 0xff, launch_.shared_bytes);
  if (kernel_.reserves_shared)
    std::memset(block.shared + launch_.reserved_shared, 0, kReservedShared);
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
    if (kernel_.frame_slot != kNoSlot) {  // only then can it call
      warp.calls.clear();
      std::memset(at<u64>(warp.registers, kernel_.frame_slot), 0, sizeof(u64) * kLanes);
    }
    std::fill(std::begin(warp.committed), std::end(warp.committed), 0);
    std::fill(std::begin(warp.bulk_committed), std::end(warp.bulk_committed), 0);
    std::fill(std::begin(warp.cluster_phase), std::end(warp.cluster_phase), 0);
  }
}

// Whether execution can come from an instruction to one (perhaps itself) that fulfils `found`.
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

// A barrier that lanes of a warp reached at different places, which only one without .aligned
// allows, or went round. (Warps may wait for each other at different places: PTX counts arrivals.
// CUDA C++ asks for one __syncthreads() for the whole block.) Threads that return before it are no
// fault: it waits for all threads that have not exited (CUDA C++ Programming Guide, from compute
// capability 7.0 on). Lanes went round it if they stood, live, where the others come after the
// barrier. Compilers bring a thread that returns early there too, where its last steps are those of
// all; so it counts as returning if nothing is left of its way that threads of a block share.
// (Global memory has checks of its own, which know that it did not wait.)
// `of_all`: the barrier waits for the block, not for a number of threads, which may be any.
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

// When the last one arrived. Where all threads are expected, those that exited instead count too.
u64 BlockRunner::completion(const Barrier& barrier) const {
  u64 latest = barrier.latest;
  if (barrier.expected == 0)
    for (const Warp& warp : warps_) latest = std::max(latest, warp.clock());
  return latest;
}

// Moves the clocks of the warps that wait at a barrier. A warp of which other lanes can run does
// not wait.
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

// Arrivals that a barrier still counts at the end: whoever was to wait for them did not come.
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

// What the mbarrier that a warp asked last still waits for.
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

// The launch's limits, checked whenever a warp yields, after every kQuantum instructions, and at
// the end of a block.
void BlockRunner::watch() {
  const u64 fresh = block.instructions - reported_;
  reported_ = block.instructions;
  if (block.worker->look_out && (unwatched_ += fresh + kWatchPrice) >= kUnwatched) {
    unwatched_ = 0;
    block.worker->look_out();
  }
  bool over = false;
  if (launch_.instruction_limit) {
    const u64 before = launch_.instructions_so_far.fetch_add(fresh, std::memory_order_relaxed);
    over = before + fresh > launch_.instruction_limit;
  }
  if (!over && !launch_.stop.load(std::memory_order_relaxed)) return;
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
  if (cluster) {
    block.cluster = cluster;
    block.rank = static_cast<u32>(cluster->blocks.size());
    block.first_flag = u64{block.rank + 1} << kRankShift;
    cluster->blocks.push_back(&block);
  } else {
    alone_.phase = 1;
  }
  begin();
}

bool BlockRunner::turn() {
  bool all_done = true, progress = false, polling = false;
  const u64 phases = block.phases;
  for (std::size_t turn = 0; turn < warps_.size(); ++turn) {
    Warp& warp = warps_[launch_.last_warp_first ? warps_.size() - 1 - turn : turn];
    if (warp.splits.empty()) continue;
    if (warp.splits.size() == 1 && warp.splits[0].state == Split::at_barrier) {
      all_done = false;
      continue;
    }
    const u64 before = block.instructions;
    const Outcome outcome = run_warp(block, warp);
    if (outcome == Outcome::polled)
      polling = true;
    else
      progress |= block.instructions != before;
    if (outcome == Outcome::yielded || outcome == Outcome::polled) {
      watch();
      if (launch_.lowest_fault.load(std::memory_order_relaxed) < block.index) return false;
    }
    if (outcome != Outcome::finished) all_done = false;
  }
  if (all_done) {
    finish();
    return false;
  }
  progress |= release_barriers() || block.phases != phases;
  block.cluster->turns += progress;
  const bool others = block.cluster->turns != seen_turns_;
  seen_turns_ = block.cluster->turns;
  // Warps that meet at a barrier in every turn of a loop never yield.
  if (block.instructions - reported_ >= kQuantum) watch();
  fruitless_ = others ? 0 : fruitless_ + 1;
  if (!progress && (!polling || fruitless_ > kFruitless)) deadlock();
  return true;
}

void BlockRunner::finish() {
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

// Gives the blocks of `left` turns until all are done. `index`: the one whose turn it is.
void take_turns(std::vector<BlockRunner*> left, s64& index) {
  while (!left.empty()) {
    std::erase_if(left, [&](BlockRunner* runner) {
      index = runner->block.index;
      return !runner->turn();
    });
  }
}

// The index of a block of a cluster, both counted along x first.
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
  return cluster < clusters ? block_of_cluster(launch, cluster, 0) : -1;
}

namespace {

// One cluster after the other, the blocks of each in turns.
void run_clusters(Launch& launch, WorkerResult& result) {
  std::vector<std::unique_ptr<BlockRunner>> runners;
  Clocks clocks;
  if (launch.checks)
    clocks.resize((launch.threads_per_block() + kLanes - 1) / kLanes, launch.blocks_per_cluster(),
                  parts_of(*launch.kernel));
  for (u32 rank = 0; rank < launch.blocks_per_cluster(); ++rank)
    runners.push_back(std::make_unique<BlockRunner>(launch, result, &clocks));
  result.began = true;
  for (;;) {
    const s64 cluster = launch.next_block.fetch_add(1);
    if (cluster >= launch.blocks() / launch.blocks_per_cluster()) break;
    Cluster together;
    std::vector<BlockRunner*> left;
    s64 index = block_of_cluster(launch, cluster, 0);
    if (index > launch.lowest_fault.load()) break;
    try {
      clocks.begin();
      for (u32 rank = 0; rank < runners.size(); ++rank) {
        runners[rank]->start(block_of_cluster(launch, cluster, rank), &together);
        left.push_back(runners[rank].get());
      }
      take_turns(left, index);
    } catch (const Stop& stop) {
      note_fault(launch, result, stop, index);
      break;
    }
  }
  for (const auto& runner : runners)
    result.instructions += runner->block.instructions, result.lanes += runner->block.lanes;
}

// All blocks of a cooperative launch, which may wait for each other.
void run_together(Launch& launch, WorkerResult& result) {
  std::vector<std::unique_ptr<BlockRunner>> running;
  for (s64 index = 0; index < launch.blocks(); ++index) {
    running.push_back(std::make_unique<BlockRunner>(launch, result));
    running.back()->start(index);
  }
  result.began = true;
  std::vector<BlockRunner*> left;
  for (const auto& runner : running) left.push_back(runner.get());
  s64 index = 0;
  try {
    take_turns(left, index);
  } catch (const Stop& stop) {
    note_fault(launch, result, stop, index);
  }
  for (const auto& runner : running)
    result.instructions += runner->block.instructions, result.lanes += runner->block.lanes;
}

// The arithmetic that the C library starts with, whatever the calling thread has set: it may round
// otherwise, or take subnormals for zero.
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

void run_one_by_one(Launch& launch, WorkerResult& result) {
  BlockRunner runner(launch, result);
  result.began = true;
  for (;;) {
    const s64 turn = launch.next_block.fetch_add(1);
    if (turn >= launch.blocks_run()) break;
    const s64 index = launch.sample.empty() ? turn : launch.sample[static_cast<std::size_t>(turn)];
    if (index > launch.lowest_fault.load()) break;
    const u64 before = runner.block.instructions;
    try {
      runner.start(index);
      while (runner.turn()) {}
      if (!launch.sample.empty())
        launch.sampled[static_cast<std::size_t>(turn)] = runner.block.instructions - before;
    } catch (const Stop& stop) {
      note_fault(launch, result, stop, index);
      break;
    }
  }
  result.instructions = runner.block.instructions;
  result.lanes = runner.block.lanes;
}

}  // namespace

void run_worker(Launch& launch, WorkerResult& result) noexcept {
  const DefaultArithmetic arithmetic;
  try {
    if (launch.workspace)
      run_together(launch, result);
    else if (launch.blocks_per_cluster() > 1)
      run_clusters(launch, result);
    else
      run_one_by_one(launch, result);
  } catch (...) {
    result.error = std::current_exception();
    if (result.began) launch.stop = true;
  }
}

}  // namespace workbench::ptx
