"""Kernels of Triton for sm_90 whose warps have tasks of their own, or that make their tensor maps."""

import triton
import triton.language as tl


@triton.jit
def specialised(a, b, c, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in tl.range(0, k, BLOCK_K, warp_specialize=True):
        total = tl.dot(a.load([row, begin]), b.load([column, begin]).T, total)
    c.store([row, column], total.to(c.dtype))


@triton.jit
def specialised_product(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """The same with descriptors that the kernel makes: with 128 rows two groups of warps multiply 64 each."""
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BLOCK_N, BLOCK_K])
    result = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    specialised(left, right, result, k, BLOCK_M, BLOCK_N, BLOCK_K)


@triton.jit
def copied(out, x, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    result = tl.make_tensor_descriptor(out, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    result.store([row, column], source.load([row, column]))
