// Tensors, operators and dispatch alone, in the place of torch/extension.h: see torch_headers.py.
#pragma once
#include <torch/types.h>
