// Leaves torch/library.h out: see torch_headers.py.
#pragma once
