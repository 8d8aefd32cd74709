// Tensors, operators and dispatch alone, in the place of torch/all.h: see torch_headers.py.
#pragma once
#include <torch/types.h>
