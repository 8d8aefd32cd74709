#pragma once
#include <nanobind/nanobind.h>

#include "machine.hpp"

namespace workbench::ptx {

// A finding by field, as core_result.py takes it.
nanobind::dict describe(const Finding& finding);

}  // namespace workbench::ptx
