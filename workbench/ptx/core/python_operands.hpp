#pragma once
#include <nanobind/nanobind.h>

#include <cstddef>

namespace workbench::ptx {

// Defines the operand namespaces. `first`: the column in which operands begin.
void bind_operands(nanobind::module_& m, std::size_t first);

}  // namespace workbench::ptx
