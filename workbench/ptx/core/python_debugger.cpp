// The debugger for Python: orders, and the state of a launch that does not run.
#include "python_debugger.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "debug/debugger.hpp"
#include "matrices/tensor_memory.hpp"
#include "memory/bulk_copy.hpp"
#include "memory/mbarrier.hpp"
#include "python_findings.hpp"

namespace nb = nanobind;

namespace workbench::ptx {
namespace {

nb::bytes bytes_of(const void* from, std::size_t count) {
  return nb::bytes(static_cast<const char*>(from), count);
}

const Block& block_of(const Debugger& debugger, s64 index) {
  const Block* const block = debugger.block(index);
  if (!block) throw nb::index_error("a block that does not run");
  return *block;
}

const Warp& warp_of(const Debugger& debugger, s64 index, std::size_t warp) {
  return block_of(debugger, index).warps->at(warp);
}

// The row of a condition's step: what it does, a slot, and a number as the sum of two.
using StepRow = std::tuple<Condition::Op, u32, double, s64>;

void set_condition(Watch& watch, const std::vector<StepRow>& rows) {
  watch.condition.steps.clear();
  for (const auto& [op, slot, real, whole] : rows)
    watch.condition.steps.push_back(
        {op, slot, static_cast<long double>(real) + static_cast<long double>(whole)});
}

// The value of an expression in the 32 lanes of a warp.
std::vector<double> evaluate(const Debugger& debugger, s64 block, std::size_t warp,
                             const std::vector<StepRow>& rows) {
  Watch watch;
  set_condition(watch, rows);
  std::vector<double> values;
  for (u32 lane = 0; lane < kLanes; ++lane)
    values.push_back(
        static_cast<double>(watch.condition.value(warp_of(debugger, block, warp), lane)));
  return values;
}

// The row of a float register: pc and the fields of a FloatPlace.
using FloatRow = std::tuple<s32, u32, Condition::Op, bool, bool>;

void set_floats(Debugger& debugger, const std::vector<FloatRow>& sources,
                const std::vector<FloatRow>& results) {
  const auto set = [&](std::vector<std::vector<FloatPlace>>& all,
                       const std::vector<FloatRow>& rows) {
    all.assign(debugger.lines.size(), {});
    for (const auto& [pc, slot, type, pair, across] : rows)
      all.at(static_cast<std::size_t>(pc)).push_back({slot, type, pair, across});
  };
  set(debugger.sources, sources), set(debugger.results, results);
}

// (lanes that exist, that have exited, instructions, the mbarrier that it last found incomplete,
// [(pc, lanes, state, lanes or barrier that it waits for)]) of each warp.
nb::list warps_of(const Debugger& debugger, s64 index) {
  nb::list rows;
  for (const Warp& warp : *block_of(debugger, index).warps) {
    nb::list splits;
    for (const Split& split : warp.splits)
      splits.append(
          nb::make_tuple(split.pc, split.mask, static_cast<int>(split.state), split.need));
    rows.append(nb::make_tuple(warp.all, warp.exited, warp.tick, warp.asked, splits));
  }
  return rows;
}

// (number, threads that wait, that only arrived, that are expected) of each barrier in use.
nb::list barriers_of(const Debugger& debugger, s64 index) {
  nb::list rows;
  const Block& block = block_of(debugger, index);
  for_each_bit(block.barriers_met, [&](u32 number) {
    const Barrier& barrier = block.barriers[number];
    const u32 all = block.launch->threads_per_block() - block.exited;
    rows.append(nb::make_tuple(number, barrier.waiting, barrier.arrivals,
                               barrier.expected ? barrier.expected : all));
  });
  return rows;
}

// (kind, pc, thread or -1, offset in shared memory, bytes, group, mbarrier) of each copy under way.
nb::list copies_of(Debugger& debugger, s64 index) {
  nb::list rows;
  const Block& block = block_of(debugger, index);
  const auto group_of = [](u32 group) { return group == BulkCopy::kOpen ? -1 : s64{group}; };
  for (Warp& warp : *block.warps) {
    for (u32 i = 0; i < warp.copies.size(); ++i) {
      const PendingCopy& copy = warp.copies[i];
      PTX_FOR_EACH_LANE (lane, copy.mask)
        rows.append(nb::make_tuple("cp.async", copy.pc, warp.thread(lane), copy.destination[lane],
                                   copy.bytes, group_of(copy.group), -1));
    }
    for (const BulkCopy& copy : warp.bulk_stores)
      rows.append(nb::make_tuple("bulk store", copy.pc, warp.thread(copy.lane),
                                 copy.pieces.empty() ? 0 : copy.pieces[0].offset, copy.bytes,
                                 group_of(copy.group), -1));
  }
  for (const BulkCopy& copy : block.bulk_loads)
    rows.append(nb::make_tuple("bulk load", copy.pc, copy.warp->thread(copy.lane),
                               copy.pieces.empty() ? 0 : copy.pieces[0].offset, copy.bytes, -1,
                               static_cast<s64>(copy.barrier)));
  return rows;
}

// (arrivals that are missing, arrivals of a phase, bytes that are missing, bytes under way, parity)
// of an mbarrier; None where there is none.
nb::object mbarrier_of(const Debugger& debugger, s64 index, u32 offset) {
  const Block& block = block_of(debugger, index);
  if (u64{offset} + 8 > block.launch->shared_bytes) return nb::none();
  const MbarrierWord word(block.shared + offset);
  if (!word.valid()) return nb::none();
  return nb::make_tuple(word.pending(), word.expected(), word.bytes(),
                        bytes_under_way(block, offset), word.parity());
}

nb::object memory_of(const Debugger& debugger, u64 address, u64 bytes) {
  for (const Buffer& buffer : debugger.launch().buffers)
    if (address >= buffer.address && address + bytes <= buffer.address + buffer.size)
      return bytes_of(buffer.host + (address - buffer.address), bytes);
  return nb::none();
}

nb::object hit_of(const Debugger& debugger) {
  const Hit& hit = debugger.hit();
  if (hit.watch < 0) return nb::none();
  return nb::make_tuple(hit.watch, hit.index, hit.pc, hit.block, hit.warp, hit.lanes, hit.past);
}

// (block, warp, pc, lanes) of the instruction that comes next; None where no warp runs.
nb::object current_of(const Debugger& debugger) {
  const Warp* const warp = debugger.warp();
  if (!warp) return nb::none();
  return nb::make_tuple(warp->block->index, warp->index, debugger.pc(), debugger.lanes());
}

void go(Debugger& debugger, u64 limit, const std::vector<Watch>& watches, bool remembers,
        bool findings, s64 place, bool ends) {
  debugger.go({limit, watches, remembers, findings, place, ends});
}

void bind_watch(nb::module_& m) {
  nb::enum_<Condition::Op> ops(m, "ConditionOp", nb::is_arithmetic());
  const char* const names[] = {
      "number",     "lane",        "warp",     "block",      "f16",     "bf16",          "f32",
      "f64",        "s16",         "u16",      "s32",        "u32",     "s64",           "u64",
      "predicate",  "add",         "subtract", "multiply",   "divide",  "floor_divide",  "modulo",
      "negate",     "absolute",    "less",     "less_equal", "greater", "greater_equal", "equal",
      "not_equal",  "both",        "either",   "invert",     "bit_and", "bit_or",        "bit_xor",
      "shift_left", "shift_right", "is_nan",   "is_inf",     "minimum", "maximum"};
  static_assert(std::size(names) == static_cast<std::size_t>(Condition::Op::maximum) + 1);
  for (std::size_t i = 0; i < std::size(names); ++i)
    ops.value(names[i], static_cast<Condition::Op>(i));
  m.attr("CONDITION_DEPTH") = Condition::kDepth;
  nb::enum_<Watch::Space>(m, "WatchSpace")
      .value("nowhere", Watch::Space::nowhere)
      .value("global_", Watch::Space::global)
      .value("shared", Watch::Space::shared);
  nb::class_<Watch>(m, "Watch")
      .def(nb::init<>())
      .def_rw("pcs", &Watch::pcs)
      .def_rw("block", &Watch::block)
      .def_rw("warp", &Watch::warp)
      .def_rw("lanes", &Watch::lanes)
      .def_rw("enters", &Watch::enters)
      .def_rw("outlives", &Watch::outlives)
      .def_rw("space", &Watch::space)
      .def_rw("begin", &Watch::begin)
      .def_rw("end", &Watch::end)
      .def_rw("reads", &Watch::reads)
      .def_rw("writes", &Watch::writes)
      .def_rw("births", &Watch::births)
      .def_rw("skip", &Watch::skip)
      .def("set_condition", &set_condition);
}

}  // namespace

void bind_debugger(nb::module_& m) {
  bind_watch(m);
  static_assert(sizeof(Writer) == 24);
  m.attr("NO_LIMIT") = Order::kNever;
  nb::enum_<Debugger::Status>(m, "DebuggerStatus")
      .value("running", Debugger::Status::running)
      .value("stopped", Debugger::Status::stopped)
      .value("faulted", Debugger::Status::faulted)
      .value("ended", Debugger::Status::ended)
      .value("closed", Debugger::Status::closed);
  nb::class_<Debugger>(m, "Debugger")
      .def(nb::init<std::size_t>())
      .def_rw("lines", &Debugger::lines)
      .def("set_floats", &set_floats)
      .def("go", &go)
      .def("wait", &Debugger::wait, nb::call_guard<nb::gil_scoped_release>())
      .def("pause", &Debugger::pause)
      .def("close", &Debugger::close)
      .def_prop_ro("status", &Debugger::status)
      .def_prop_ro("index", &Debugger::index)
      .def_prop_ro("hit", &hit_of)
      .def_prop_ro("hits", &Debugger::hits)
      .def_prop_ro("finding",
                   [](const Debugger& debugger) -> nb::object {
                     if (!debugger.finding()) return nb::none();
                     return describe(*debugger.finding());
                   })
      .def_prop_ro("places",
                   [](const Debugger& debugger) {
                     std::vector<std::pair<s64, u64>> rows;  // block or cluster, index
                     for (const UndoLog::Place& place : debugger.log.places())
                       rows.emplace_back(place.turn, place.index);
                     return rows;
                   })
      .def_prop_ro("log_bytes", [](const Debugger& debugger) { return debugger.log.bytes(); })
      .def_prop_ro("exhausted",
                   [](const Debugger& debugger) { return debugger.log.is_exhausted(); })
      .def_prop_ro("blocks",
                   [](const Debugger& debugger) {
                     std::vector<s64> all;
                     for (const Block* block : debugger.blocks()) all.push_back(block->index);
                     return all;
                   })
      .def_prop_ro("current", &current_of)
      .def("warps", &warps_of)
      .def("registers",
           [](const Debugger& debugger, s64 block, std::size_t warp) {
             return bytes_of(warp_of(debugger, block, warp).registers,
                             debugger.launch().kernel->image.size());
           })
      .def("local",
           [](const Debugger& debugger, s64 block, std::size_t warp) {
             return bytes_of(warp_of(debugger, block, warp).local,
                             std::size_t{debugger.launch().kernel->local_bytes} * kLanes);
           })
      .def("shared",
           [](const Debugger& debugger, s64 block) {
             return bytes_of(block_of(debugger, block).shared, debugger.launch().shared_bytes);
           })
      .def("tensor_memory",
           [](const Debugger& debugger, s64 block) -> nb::object {
             TensorMemory* const tensor = block_of(debugger, block).tensor.get();
             if (!tensor) return nb::none();
             return bytes_of(tensor->column(0),
                             std::size_t{TensorMemory::kRows} * TensorMemory::kColumns * 4);
           })
      .def("returns",
           [](const Debugger& debugger, s64 block, std::size_t warp, std::size_t lane) {
             return warp_of(debugger, block, warp).calls.returns[lane & (kLanes - 1)];
           })
      .def("memory", &memory_of)
      .def("barriers", &barriers_of)
      .def("copies", &copies_of)
      .def("mbarrier", &mbarrier_of)
      .def("evaluate", &evaluate)
      .def("record_writers", &Debugger::record_writers)
      .def_prop_ro("writers", [](const Debugger& debugger) {
        return bytes_of(debugger.writers().data(), debugger.writers().size() * sizeof(Writer));
      });
}

}  // namespace workbench::ptx
