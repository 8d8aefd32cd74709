// The Python module: the instruction table, kernels built from decoded code, launches with the GIL
// released.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>

#include "checks/float_sums.hpp"
#include "checks/footprint.hpp"
#include "checks/global_shadow.hpp"
#include "checks/map_watch.hpp"
#include "checks/recorder.hpp"
#include "checks/trusted.hpp"
#include "checks/unread_copies.hpp"
#include "checks/waits.hpp"
#include "codes.hpp"
#include "debug/debugger.hpp"
#include "exact/handlers.hpp"
#include "exact/lanes.hpp"
#include "machine.hpp"
#include "memory/access.hpp"
#include "memory/allocation.hpp"
#include "memory/device_heap.hpp"
#include "memory/tensor_map.hpp"
#include "numerics/watch.hpp"
#include "processor.hpp"
#include "python_debugger.hpp"
#include "python_enums.hpp"
#include "python_findings.hpp"
#include "python_numerics.hpp"
#include "python_operands.hpp"
#include "registers.hpp"
#include "scan.hpp"
#include "schedule.hpp"
#include "workers.hpp"

namespace nb = nanobind;

namespace workbench::ptx {
namespace {

// One instruction, as assemble.py packs it.
struct CodeRow {
  s32 opcode, guard, guard_flip, counted, elements, bytes, target, immediate_low, immediate_high;
  s32 address, member, flags, negated;
  s32 operands[kOperandWords];
};

// The arguments of np.dtype for a record of the core: names, formats and offsets of its fields, and
// its size.
template <class R>
class Layout {
 public:
  template <class M>
  Layout& field(const char* name, M R::* member) {
    using Number = std::remove_all_extents_t<M>;
    const std::string number =
        (std::is_signed_v<Number> ? "i" : "u") + std::to_string(sizeof(Number));
    const R record{};
    names_.append(name);
    formats_.append(std::is_array_v<M> ? "(" + std::to_string(std::extent_v<M>) + ",)" + number
                                       : number);
    offsets_.append(reinterpret_cast<const char*>(&(record.*member)) -
                    reinterpret_cast<const char*>(&record));
    return *this;
  }
  operator nb::object() const {
    nb::dict layout;
    layout["names"] = names_, layout["formats"] = formats_, layout["offsets"] = offsets_,
    layout["itemsize"] = sizeof(R);
    return layout;
  }

 private:
  nb::list names_, formats_, offsets_;
};

// The bytes of the type at the end of an atomic operation's name.
u32 atomic_bytes(const std::string& name) {
  if (name.ends_with("x2")) return 4;
  const std::size_t at = name.find_last_not_of("0123456789");
  return static_cast<u32>(std::stoul(name.substr(at + 1))) / 8;
}

// The effect of an instruction on memory. `bytes` is set for atomic operations only: other accesses
// have it in the instruction.
MemoryEffect effect_of(const TableEntry& entry) {
  const std::string& name = entry.name;
  const auto begins = [&](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](const char* word) { return name.starts_with(word); });
  };
  MemoryEffect made;
  made.compares = name.starts_with("setp.");
  made.fences = name == "fence" || name == "fence.mbarrier_init";
  made.window = name.find(".generic.") != std::string::npos  ? MemoryEffect::generic
                : name.find(".shared.") != std::string::npos ? MemoryEffect::shared
                                                             : MemoryEffect::global;
  if (begins({"ld.global.", "ld.shared.", "ld.generic."})) {
    made.effect = Effect::reads, made.reads = true;
  } else if (begins({"st.global.", "st.shared.", "st.generic."})) {
    made.effect = Effect::stores;
  } else if (begins({"atom."})) {
    made.effect = Effect::stores, made.reads = true;
    made.bytes = atomic_bytes(name);
    return made;
  } else {
    const bool computes = entry.group <= Class::special || entry.group == Class::local ||
                          entry.group == Class::constant;
    if ((computes && entry.kind == Kind::plain) || entry.kind == Kind::branch ||
        entry.kind == Kind::call || entry.kind == Kind::ret || entry.kind == Kind::wait ||
        entry.kind == Kind::poll ||
        begins({"bar.sync", "bar.red",         "bar.warp",   "elect.",     "match.",
                "redux.",   "shfl.",           "vote.",      "mma.",       "movmatrix",
                "ldmatrix", "wmma.load",       "activemask", "fence",      "getctarank.",
                "mapa.",    "griddepcontrol.", "mov.",       "selp.",      "pack.",
                "unpack.",  "ld.param",        "nop",        "param.copy", "registers."}))
      made.effect = Effect::nothing;
  }
  return made;
}

// Facts that follow from the name of an instruction, kept by name: names are long, and the
// thousands of instructions of a kernel have few different ones.
struct NameFacts {
  MemoryEffect effect;
  bool needs_others, lets_dependents_start, reads_maps, copies, uses_tensor_memory, writes_global;

  explicit NameFacts(const TableEntry& entry) : effect(effect_of(entry)) {
    const std::string& name = entry.name;
    needs_others = entry.group == Class::shared || entry.group == Class::sync ||
                   entry.kind == Kind::call || name.find(".generic.") != std::string::npos;
    lets_dependents_start = name == "griddepcontrol.launch_dependents";
    reads_maps = name.starts_with("tensormap.") || name.find(".bulk.tensor.") != std::string::npos;
    copies = name == "cp.async";
    uses_tensor_memory = name.starts_with("tcgen05.");
    writes_global = ptx::writes_global(name);
  }
};

// The caller holds the GIL. The table is never freed: a program decodes kernels for its report when
// it exits.
const NameFacts& facts_of(std::size_t opcode) {
  const auto& table = instruction_table();
  static auto& known = *new std::vector<std::unique_ptr<const NameFacts>>(table.size());
  std::unique_ptr<const NameFacts>& facts = known.at(opcode);
  if (!facts) facts = std::make_unique<const NameFacts>(table[opcode]);
  return *facts;
}

// A kernel with what it was made of, from which others are made.
struct MadeKernel : numerics::WatchedKernel {
  std::vector<u32> opcodes;  // by instruction
};

