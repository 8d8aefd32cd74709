#pragma once
#include <nanobind/nanobind.h>

#include <cstddef>

namespace workbench::ptx {

// `first`: the column of a row in which its operands begin.
void bind_operands(nanobind::module_& m, std::size_t first);

}  // namespace workbench::ptx
