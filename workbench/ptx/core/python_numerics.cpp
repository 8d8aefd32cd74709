// What a log of launches with numerics holds, as rows for Python.
#include "python_numerics.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "numerics/log.hpp"

namespace nb = nanobind;

namespace workbench::ptx {

using numerics::Event;
using numerics::Happening;
using numerics::Log;
using numerics::Narrowed;
using numerics::Tallies;

namespace {

nb::dict describe(const Happening& one) {
  nb::dict row;
  row["event"] = nb::cast(one.event).attr("name");
  row["launch"] = one.launch, row["pc"] = one.pc, row["parent"] = one.parent;
  row["block"] = one.block, row["thread"] = one.thread;
  nb::list operands;
  for (u32 i = 0; i < one.operands; ++i) operands.append(one.operand[i]);
  row["operands"] = nb::tuple(operands);
  row["result"] = one.result, row["address"] = one.address, row["shared"] = one.shared;
  row["reached"] = one.reached, row["count"] = one.count;
  return row;
}

// The instructions of the last launch at which something happened: (pc, NaN born, infinities born,
// NaN passed on, the first event of each, what conversions did).
nb::list tallies(const Log& log) {
  nb::list rows;
  for (std::size_t pc = 0; pc < log.tallies().size(); ++pc) {
    const Tallies& one = log.tallies()[pc];
    const Narrowed& narrowed = one.narrowed;
    if (!one.nans && !one.infinities && !one.passed && !narrowed.numbers) continue;
    rows.append(
        nb::make_tuple(pc, nb::make_tuple(one.nans, one.infinities, one.passed),
                       nb::make_tuple(one.first_nan, one.first_infinity, one.first_passed),
                       nb::make_tuple(narrowed.numbers, narrowed.overflowed, narrowed.saturated,
                                      narrowed.flushed, narrowed.nans, narrowed.largest)));
  }
  return rows;
}

// The instructions of the last launch with results in float64: (pc, results, the sums of squares of
// the errors added, inherited, of operands, in total, the largest of each, results without shadow).
nb::list errors(const Log& log) {
  nb::list rows;
  for (std::size_t pc = 0; pc < log.errors().size(); ++pc) {
    const numerics::Errors& one = log.errors()[pc];
    if (!one.numbers && !one.lost) continue;
    rows.append(nb::make_tuple(
        pc, one.numbers, nb::make_tuple(one.added, one.inherited, one.incoming, one.total),
        nb::make_tuple(one.most_added, one.most_inherited, one.most_total), one.lost));
  }
  return rows;
}

// (launch, pc, sum of squares in global memory) of each instruction from which errors come.
nb::list blamed(const Log& log) {
  nb::list rows;
  for (const auto& [source, sum] : log.blamed())
    rows.append(nb::make_tuple(source >> 20, (source & 0xfffff) - 1, sum));
  return rows;
}

}  // namespace

void bind_numerics(nb::module_& m) {
  nb::enum_<Event>(m, "NumericsEvent")
      .value("nan", Event::nan)
      .value("infinity", Event::infinity)
      .value("through", Event::through)
      .value("store", Event::store)
      .value("load", Event::load);
  nb::class_<Log>(m, "NumericsLog")
      .def("__init__",
           [](Log* self, bool follows_errors) {
             new (self) Log();
             self->follows_errors = follows_errors;
           })
      .def("errors", &errors)
      .def("blamed", &blamed)
      .def_prop_ro("launch", &Log::launch)
      .def("tallies", &tallies)
      .def("__len__", [](const Log& log) { return log.events().size(); })
      .def("event", [](const Log& log, std::size_t id) { return describe(log.events().at(id)); });
}

}  // namespace workbench::ptx
