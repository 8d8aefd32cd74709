"""A Triton function for tests of arguments: Triton reads its source from a file."""

import triton
import triton.language as tl


@triton.jit
def ones(y):
    tl.store(y + tl.arange(0, 4), 1.0)
