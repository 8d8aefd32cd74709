#pragma once
#include <nanobind/nanobind.h>

namespace workbench::ptx {

// The debugger of a launch, and the watches that it takes.
void bind_debugger(nanobind::module_& m);

}  // namespace workbench::ptx
