// Leaves torch/csrc/autograd/variable.h out: see torch_headers.py.
#pragma once