void append_code(MadeKernel& kernel, nb::bytes rows) {
  const auto& table = instruction_table();
  const std::size_t count = rows.size() / sizeof(CodeRow);
  const char* from = rows.c_str();
  kernel.code.resize(count), kernel.needs_others.resize(count);
  kernel.effects.reserve(count);
  std::vector<Handlers> writers(count, Handlers(nullptr));
  for (std::size_t i = 0; i < count; ++i) {
    CodeRow row;
    std::memcpy(&row, from + i * sizeof row, sizeof row);
    const NameFacts& facts = facts_of(static_cast<std::size_t>(row.opcode));
    const TableEntry& entry = table[static_cast<std::size_t>(row.opcode)];
    kernel.opcodes.push_back(static_cast<u32>(row.opcode));
    Instruction& in = kernel.code[i];
    in.run = entry.run.bare, in.run_observed = entry.run.observed, in.kind = entry.kind;
    kernel.needs_others[i] = facts.needs_others;
    kernel.lets_dependents_start |= facts.lets_dependents_start;
    kernel.reads_maps |= facts.reads_maps;
    in.guard = static_cast<u32>(row.guard), in.guard_flip = static_cast<u32>(row.guard_flip);
    in.counted = static_cast<u8>(row.counted), in.elements = static_cast<u8>(row.elements),
    in.bytes = static_cast<u8>(row.bytes);
    in.target = row.target;
    in.immediate = static_cast<s64>(static_cast<u64>(static_cast<u32>(row.immediate_high)) << 32 |
                                    static_cast<u32>(row.immediate_low));
    in.address = static_cast<u32>(row.address), in.member = static_cast<u32>(row.member),
    in.flags = static_cast<u32>(row.flags), in.negated = static_cast<u32>(row.negated);
    if (in.flags & kAsyncProxy) {
      kernel.uses_async_proxy = true;
      kernel.has_bulk_copies |= entry.group != Class::tensor;
    }
    kernel.has_async_copies |= facts.copies;
    kernel.uses_tensor_memory |= facts.uses_tensor_memory;
    if (facts.writes_global) writers[i] = entry.run;
    std::memcpy(in.words, row.operands, sizeof in.words);
    MemoryEffect effect = facts.effect;
    if (!effect.bytes) effect.bytes = u32{in.bytes} * in.elements;
    kernel.effects.push_back(effect);
  }
  if (kernel.has_async_copies || kernel.has_bulk_copies)
    put_reads_first(kernel, std::move(writers));
}

void fill_constant(Kernel& kernel, u32 slot, u32 width, u64 value) {
  u8* lanes = kernel.image.data() + slot;
  if (width == 0) {
    const u32 mask = value ? kAllLanes : 0;
    std::memcpy(lanes, &mask, sizeof mask);
    return;
  }
  for (u32 lane = 0; lane < kLanes; ++lane) std::memcpy(lanes + lane * width, &value, width);
}

using ConstantRow = std::tuple<u32, u32, u64>;
using SpecialRow = std::tuple<int, u32>;

void build_kernel(MadeKernel* self, nb::bytes rows, u32 register_bytes,
                  const std::vector<ConstantRow>& constants,
                  const std::vector<SpecialRow>& specials, u32 static_shared, u32 shared_end,
                  u32 local_bytes, u32 param_bytes, u32 granule, s32 frame_slot,
                  const std::vector<std::vector<std::tuple<u32, u32>>>& saves,
                  const std::vector<std::vector<u32>>& fragments) {
  new (self) MadeKernel();
  self->image.assign(register_bytes, 0);
  append_code(*self, rows);
  for (const auto& [slot, width, value] : constants) fill_constant(*self, slot, width, value);
  for (const auto& [special, slot] : specials) {
    self->specials.emplace_back(static_cast<Special>(special), slot);
    self->reserves_shared |= static_cast<Special>(special) >= Special::reserved_begin;
  }
  self->static_shared = static_shared, self->shared_end = shared_end,
  self->local_bytes = local_bytes, self->param_bytes = param_bytes;
  self->shared_granule = granule, self->frame_slot = static_cast<u32>(frame_slot);
  for (const auto& list : saves) {
    auto& kept = self->saves.emplace_back();
    for (const auto& [slot, width] : list) kept.push_back({slot, width});
  }
  self->fragments = fragments;
}

// The row of a WrapStep: its pc and its fields.
using WrapRow = std::tuple<u32, WrapWay, bool, bool, s32, std::array<s32, 3>>;

// Returns the kernel, changed so that it follows indexes that wrap.
MadeKernel following(const MadeKernel& kernel, const std::vector<WrapRow>& rows) {
  MadeKernel made = kernel;
  std::vector<WrapStep> steps(kernel.code.size());
  for (const auto& [pc, way, starts, wide, result, source] : rows)
    steps.at(pc) = {way, starts, wide, result, {source[0], source[1], source[2]}};
  follow_indexes(made, std::move(steps));
  return made;
}

// Whether an instruction adds or compares floats on its way to global memory.
bool reduces(const Instruction& in, const std::string& name) {
  if (!name.starts_with("cp.async.bulk.global") && name != "cp.async.bulk.tensor.global.shared")
    return false;
  const auto how = static_cast<Reduction>(in.bulk.reduction);
  return how == Reduction::add || how == Reduction::min || how == Reduction::max;
}

// Returns the kernel, changed so that its floats are elements of a ring (exact/ring.hpp), and the
// instructions on floats that have no rule there. These end a launch that reaches them, as
// `further` ones do, which have another reason.
std::pair<MadeKernel, std::vector<u32>> exact_kernel(const MadeKernel& kernel,
                                                     const std::vector<u32>& further) {
  exact::prepare();
  MadeKernel made = kernel;
  std::vector<u32> without;
  const auto put = [&](std::size_t i, const Handlers& handlers) {
    if (i < made.writers.size() && made.writers[i].bare) {
      made.writers[i] = handlers;  // called after unread copies have been read
    } else {
      made.code[i].run = handlers.bare;
      made.code[i].run_observed = handlers.observed;
    }
  };
  for (std::size_t i = 0; i < made.code.size(); ++i) {
    const std::string& name = instruction_table()[made.opcodes[i]].name;
    const bool floats = exact::on_floats(name);
    if (!floats && !reduces(made.code[i], name)) continue;
    const std::optional<Handlers> handlers =
        floats ? exact::handlers_for(name) : std::optional<Handlers>();
    put(i, handlers.value_or(Handlers(&exact::refuse)));
    if (!handlers) without.push_back(static_cast<u32>(i));
  }
  for (const u32 pc : further) put(pc, Handlers(&exact::refuse));
  return {std::move(made), std::move(without)};
}

