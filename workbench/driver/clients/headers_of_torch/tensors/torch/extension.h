// Replaces torch/extension.h by tensors, operators and dispatch: see torch_headers.py.
#pragma once
#include <torch/types.h>
