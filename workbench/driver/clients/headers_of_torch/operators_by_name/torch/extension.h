// Replaces torch/extension.h by tensors, dispatch and the functions that a file names: see torch_headers.py.
#pragma once
#include <torch/types.h>
