#pragma once
#include <nanobind/nanobind.h>

namespace workbench::ptx {

void bind_numerics(nanobind::module_& m);

}  // namespace workbench::ptx
