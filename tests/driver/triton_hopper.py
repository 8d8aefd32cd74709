"""Matrix products that Triton makes wgmma and TMA of on sm_90."""

import triton
import triton.language as tl


@triton.jit
def product(a, b, c, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in range(0, k, BLOCK_K):
        x = tl.load(a + rows[:, None] * k + (begin + depth)[None, :])
        y = tl.load(b + (begin + depth)[:, None] + columns[None, :] * k)
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def described_product(a, b, c, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in range(0, k, BLOCK_K):
        total = tl.dot(a.load([row, begin]), b.load([column, begin]).T, total)
    c.store([row, column], total)


@triton.jit
def device_described_product(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BLOCK_N, BLOCK_K])
    result = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    described_product(left, right, result, k, BLOCK_M, BLOCK_N, BLOCK_K)


@triton.jit
def specialised_product(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    across = tl.cdiv(n, BLOCK_N)
    tiles = tl.cdiv(m, BLOCK_M) * across
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True):
        row, column = tile // across * BLOCK_M, tile % across * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for begin in range(0, k, BLOCK_K):
            total = tl.dot(a.load([row, begin]), b.load([column, begin]).T, total)
        c.store([row, column], total)


@triton.jit
def persistent_product(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """The same with descriptors that the kernel builds."""
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BLOCK_N, BLOCK_K])
    result = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    specialised_product(left, right, result, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K)


@triton.jit
def reductions(lowest, highest, total, x):
    """The block's smallest, largest and summed elements, by reductions of bulk copies."""
    i = tl.arange(0, 2)[:, None] * 8 + tl.arange(0, 8)[None, :]
    values = tl.load(x + i)
    tl.make_tensor_descriptor(lowest, [2, 8], [8, 1], [2, 8]).atomic_min([0, 0], values)
    tl.make_tensor_descriptor(highest, [2, 8], [8, 1], [2, 8]).atomic_max([0, 0], values)
    tl.make_tensor_descriptor(total, [2, 8], [8, 1], [2, 8]).atomic_add([0, 0], values)
