// Replaces torch/extension.h by tensors and their bindings to Python: see torch_headers.py.
#pragma once
#include <torch/types.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
