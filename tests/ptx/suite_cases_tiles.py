"""The suite's tiles: transposes, matrix products, stencils."""

from __future__ import annotations

import math

import numpy as np
from suite_cases_sums import BLOCK, DATA, blocks_of, sample
from suite_sample import Case, Fact, Fresh, at, mix, per_request, sectors, total, wavefronts


def transposed(n: int) -> Case:
    rows, columns = n, 2 * n // 3 + 1
    matrix = DATA[: rows * columns].reshape(rows, columns)
    grid = (blocks_of(columns, 32), blocks_of(rows, 32))
    return Case(grid, (32, 8), [Fresh((columns, rows)), matrix, rows, columns], {0: matrix.T})


def square_transposed(n: int) -> Case:
    matrix = DATA[: n * n].reshape(n, n)
    return Case((n // 32, n // 32), (32, 8), [Fresh((n, n)), matrix, n, n], {0: matrix.T})


def strided(stride: int) -> Case:
    return Case(1, 32, [Fresh(32), DATA[:1024], stride], {0: DATA[np.arange(32) * stride % 1024]})


def product(tile: tuple[int, int], block: tuple[int, int], dtype: type = np.float32):
    def case(size: int) -> Case:
        m, n, k = size, max(size - 2, 1), size + 3
        return products(m, n, k)

    def products(m: int, n: int, k: int) -> Case:
        a = DATA[: m * k].reshape(m, k).astype(dtype)
        b = DATA[-k * n :].reshape(k, n).astype(dtype)
        grid = (blocks_of(n, tile[1]), blocks_of(m, tile[0]))
        expected = a.astype(np.float64) @ b.astype(np.float64)
        return Case(grid, block, [Fresh((m, n)), a, b, m, n, k], {0: expected}, tolerance=1e-4)

    return case, lambda size: products(size, size, size)


def sums_of_seven(n: int) -> Case:
    wide = np.pad(DATA[:n].astype(np.float64), 3)
    expected = np.lib.stride_tricks.sliding_window_view(wide, 7).sum(1)
    return Case(blocks_of(n), BLOCK, [Fresh(n), DATA[:n], n], {0: expected})


def seven_loads(n: int) -> int:
    """Sectors of the tile's loads: each block's warps, 3 elements off their place, and the last 6 elements."""
    asked = 0
    for base in range(0, n, BLOCK):
        for first, count in [(0, 32), (32, 32), (64, 32), (96, 32), (128, 6)]:
            asked += sectors([i for i in range(base + first - 3, base + first + count - 3) if 0 <= i < n])
    return asked


def laplace(values: np.ndarray) -> np.ndarray:
    wide, centre = np.pad(values.astype(np.float64), 1), (slice(1, -1),) * values.ndim
    shifted = [np.roll(wide, by, axis)[centre] for axis in range(values.ndim) for by in (-1, 1)]
    return sum(shifted) - 2 * values.ndim * values.astype(np.float64)


def five_points(width: int) -> Case:
    return plane(width // 2 + 3, width)


def plane(height: int, width: int) -> Case:
    values = DATA[: height * width].reshape(height, width)
    grid = (blocks_of(width, 16), blocks_of(height, 8))
    return Case(grid, (16, 8), [Fresh((height, width)), values, height, width], {0: laplace(values)})


def seven_points(width: int) -> Case:
    depth, height = 5, width // 2 + 1
    return points(depth, height, width)


def points(depth: int, height: int, width: int) -> Case:
    values = DATA[: depth * height * width].reshape(depth, height, width)
    grid = (blocks_of(width, 14), blocks_of(height, 6))
    return Case(grid, (16, 8), [Fresh(values.shape), values, depth, height, width], {0: laplace(values)})


def convolution(n: int) -> Case:
    weights = DATA[-9:]
    expected = np.correlate(DATA[:n].astype(np.float64), weights.astype(np.float64))
    return Case(blocks_of(n), BLOCK, [Fresh(n - 8), DATA[:n], n], {0: expected}, constants={"weights": weights})


SIDES, LONG_SIDES = (1, 33, 70), (2, 31, 32, 64, 65, 100)
naive, naive_square = product((16, 16), (16, 16))
blocked, blocked_square = product((32, 32), (8, 8))
fragments, fragments_square = product((16, 16), (32, 1), np.float16)
half, half_square = product((16, 8), (32, 1), np.float16)
TRANSPOSES = tuple(
    sample("transposes", kernel, transposed, *facts, sizes=SIDES, long_sizes=LONG_SIDES, mutant_sizes=(50,))
    for kernel, facts in {
        "transpose_naive": [
            Fact((64,), 4, per_request("copy", "global", "load", "sectors"), square_transposed),
            Fact((64,), 32, per_request("copy", "global", "store", "sectors"), square_transposed),
        ],
        "transpose_tiled": [
            Fact((64,), 4, per_request("copy", "global", "store", "sectors"), square_transposed),
            Fact((64,), 32, per_request("copy", "shared", "load", "wavefronts"), square_transposed),
        ],
        "transpose_padded": [
            Fact((64,), 4, per_request("copy", "global", "store", "sectors"), square_transposed),
            Fact((64,), 1, per_request("copy", "shared", "load", "wavefronts"), square_transposed),
            Fact((64,), 0, total("shared_conflicts"), square_transposed),
        ],
    }.items()
)
MATMULS = tuple(
    sample("matmuls", kernel, case, *facts, sizes=sizes, mutant_sizes=(20, 13), long_sizes=(2, 16, 31, 32, 50))
    for kernel, case, sizes, facts in [
        # A warp is two rows of 16: of a it needs two words, of b 16 side by side.
        (
            "matmul_naive", naive, (1, 17, 33),
            [Fact((16, 32), 2, per_request("product", "global", "load", "sectors"), naive_square)],
        ),
        # Each element is loaded once per tile of the other side: n / 16 times.
        (
            "matmul_tiled", naive, (1, 17, 33),
            [
                Fact((16, 32, 64), lambda n: n // 16 * 2 * n * n // 8, total("global_load_sectors"), naive_square),
                Fact((16, 32, 64), lambda n: 2 * n * n * 4, total("unique_bytes_read"), naive_square),
            ],
        ),
        (
            "matmul_register_blocked", blocked, (1, 33),
            [
                Fact((32,), 1, per_request("operands", "shared", "load", "wavefronts"), blocked_square),
                # 8 words for 16 products, by 2 warps
                Fact((32,), 2 * 8 * 32, at("operands", "shared", "load", "requests"), blocked_square),
            ],
        ),
        (
            "matmul_double_buffered", naive, (1, 17, 33),
            [Fact((16, 32), lambda n: n // 16 * 2 * n * n // 8, total("global_load_sectors"), naive_square)],
        ),
        (
            "matmul_mma", half, (1, 17, 33),
            [Fact((16, 32), lambda n: (n // 16) ** 2 * n // 8, mix("tensor"), half_square)],
        ),
        (
            "matmul_wmma", fragments, (1, 17, 33),
            [Fact((16, 32), lambda n: (n // 16) ** 3, mix("tensor"), fragments_square)],
        ),
    ]
)  # fmt: skip
TILES = (
    *TRANSPOSES,
    sample(
        "transposes",
        "bank_stride",
        strided,
        Fact((1, 2, 3, 4, 8, 12, 16, 31, 32), lambda s: math.gcd(s, 32), at("strided", "shared", "load", "wavefronts")),
        Fact(
            (7, 10, 24),
            lambda s: wavefronts([t * s % 1024 for t in range(32)]),
            at("strided", "shared", "load", "wavefronts"),
        ),
        sizes=(1, 7, 32),
        mutant_sizes=(7,),
        long_sizes=tuple(range(2, 32)),
    ),
    *MATMULS,
    sample(
        "stencils", "stencil_1d", sums_of_seven, Fact((300, 384), seven_loads, at("load", "global", "load", "sectors"))
    ),
    sample(
        "stencils",
        "stencil_2d",
        five_points,
        Fact((32,), 4, per_request("store", "global", "store", "sectors"), lambda n: plane(16, n)),
        sizes=(1, 17, 40),
        mutant_sizes=(19,),
        long_sizes=LONG_SIDES,
    ),
    # 6 x 14 points, whose halo is beyond the edge, for all planes but the first.
    sample(
        "stencils",
        "stencil_3d",
        seven_points,
        Fact(
            (5,),
            lambda depth: (depth - 1) * 6 * 14 * 4,
            at("load", "global", "load", "bytes"),
            lambda d: points(d, 6, 14),
        ),
        sizes=(1, 15, 30),
        mutant_sizes=(17,),
        long_sizes=LONG_SIDES,
    ),
    # Of the array, 4 warps read 32 elements from 0 to 8 off their place; the 9 weights are the same for all.
    sample(
        "stencils",
        "convolve",
        convolution,
        Fact((136,), 4 * (4 + 5 * 7 + 4), at("product", "global", "load", "sectors")),
        sizes=(9, 136, 300),
        long_sizes=(10, 135, 137, 1000),
    ),
)