// Returns the kernel, changed so that checks trust the given instructions.
MadeKernel trusting(const MadeKernel& kernel, const std::vector<std::pair<u32, Trusted>>& rows) {
  MadeKernel made = kernel;
  trust(made, rows);
  return made;
}

// The row of a Buffer: address, size, host pointer, writable, address of Buffer::written.
using BufferRow = std::tuple<u64, u64, std::uintptr_t, bool, std::uintptr_t>;

// The row of an Extent: its pc and its fields.
using ExtentRow = std::tuple<u32, u64, u64, u64, u64>;

// Throws the exception that ended a worker, unless the worker had no memory to begin with and
// others did its work.
void check_workers(const std::vector<WorkerResult>& results) {
  const bool any = std::any_of(results.begin(), results.end(),
                               [](const WorkerResult& result) { return result.began; });
  for (const WorkerResult& result : results)
    if (result.error && (result.began || !any)) std::rethrow_exception(result.error);
}

// CPU seconds of this process.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Watches signals and the time limit in the calling thread while a launch runs. The limit is in CPU
// time, so that it does not depend on the machine's load; in wall-clock time it is several times as
// long.
class Lookout {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  Lookout(Launch& launch, double seconds_limit) : launch_(launch), limit_(seconds_limit) {}

  // Seconds until the next check.
  Seconds wait() const {
    constexpr Seconds often(0.05), least(0.001);
    const Seconds left = start_ + limit_ - Clock::now();
    if (limit_ <= Seconds(0) || timed_out || left <= Seconds(0)) return often;
    return std::min(often, std::max<Seconds>(left, least));
  }
  void look() {
    const Seconds passed = Clock::now() - start_;
    if (limit_ > Seconds(0) && passed > limit_ &&
        (used() > limit_.count() || passed > patience() * limit_)) {
      timed_out = true;
      launch_.stop = true;
    }
    if (interrupted) return;
    nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() == 0) return;
    interrupted = true;
    launch_.stop = true;
  }
  // Checks signals and the limit once wait() has passed.
  void look_in_time() {
    if (Clock::now() < next_) return;
    look();
    next_ = Clock::now() + wait();
  }

  double used() const { return cpu_seconds() - cpu_start_; }

  bool timed_out = false, interrupted = false;

 private:
  // How many times the limit may pass in wall-clock time; more on a busy machine (as in
  // base/busy.py).
  static double patience() {
    constexpr double kPatience = 4;
    double load = 0;
    if (getloadavg(&load, 1) != 1) return kPatience;
    return kPatience * std::max(1.0, load / std::max(1U, std::thread::hardware_concurrency()));
  }
  Launch& launch_;
  const Seconds limit_;  // 0: none
  const Clock::time_point start_ = Clock::now();
  const double cpu_start_ = cpu_seconds();
  std::chrono::time_point<Clock, Seconds> next_ = start_ + wait();
};

struct Ended {
  bool timed_out;
  double cpu_seconds;
};

// Runs the workers and waits for them. Throws nb::python_error on Ctrl-C, and an exception that
// ended a worker.
Ended run_workers(Launch& launch, std::vector<WorkerResult>& results, double seconds_limit) {
  Lookout lookout(launch, seconds_limit);
  {
    nb::gil_scoped_release release;
    if (results.size() == 1 && Workers::may_run_here()) {
      results[0].look_out = [&] { lookout.look_in_time(); };
      run_worker(launch, results[0]);
    } else {
      Workers workers(launch, results);
      while (!workers.wait_for(lookout.wait())) lookout.look();
    }
  }
  if (lookout.interrupted) throw nb::python_error();
  check_workers(results);
  return {lookout.timed_out, lookout.used()};
}

// Joins the device printf output of all workers, in the order of blocks.
std::string printed_text(std::vector<WorkerResult>& results) {
  std::vector<Printed*> all;
  for (WorkerResult& result : results)
    for (Printed& printed : result.printed) all.push_back(&printed);
  std::stable_sort(all.begin(), all.end(),
                   [](const Printed* a, const Printed* b) { return a->block < b->block; });
  std::string text;
  for (const Printed* printed : all) text += printed->text;
  return text;
}

template <class T>
nb::bytes raw_bytes(const std::vector<T>& values) {
  return nb::bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

using Shape = std::array<u32, 3>;

// A launch as Python binds it: checked, packed, and by field. Fields that Python does not set keep
// the defaults below.
struct BoundLaunch {
  std::string name;
  Shape grid{1, 1, 1};
  Shape block{1, 1, 1};
  Shape cluster{1, 1, 1};
  u32 dynamic_shared = 0;
  nb::bytes params{"", 0};
  std::vector<BufferRow> buffers;
  std::vector<s64> sample;
  int threads = 1;
  bool statistics = false;
  bool checks = false;
  bool accesses = false;  // with checks: the bytes that the launch accessed are wanted
  bool proved = false;
  bool strict = false;
  bool last_warp_first = false;
  bool copies_early = false;
  std::optional<u64> schedule;  // its seed
  u64 schedule_changes = ~u64{0};
  std::vector<std::pair<s32, u32>> aims;  // of Aim
  std::vector<s32> late_stores;           // of LateStores
  bool takes_shortcuts = true;            // false only in tests
  u32 undefined = ~0u;
  u32 multiprocessors = 1;
  u64 clock_start = 0;
  u64 instruction_limit = 0;
  double seconds_limit = 0;
  double idle_limit = 0;
  std::vector<std::pair<u64, u64>> of_host;
  s64 recorded_block = -1;
  u64 record_limit = 0;
  u64 workspace = 0;
  std::vector<std::pair<u32, std::vector<u32>>> unused;
  std::vector<ExtentRow> shared_extents, global_extents;
  std::vector<u32> unwritten_sources;
  std::shared_ptr<Footprint> overlapped;
  std::shared_ptr<DeviceHeap> heap;
  u64 number_in_heap = 0;
  std::shared_ptr<Debugger> debugger;
  std::shared_ptr<numerics::Log> numerics;
};

// Sets the size of a block's shared memory, with the part reserved for the system if the kernel
// uses it.
void set_shared_memory(Launch& launch, const Kernel& kernel, u32 dynamic) {
  launch.dynamic_shared = dynamic;
  launch.shared_bytes = dynamic ? kernel.static_shared + dynamic : kernel.shared_end;
  if (!kernel.reserves_shared) return;
  launch.reserved_shared = (launch.shared_bytes + 15) / 16 * 16;
  launch.shared_bytes = launch.reserved_shared + kReservedShared;
}

// Whether some memory belongs to two buffers.
bool overlap(const std::vector<Buffer>& buffers) {
  std::vector<std::pair<const u8*, const u8*>> ranges;
  for (const Buffer& one : buffers) ranges.emplace_back(one.host, one.host + one.size);
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second) return true;
  return false;
}

