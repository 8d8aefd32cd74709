"""Matrix products with scaled factors, of which Triton makes tcgen05.mma on sm_100 and scaled mma.sync on sm_120.

Also gathers and scatters of rows by descriptors, of which it makes copies of four rows on sm_100.
"""

import triton
import triton.language as tl


@triton.jit
def scaled_product(
    a, a_scale, b, b_scale, c, n, k,
    FORMAT: tl.constexpr, VEC: tl.constexpr, PACK: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """C = A B^T: a [M, K / PACK], b [N, K / PACK], a scale for each VEC elements along K."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth, groups = tl.arange(0, BLOCK_K // PACK), tl.arange(0, BLOCK_K // VEC)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in range(0, k, BLOCK_K):
        x = tl.load(a + rows[:, None] * (k // PACK) + (begin // PACK + depth)[None, :])
        y = tl.load(b + columns[None, :] * (k // PACK) + (begin // PACK + depth)[:, None])
        x_scale = tl.load(a_scale + rows[:, None] * (k // VEC) + (begin // VEC + groups)[None, :])
        y_scale = tl.load(b_scale + columns[:, None] * (k // VEC) + (begin // VEC + groups)[None, :])
        total = tl.dot_scaled(x, x_scale, FORMAT, y, y_scale, FORMAT, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def doubled_rows(source, target, rows, into, M: tl.constexpr):
    """target[into] = 2 source[rows], for the columns of a block."""
    numbers, places = tl.load(rows + tl.arange(0, M)), tl.load(into + tl.arange(0, M))
    target.scatter(source.gather(numbers, 32) * 2, places, 0)
