"""CuTe DSL: a sum of two vectors, launched by the DSL itself; with "fault" without its bound."""

import sys

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

BOUND = "fault" not in sys.argv


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, count: cutlass.Int32, bound: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * 128 + thread
    if cutlass.const_expr(bound):
        if at < count:
            c[at] = a[at] + b[at]
    else:
        c[at] = a[at] + b[at]


@cute.jit
def add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, count: cutlass.Int32, bound: cutlass.Constexpr):
    add_kernel(a, b, c, count, bound).launch(grid=[2, 1, 1], block=[128, 1, 1])


a, b = torch.randn(200, device="cuda"), torch.randn(200, device="cuda")
c = torch.zeros(200, device="cuda")
add(*map(from_dlpack, (a, b, c)), 200, BOUND)
torch.cuda.synchronize()
torch.testing.assert_close(c, a + b)
print("right")