void set_memory(Launch& launch, const BoundLaunch& bound) {
  launch.params.assign(bound.params.c_str(), bound.params.c_str() + bound.params.size());
  launch.params.resize(std::max<std::size_t>(launch.params.size(), 8));
  launch.heap = bound.heap.get();
  launch.number_in_heap = bound.number_in_heap;
  launch.overlapped = bound.overlapped.get();
  launch.workspace = bound.workspace;
  for (const auto& [address, size, host, writable, written] : bound.buffers) {
    Buffer& buffer =
        launch.buffers.emplace_back(Buffer{address, size, reinterpret_cast<u8*>(host), writable});
    buffer.written = reinterpret_cast<u32*>(written);
    if (bound.heap && bound.heap->address() == address) buffer.heap = bound.heap.get();
  }
  if (launch.kernel->has_async_copies || launch.kernel->has_bulk_copies)
    launch.has_aliases = overlap(launch.buffers);
}

// Number of threads that share the blocks: the blocks of a cooperative launch take turns on one.
int threads_for(const Launch& launch, int wanted) {
  if (launch.workspace) return 1;
  const s64 clusters = launch.blocks_run() / launch.blocks_per_cluster();
  return static_cast<int>(std::max<s64>(1, std::min<s64>(wanted, clusters)));
}

void set_extents(std::vector<Extent>& extents, const std::vector<ExtentRow>& rows,
                 const Kernel& kernel) {
  if (!rows.empty()) extents.resize(kernel.code.size());
  for (const auto& [pc, low, high, period, filled] : rows)
    extents.at(pc) = {low, high, period, filled};
}

void set_options(Launch& launch, const BoundLaunch& bound) {
  launch.statistics = bound.statistics;
  launch.checks = bound.checks;
  launch.proved = bound.proved;
  launch.strict = bound.strict;
  launch.last_warp_first = bound.last_warp_first;
  launch.copies_early = bound.copies_early;
  launch.takes_shortcuts = bound.takes_shortcuts;
  launch.undefined = bound.undefined;
  launch.multiprocessors = std::max(bound.multiprocessors, 1u);
  launch.clock_start = bound.clock_start;
  launch.instruction_limit = bound.instruction_limit;
  launch.idle_limit = bound.idle_limit;
  launch.of_host = bound.of_host;
  launch.sample = bound.sample;
  launch.sampled.resize(bound.sample.size());
  launch.threads = bound.debugger ? 1 : threads_for(launch, bound.threads);
  if (!bound.unused.empty()) launch.unused.resize(launch.kernel->code.size());
  for (const auto& [pc, by_warp] : bound.unused) launch.unused[pc] = by_warp;
  set_extents(launch.shared_extents, bound.shared_extents, *launch.kernel);
  for (const Extent& one : launch.shared_extents)
    launch.shared_bounds.push_back(
        one.high == ~u64{0}
            ? SharedBounds{}
            : SharedBounds{static_cast<u32>(one.low), static_cast<u32>(one.high - one.low)});
  set_extents(launch.global_extents, bound.global_extents, *launch.kernel);
  if (!bound.unwritten_sources.empty()) launch.unwritten_sources.resize(launch.kernel->code.size());
  for (const u32 pc : bound.unwritten_sources) launch.unwritten_sources.at(pc) = true;
}

// How each instruction of a kernel writes global memory, for a debugger.
std::vector<WritesGlobal> writes_of(const MadeKernel& kernel) {
  std::vector<WritesGlobal> all(kernel.code.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& name = instruction_table()[kernel.opcodes[i]].name;
    const MemoryEffect& effect = kernel.effects[i];
    if (effect.effect == Effect::stores && effect.window != MemoryEffect::shared)
      all[i] = WritesGlobal::plain;
    else if (facts_of(kernel.opcodes[i]).writes_global)
      all[i] = name.starts_with("tensormap.") ? WritesGlobal::map : WritesGlobal::matrix;
  }
  return all;
}

class RunningLaunch {
 public:
  RunningLaunch() { ++running_launches(); }
  RunningLaunch(const RunningLaunch&) = delete;
  ~RunningLaunch() { --running_launches(); }
};

