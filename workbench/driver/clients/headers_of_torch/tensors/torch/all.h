// Replaces torch/all.h by tensors, operators and dispatch: see torch_headers.py.
#pragma once
#include <torch/types.h>