nb::dict run_kernel(const MadeKernel& kernel, const BoundLaunch& bound) {
  Launch launch;
  launch.kernel = &kernel;
  std::ranges::copy(bound.grid, launch.grid);
  std::ranges::copy(bound.block, launch.block);
  std::ranges::copy(bound.cluster, launch.cluster);
  set_shared_memory(launch, kernel, bound.dynamic_shared);
  set_memory(launch, bound);
  set_options(launch, bound);
  std::optional<Schedule> schedule;
  if (bound.schedule) {
    std::vector<Aim> aims;
    for (const auto& [pc, between] : bound.aims) aims.push_back({pc, between});
    schedule.emplace(*bound.schedule, bound.schedule_changes, aims);
    if (!bound.late_stores.empty() && !launch.has_aliases)
      for (const auto owner : {LateStores::Owner::block, LateStores::Owner::warp})
        schedule->late.emplace_back(*bound.schedule, kernel, owner, bound.late_stores,
                                    bound.strict);
    launch.schedule = &*schedule, launch.threads = 1;
  }
  std::unique_ptr<GlobalShadow> shadow;
  std::unique_ptr<FloatSums> sums;
  if (bound.checks && !bound.proved) {
    try {
      shadow = std::make_unique<GlobalShadow>(launch);
    } catch (const std::bad_alloc&) {
      unsigned long long bytes = 0;
      for (const Buffer& buffer : launch.buffers) bytes += buffer.size;
      throw OutOfMemory("the checks of %llu bytes of global memory", bytes);
    }
    launch.global_shadow = shadow.get();
  }
  if (bound.checks) {
    sums = std::make_unique<FloatSums>(kernel);
    launch.float_sums = sums.get();
  }
  std::optional<MapWatch> maps;
  if (bound.checks && kernel.reads_maps) launch.maps = &maps.emplace();
  Recorder recorder(bound.recorded_block, bound.record_limit);
  if (bound.recorded_block >= 0) launch.recorder = &recorder;
  std::vector<WorkerResult> results(static_cast<std::size_t>(launch.threads));
  Waits waits(launch.threads);
  launch.waits = &waits;
  std::optional<RunningLaunch> running;
  if (Debugger* const debugger = bound.debugger.get()) {
    debugger->writers_of_global = writes_of(kernel);
    debugger->attach(launch, results[0], [&] {
      if (maps) launch.maps = &maps.emplace();
      if (shadow) shadow = std::make_unique<GlobalShadow>(launch);
      if (sums) sums = std::make_unique<FloatSums>(kernel);
      launch.global_shadow = shadow.get(), launch.float_sums = sums.get();
    });
    launch.debugger = debugger;
  } else {
    running.emplace();  // one that is stopped changes no memory
  }
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = run_workers(launch, results, bound.seconds_limit);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (schedule)
    for (LateStores& late : schedule->late) late.show_all();

  nb::dict out;
  u64 instructions = 0, lanes = 0;
  int threads_run = 0;
  FindingList findings;
  const Finding* fault = nullptr;
  for (const WorkerResult& result : results) {
    instructions += result.instructions, lanes += result.lanes, threads_run += result.began;
    findings.merge(result.findings);
    if (result.faulted && (!fault || result.fault.block < fault->block)) fault = &result.fault;
  }
  out["instructions"] = instructions, out["thread_instructions"] = lanes,
  out["sampled"] = launch.sampled;
  out["seconds"] = seconds.count(), out["threads"] = threads_run,
  out["timed_out"] = ended.timed_out, out["cpu_seconds"] = ended.cpu_seconds;
  out["idle"] = launch.idle.load();
  if (schedule) {
    const auto row = [](const Place& one) { return nb::make_tuple(one.block, one.warp, one.pc); };
    out["schedule"] =
        nb::make_tuple(schedule->changed(), row(schedule->last()), row(schedule->then()));
  }
  nb::list found;
  for (const Finding& finding : findings.items()) found.append(describe(finding));
  out["findings"] = found;
  const std::string printed = printed_text(results);
  out["footprint"] = shadow && kernel.lets_dependents_start
                         ? nb::cast(std::make_shared<Footprint>(shadow->footprint(bound.name)))
                         : nb::none();
  out["accesses"] = shadow && bound.accesses ? raw_bytes(shadow->accesses()) : nb::bytes("", 0);
  out["shadow_bytes"] = shadow ? shadow->bytes() : 0;
  nb::list first_written;
  for (const Buffer& buffer : launch.buffers)
    if (buffer.first_writes) first_written.append(buffer.address);
  out["first_written"] = first_written;
  out["printed"] = nb::bytes(printed.data(), printed.size());
  out["fault"] = fault ? nb::object(describe(*fault)) : nb::none();
  if (bound.statistics) {
    std::vector<Counts> total(kernel.code.size());
    for (const WorkerResult& result : results)
      for (std::size_t i = 0; i < result.counts.size(); ++i) {
        total[i] += result.counts[i];
        total[i].executions += result.tallies[i].executions,
            total[i].lanes += result.tallies[i].lanes;
      }
    out["counts"] = raw_bytes(total);
    std::vector<const Traffic*> traffic;
    for (const WorkerResult& result : results)
      if (result.traffic) traffic.push_back(result.traffic.get());
    const std::vector<Sectors> read = Traffic::total(traffic, false),
                               written = Traffic::total(traffic, true);
    nb::list sectors, again, unread;
    for (std::size_t i = 0; i < read.size(); ++i) {
      sectors.append(nb::make_tuple(read[i].moved, read[i].by_blocks, read[i].distinct,
                                    written[i].moved, written[i].by_blocks, written[i].distinct));
      unread.append(nb::make_tuple(read[i].unread, read[i].first_unread, read[i].last_unread));
      again.append(raw_bytes(read[i].again));
    }
    out["sectors"] = sectors, out["again"] = again, out["unread"] = unread;
  }
  if (launch.recorder) {
    out["requests"] = raw_bytes(recorder.requests()), out["spans"] = raw_bytes(recorder.spans());
    out["events"] = raw_bytes(recorder.events());
    out["truncated"] = recorder.truncated();
  }
  return out;
}

nb::dict launch_kernel(const MadeKernel& kernel, const BoundLaunch& bound) {
  if (!bound.numerics) return run_kernel(kernel, bound);
  // A launch in another thread of Python that uses the log goes first.
  std::unique_lock lock(bound.numerics->mutex, std::defer_lock);
  {
    nb::gil_scoped_release release;
    lock.lock();
  }
  MadeKernel made = kernel;
  std::vector<const TableEntry*> entries;
  for (const u32 opcode : kernel.opcodes) entries.push_back(&instruction_table()[opcode]);
  numerics::watch(made, entries, *bound.numerics);
  return run_kernel(made, bound);
}

// Cache of Python strings that occur often.
class Strings {
 public:
  nb::object operator()(std::string_view text) {
    const auto found = known_.find(text);
    if (found != known_.end()) return found->second;
    return known_[texts_.emplace_back(text)] = nb::str(text.data(), text.size());
  }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, nb::object> known_;
};

template <class F>
nb::object tuple_of(std::size_t size, F at) {
  const nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(size)));
  if (!tuple) throw nb::python_error();
  for (std::size_t i = 0; i < size; ++i)
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), nb::object(at(i)).release().ptr());
  return tuple;
}

// Returns a tuple for each item: (start, guard or None, negated, shape, names) for a statement,
// (start, guard or None, negated, None, label) for a branch, (start, None, False, label, None) for
// a label, and (start, None, False, None, None) for anything else.
nb::list scan(nb::bytes text, std::size_t begin, std::size_t end) {
  Strings strings;
  nb::list rows;
  scan_body({text.c_str(), text.size()}, begin, end, [&](const ScannedItem& item) {
    nb::object shape = nb::none(), names = nb::none();
    if (!item.label.empty()) {
      (item.is_statement ? names : shape) = strings(item.label);
    } else if (item.is_statement) {
      shape = strings(item.shape);
      names = tuple_of(item.names.size(), [&](std::size_t i) { return strings(item.names[i]); });
    }
    nb::object row[] = {nb::int_(item.start), item.guard.empty() ? nb::none() : strings(item.guard),
                        nb::bool_(item.negated), shape, names};
    rows.append(tuple_of(5, [&](std::size_t i) { return std::move(row[i]); }));
  });
  return rows;
}

// Unpacks two arrays of s64.
std::vector<RegisterAccess> accesses(nb::bytes pcs, nb::bytes numbers) {
  std::vector<RegisterAccess> all(pcs.size() / sizeof(s64));
  for (std::size_t i = 0; i < all.size(); ++i) {
    s64 pair[2];
    std::memcpy(pair, pcs.c_str() + i * sizeof(s64), sizeof(s64)),
        std::memcpy(pair + 1, numbers.c_str() + i * sizeof(s64), sizeof(s64));
    all[i] = {static_cast<u32>(pair[0]), static_cast<u32>(pair[1])};
  }
  return all;
}

// Returns (offsets by register as s32, size of the register file).
nb::tuple allocate(const std::vector<u32>& lengths, const Successors& successors, nb::bytes read_pc,
                   nb::bytes read, nb::bytes written_pc, nb::bytes written, nb::bytes kills,
                   const std::vector<u32>& widths, u32 size) {
  std::vector<RegisterAccess> writes = accesses(written_pc, written);
  for (std::size_t i = 0; i < writes.size(); ++i) writes[i].kills = kills.c_str()[i];
  const RegisterLives lives = find_lives(lengths, successors, accesses(read_pc, read), writes,
                                         static_cast<u32>(widths.size()));
  const std::vector<u32> offsets = place_registers(lives, widths, size);
  return nb::make_tuple(raw_bytes(offsets), size);
}

// Returns the points where each register is first and last live, as allocate() finds them: two
// arrays of s64.
nb::tuple lives(const std::vector<u32>& lengths, const Successors& successors, nb::bytes read_pc,
                nb::bytes read, nb::bytes written_pc, nb::bytes written, nb::bytes kills,
                std::size_t registers) {
  std::vector<RegisterAccess> writes = accesses(written_pc, written);
  for (std::size_t i = 0; i < writes.size(); ++i) writes[i].kills = kills.c_str()[i];
  const RegisterLives lives =
      find_lives(lengths, successors, accesses(read_pc, read), writes, static_cast<u32>(registers));
  return nb::make_tuple(raw_bytes(lives.first), raw_bytes(lives.last));
}

// Returns the elements of an array of floats of the given type, as u16: residues, and symbols above
// them.
nb::bytes exact_residues(nb::bytes values, const std::string& type) {
  exact::prepare();
  const auto all = [&]<class T>(std::type_identity<T>) {
    std::vector<u16> residues(values.size() / sizeof(typename T::Bits));
    for (std::size_t i = 0; i < residues.size(); ++i) {
      typename T::Bits bits;
      std::memcpy(&bits, values.c_str() + i * sizeof bits, sizeof bits);
      const u16 code = T::read(bits);
      residues[i] = exact::is_special(code) ? code : exact::product_of(code, 1);
    }
    return raw_bytes(residues);
  };
  if (type == "float32") return all(std::type_identity<exact::Single>{});
  if (type == "float16") return all(std::type_identity<exact::HalfCode>{});
  if (type == "bfloat16") return all(std::type_identity<exact::BfloatCode>{});
  if (type == "float64") return all(std::type_identity<exact::Double>{});
  throw nb::value_error("a type without elements");
}

// Returns the floats of the given type, as their bits, that stand for elements: the way back from
// exact_residues.
nb::bytes exact_patterns(nb::bytes residues, const std::string& type) {
  exact::prepare();
  constexpr u16 square = u64{exact::kOne} * exact::kOne % exact::kModulus;  // of R, modulo M
  const auto all = [&]<class T>(std::type_identity<T>) {
    std::vector<typename T::Bits> bits(residues.size() / sizeof(u16));
    for (std::size_t i = 0; i < bits.size(); ++i) {
      u16 residue;
      std::memcpy(&residue, residues.c_str() + i * sizeof residue, sizeof residue);
      bits[i] = T::write(exact::is_special(residue) ? residue : exact::product_of(residue, square));
    }
    return raw_bytes(bits);
  };
  if (type == "float32") return all(std::type_identity<exact::Single>{});
  if (type == "float16") return all(std::type_identity<exact::HalfCode>{});
  if (type == "bfloat16") return all(std::type_identity<exact::BfloatCode>{});
  if (type == "float64") return all(std::type_identity<exact::Double>{});
  throw nb::value_error("a type without elements");
}

// Returns a table of a function of one element, by residue, as u16; symbols are above residues.
nb::bytes exact_function(const std::string& name) {
  exact::prepare();
  const exact::Tables& all = *exact::tables;
  const u16* table = name == "rank"           ? all.rank
                     : name == "turns"        ? all.turns
                     : name == "magnitude"    ? all.magnitude
                     : name == "inverse"      ? all.inverse
                     : name == "root"         ? all.root
                     : name == "inverse_root" ? all.inverse_root
                     : name == "power_of_two" ? all.power_of_two
                     : name == "logarithm"    ? all.logarithm
                     : name == "tanh"         ? all.hyperbolic_tangent
                     : name == "sine"         ? all.sine
                     : name == "cosine"       ? all.cosine
                                              : nullptr;
  if (!table) throw nb::key_error(name.c_str());
  const auto residue_of = [](u16 code) {
    return exact::is_special(code) ? code : exact::product_of(code, 1);
  };
  std::vector<u16> by_residue(exact::kCodes);
  for (u32 code = 0; code < exact::kCodes; ++code) {
    const u16 value = table[code];
    by_residue[residue_of(static_cast<u16>(code))] =
        name == "rank" || name == "turns" ? value : residue_of(value);
  }
  return raw_bytes(by_residue);
}

// Returns (name, kind, class, destinations, sources) of every instruction; its position is its
// opcode.
nb::list table_rows() {
  nb::list rows;
  for (const TableEntry& entry : instruction_table()) {
    rows.append(nb::make_tuple(entry.name, entry.kind, nb::cast(entry.group).attr("name"),
                               entry.destinations, entry.sources));
  }
  return rows;
}

// Defines the numbers and layouts that Python shares with the core.
void add_constants(nb::module_& m) {
  m.attr("LANES") = kLanes;
  m.attr("NO_SLOT") = static_cast<s32>(kNoSlot), m.attr("TRUE_SLOT") = kTrueSlot;
  m.attr("STRONG") = kStrong, m.attr("NARROW_BASE") = kNarrowBase, m.attr("WIDE_BASE") = kWideBase,
  m.attr("RELEASE") = kRelease;
  m.attr("ACQUIRE") = kAcquire, m.attr("VOLATILE") = kVolatile, m.attr("BLOCK_SCOPE") = kBlockScope;
  m.attr("WORD_OF_ELEMENT") = kWordOfElement, m.attr("USES_OLD") = kUsesOld;
  m.attr("UNORDERED") = kUnordered, m.attr("ASYNC_PROXY") = kAsyncProxy,
  m.attr("CLUSTER_BASE") = kClusterBase;
  m.attr("SHARED_WINDOW") = kSharedWindow, m.attr("LOCAL_WINDOW") = kLocalWindow,
  m.attr("PARAM_WINDOW") = kParamWindow;
  m.attr("IN_REGISTERS") = RecordedEvent::kInRegisters;
  m.attr("ROW") = nb::object(Layout<CodeRow>()
                                 .field("opcode", &CodeRow::opcode)
                                 .field("guard", &CodeRow::guard)
                                 .field("guard_flip", &CodeRow::guard_flip)
                                 .field("counted", &CodeRow::counted)
                                 .field("elements", &CodeRow::elements)
                                 .field("bytes", &CodeRow::bytes)
                                 .field("target", &CodeRow::target)
                                 .field("immediate_low", &CodeRow::immediate_low)
                                 .field("immediate_high", &CodeRow::immediate_high)
                                 .field("address", &CodeRow::address)
                                 .field("member", &CodeRow::member)
                                 .field("flags", &CodeRow::flags)
                                 .field("negated", &CodeRow::negated)
                                 .field("operands", &CodeRow::operands));
  m.attr("COUNTS") = nb::object(Layout<Counts>()
                                    .field("executions", &Counts::executions)
                                    .field("active_lanes", &Counts::lanes)
                                    .field("requests", &Counts::requests)
                                    .field("sectors", &Counts::sectors)
                                    .field("wavefronts", &Counts::wavefronts)
                                    .field("ideal_wavefronts", &Counts::ideal)
                                    .field("bytes", &Counts::bytes)
                                    .field("barrier_waits", &Counts::waits)
                                    .field("distinct_bytes", &Counts::distinct_bytes)
                                    .field("ideal_sectors", &Counts::ideal_sectors)
                                    .field("landed_bytes", &Counts::landed_bytes)
                                    .field("filled_bytes", &Counts::filled_bytes)
                                    .field("slow_paths", &Counts::slow_paths)
                                    .field("products", &Counts::products)
                                    .field("scale_bytes", &Counts::scale_bytes));
  m.attr("REQUEST") = nb::object(Layout<RecordedRequest>()
                                     .field("warp", &RecordedRequest::warp)
                                     .field("pc", &RecordedRequest::pc)
                                     .field("mask", &RecordedRequest::mask)
                                     .field("bytes", &RecordedRequest::bytes)
                                     .field("flags", &RecordedRequest::flags)
                                     .field("sectors", &RecordedRequest::sectors)
                                     .field("wavefronts", &RecordedRequest::wavefronts)
                                     .field("ideal", &RecordedRequest::ideal)
                                     .field("address", &RecordedRequest::address));
  m.attr("SPAN") = nb::object(Layout<RecordedSpan>()
                                  .field("warp", &RecordedSpan::warp)
                                  .field("pc", &RecordedSpan::pc)
                                  .field("barrier", &RecordedSpan::barrier)
                                  .field("waiting", &RecordedSpan::waiting)
                                  .field("start", &RecordedSpan::start)
                                  .field("end", &RecordedSpan::end));
  m.attr("EVENT") = nb::object(Layout<RecordedEvent>()
                                   .field("warp", &RecordedEvent::warp)
                                   .field("pc", &RecordedEvent::pc)
                                   .field("kind", &RecordedEvent::kind)
                                   .field("at", &RecordedEvent::at)
                                   .field("phase", &RecordedEvent::phase)
                                   .field("count", &RecordedEvent::count)
                                   .field("bytes", &RecordedEvent::bytes)
                                   .field("to", &RecordedEvent::to)
                                   .field("tick", &RecordedEvent::tick));
  nb::list fields;
  for (const MapPlace& place : kMapPlaces)
    fields.append(nb::make_tuple(place.name, place.ordinals));
  m.attr("TENSOR_MAP_FIELDS") = nb::tuple(fields);
}

// Encodes the 128 bytes of a tensor map from (number of a field, ordinal, value).
nb::bytes encode_tensor_map(const std::vector<std::tuple<u32, u32, u64>>& values) {
  std::array<u8, kMapBytes> map{};
  for (u32 mark : kMapMarks) map[mark / 8] |= static_cast<u8>(1u << mark % 8);
  for (const auto& [field, ordinal, value] : values) {
    if (field >= std::size(kMapPlaces) || ordinal >= kMapPlaces[field].ordinals)
      throw nb::index_error("a field of a tensor map");
    write_map_field(map.data(), static_cast<MapField>(field), ordinal, value);
  }
  return nb::bytes(reinterpret_cast<const char*>(map.data()), map.size());
}

}  // namespace

NB_MODULE(PTX_MODULE_NAME, m) {
  nb::set_leak_warnings(false);  // kernels are cached for the life of the process
  m.doc() = "SIMT core of the PTX machine.";
  bind_enums(m);
  bind_numerics(m);
  bind_operands(m, offsetof(CodeRow, operands) / sizeof(s32));
  add_constants(m);
  m.attr("TARGET") = PTX_TARGET;
  nb::list specials;
  for (int i = 0; i < static_cast<int>(Special::kCount); ++i) specials.append(kSpecialNames[i]);
  m.attr("SPECIALS") = nb::tuple(specials);
  m.def("instruction_table", &table_rows);
  m.def("supports_v3", &supports_v3);
  m.def("scan", &scan);
  m.def("encode_tensor_map", &encode_tensor_map);
  m.def("order_blocks", &order_blocks);
  m.def("allocate", &allocate);
  m.def("lives", &lives);
  m.def("take_slot", [](u32 width, u32 size) {
    const u32 offset = take_slot(width, size);
    return std::pair(offset, size);
  });
  nb::class_<Footprint>(m, "Footprint");
  bind_debugger(m);
  m.attr("HEAP_SPAN") = u64{DeviceHeap::kSpan};
  nb::class_<DeviceHeap>(m, "DeviceHeap")
      .def("__init__",
           [](DeviceHeap* self, u64 address, u64 limit) { new (self) DeviceHeap(address, limit); })
      .def_prop_ro("row",
                   [](const DeviceHeap& heap) {
                     return BufferRow(heap.address(), heap.size(),
                                      reinterpret_cast<std::uintptr_t>(heap.host()), true,
                                      reinterpret_cast<std::uintptr_t>(heap.written()));
                   })
      .def("leaks", [](const DeviceHeap& heap) {
        std::vector<std::tuple<u64, s32, u64, u64>> rows;  // kernel, pc, blocks, bytes
        for (const auto& leak : heap.leaks())
          rows.emplace_back(leak.origin.kernel, leak.origin.pc, leak.blocks, leak.bytes);
        return rows;
      });
  nb::class_<BoundLaunch>(m, "BoundLaunch")
      .def(nb::init<>())
      .def_rw("name", &BoundLaunch::name)
      .def_rw("grid", &BoundLaunch::grid)
      .def_rw("block", &BoundLaunch::block)
      .def_rw("cluster", &BoundLaunch::cluster)
      .def_rw("dynamic_shared", &BoundLaunch::dynamic_shared)
      .def_rw("params", &BoundLaunch::params)
      .def_rw("buffers", &BoundLaunch::buffers)
      .def_rw("sample", &BoundLaunch::sample)
      .def_rw("threads", &BoundLaunch::threads)
      .def_rw("statistics", &BoundLaunch::statistics)
      .def_rw("checks", &BoundLaunch::checks)
      .def_rw("accesses", &BoundLaunch::accesses)
      .def_rw("proved", &BoundLaunch::proved)
      .def_rw("strict", &BoundLaunch::strict)
      .def_rw("last_warp_first", &BoundLaunch::last_warp_first)
      .def_rw("copies_early", &BoundLaunch::copies_early)
      .def_rw("takes_shortcuts", &BoundLaunch::takes_shortcuts)
      .def_rw("undefined", &BoundLaunch::undefined)
      .def_rw("schedule", &BoundLaunch::schedule)
      .def_rw("schedule_changes", &BoundLaunch::schedule_changes)
      .def_rw("aims", &BoundLaunch::aims)
      .def_rw("late_stores", &BoundLaunch::late_stores)
      .def_rw("multiprocessors", &BoundLaunch::multiprocessors)
      .def_rw("clock_start", &BoundLaunch::clock_start)
      .def_rw("instruction_limit", &BoundLaunch::instruction_limit)
      .def_rw("seconds_limit", &BoundLaunch::seconds_limit)
      .def_rw("idle_limit", &BoundLaunch::idle_limit)
      .def_rw("of_host", &BoundLaunch::of_host)
      .def_rw("recorded_block", &BoundLaunch::recorded_block)
      .def_rw("record_limit", &BoundLaunch::record_limit)
      .def_rw("workspace", &BoundLaunch::workspace)
      .def_rw("unused", &BoundLaunch::unused)
      .def_rw("shared_extents", &BoundLaunch::shared_extents)
      .def_rw("global_extents", &BoundLaunch::global_extents)
      .def_rw("unwritten_sources", &BoundLaunch::unwritten_sources)
      .def_rw("overlapped", &BoundLaunch::overlapped)
      .def_rw("heap", &BoundLaunch::heap)
      .def_rw("number_in_heap", &BoundLaunch::number_in_heap)
      .def_rw("debugger", &BoundLaunch::debugger)
      .def_rw("numerics", &BoundLaunch::numerics);
  nb::class_<MadeKernel>(m, "Kernel")
      .def("__init__", &build_kernel)
      .def("launch", &launch_kernel)
      .def("following", &following)
      .def("exact", &exact_kernel)
      .def("trusting", &trusting);
  m.attr("EXACT_PRIMES") = nb::make_tuple(exact::kP, exact::kQ);
  m.attr("EXACT_UNDEFINED") = exact::kUndefined;
  m.def("exact_residues", &exact_residues);
  m.def("exact_patterns", &exact_patterns);
  m.def("exact_function", &exact_function);
}

}  // namespace workbench::ptx
