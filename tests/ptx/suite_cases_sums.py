"""The suite's sums: reductions, scans, histograms, and long sums over vectors and matrices."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from suite_sample import Case, Fact, Fresh, Sample, at, mix, per_request, total, wavefronts

BLOCK = 128
RNG = np.random.default_rng(5)
DATA = RNG.normal(size=1 << 16).astype(np.float32)
INTEGERS = RNG.integers(-50, 50, 1 << 14).astype(np.int32)
VALUES = RNG.integers(0, 32, 1 << 14).astype(np.int32)
LENGTHS, LONG_LENGTHS = (1, 127, 129, 300), (2, 31, 32, 33, 128, 255, 256, 257, 1000, 4097)


def blocks_of(n: int, size: int = BLOCK) -> int:
    return -(-n // size)


def in_parts(values: np.ndarray, size: int) -> np.ndarray:
    """[parts, size], the last one filled up with zeros."""
    out = np.zeros((blocks_of(len(values), size), size), values.dtype)
    out.reshape(-1)[: len(values)] = values
    return out


def block_sums(size: int):
    def case(n: int) -> Case:
        expected = in_parts(DATA[:n].astype(np.float64), size).sum(1)
        return Case(blocks_of(n, size), BLOCK, [Fresh(len(expected)), DATA[:n], n], {0: expected})

    return case


def one_sum(n: int) -> Case:
    return Case(2, BLOCK, [np.zeros(1, np.float32), DATA[:n], n], {0: DATA[:n].sum(dtype=np.float64, keepdims=True)})


def integer_sum(n: int) -> Case:
    args = [np.zeros(1, np.int32), INTEGERS[:n], n]
    return Case(blocks_of(n), BLOCK, args, {0: INTEGERS[:n].sum(keepdims=True)})


def last_block(n: int) -> Case:
    args = [Fresh(1), DATA[:n], n, Fresh(blocks_of(n)), np.zeros(1, np.uint32)]
    return Case(blocks_of(n), BLOCK, args, {0: DATA[:n].sum(dtype=np.float64, keepdims=True)})


def block_prefixes(n: int) -> Case:
    expected = np.cumsum(in_parts(DATA[:n].astype(np.float64), BLOCK), 1).reshape(-1)[:n]
    return Case(blocks_of(n), BLOCK, [Fresh(n), DATA[:n], n], {0: expected})


def exclusive_prefixes(n: int) -> Case:
    parts = in_parts(DATA[:n].astype(np.float64), 2 * BLOCK)
    expected = (np.cumsum(parts, 1) - parts).reshape(-1)[:n]
    return Case(blocks_of(n, 2 * BLOCK), BLOCK, [Fresh(n), DATA[:n], n], {0: expected})


def integer_prefixes(n: int) -> Case:
    expected = np.cumsum(in_parts(INTEGERS[:n], BLOCK), 1).reshape(-1)[:n]
    return Case(blocks_of(n), BLOCK, [Fresh(n, np.int32), INTEGERS[:n], n], {0: expected})


def chained(n: int) -> Case:
    parts = blocks_of(n)
    args = [Fresh(n, np.int32), INTEGERS[:n], n, np.zeros(1, np.int32), Fresh(parts, np.int32)]
    return Case(parts, BLOCK, [*args, np.zeros(parts, np.int32)], {0: np.cumsum(INTEGERS[:n])})


def look_back(n: int) -> Case:
    args = [Fresh(n, np.int32), INTEGERS[:n], n, np.zeros(1, np.int32), np.zeros(blocks_of(n), np.uint64)]
    return Case(blocks_of(n), BLOCK, args, {0: np.cumsum(INTEGERS[:n])})


def segmented(n: int) -> Case:
    heads = (VALUES[:n] % 7 == 0).astype(np.int32)
    expected = np.empty(n)
    for i in range(n):
        starts = i % BLOCK == 0 or heads[i]
        expected[i] = DATA[i] + (0.0 if starts else expected[i - 1])
    return Case(blocks_of(n), BLOCK, [Fresh(n), DATA[:n], heads, n], {0: expected})


def counts(grid):
    def case(n: int) -> Case:
        expected = np.bincount(VALUES[:n], minlength=32)
        return Case(grid(n), BLOCK, [np.zeros(32, np.int32), VALUES[:n], n], {0: expected})

    return case


def evens(n: int) -> Case:
    kept = VALUES[:n][VALUES[:n] % 2 == 0]
    args = [Fresh(len(kept), np.int32), np.zeros(1, np.int32), VALUES[:n], n]
    return Case(blocks_of(n), BLOCK, args, {0: kept, 1: np.array([len(kept)])}, any_order=True)


def dot(n: int) -> Case:
    a, b = DATA[:n], DATA[n : 2 * n]
    return Case(2, BLOCK, [np.zeros(1, np.float32), a, b, n], {0: np.array([a.astype(np.float64) @ b])}, tolerance=1e-4)


def sparse(rows_per_block: int, regular: bool = False):
    def case(rows: int) -> Case:
        rng = np.random.default_rng(rows)
        lengths = np.full(rows, 32) if regular else rng.permutation(np.arange(rows) * 5 % 40)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        columns = rng.integers(0, 50, starts[-1]).astype(np.int32)
        values, x = DATA[: starts[-1]], DATA[-50:]
        products = (values * x[columns]).astype(np.float64)
        expected = np.array([products[a:b].sum() for a, b in pairwise(starts)])
        args = [Fresh(rows), starts, columns, values, x, rows]
        return Case(blocks_of(rows, rows_per_block), BLOCK, args, {0: expected})

    return case


def gemv_int8(words: int) -> Case:
    rows = 5
    a, x = DATA[: 4 * words * rows].view(np.int8)[::4].reshape(rows, -1).copy(), DATA[-words:].view(np.int8)
    args = [Fresh(rows, np.int32), a, x, rows, words]
    return Case(2, BLOCK, args, {0: a.astype(np.int32) @ x.astype(np.int32)})


def gemv_double(columns: int) -> Case:
    rows = 3
    a, x = DATA[: rows * columns].astype(np.float64).reshape(rows, -1), DATA[-columns:].astype(np.float64)
    return Case(rows + 1, BLOCK, [Fresh(rows, np.float64), a, x, rows, columns], {0: a @ x}, tolerance=1e-12)


def nbody(n: int) -> Case:
    bodies = DATA[: 4 * n].reshape(n, 4)
    distance = bodies[None, :, :3].astype(np.float64) - bodies[:, None, :3]
    pull = bodies[None, :, 3] / ((distance**2).sum(2) + 0.01) ** 1.5
    args = [Fresh((n, 3)), bodies, n]
    return Case(blocks_of(n), BLOCK, args, {0: (pull[:, :, None] * distance).sum(1)}, tolerance=1e-4)


def up_sweep_wavefronts(_: int) -> int:
    """Of one block's reads of the left child, with one word of padding per 32."""
    passes, s, d = 0, 1, BLOCK
    while d:
        left = [s * (2 * t + 1) - 1 for t in range(d)]
        passes += sum(wavefronts([i + i // 32 for i in left[w : w + 32]]) for w in range(0, d, 32))
        s, d = 2 * s, d // 2
    return passes


def distinct_per_warp(n: int) -> int:
    return sum(len(set(VALUES[w : min(w + 32, n)].tolist())) for w in range(0, n, 32))


def sample(
    file: str, kernel: str, case, *facts: Fact, sizes=LENGTHS, mutant_sizes=(300,), long_sizes=LONG_LENGTHS
) -> Sample:
    return Sample(file, kernel, case, sizes, mutant_sizes, facts, long_sizes)


ONE = (BLOCK,)  # one full block
SUMS = (
    # 4 warps as long as s < 32, then 2, then 1; each reads two operands.
    sample(
        "reductions", "reduce_divergent", block_sums(BLOCK), Fact(ONE, 46, at("step", "shared", "load", "requests"))
    ),
    # 2 warps, then always 1. Elements 2 s apart: 2, 4, 4, 4, 4, 2, 1 passes.
    sample(
        "reductions",
        "reduce_conflicts",
        block_sums(BLOCK),
        Fact(ONE, 16, at("step", "shared", "load", "requests")),
        Fact(ONE, 2 * (2 * 2 + 4 + 4 + 4 + 4 + 2 + 1), at("step", "shared", "load", "wavefronts")),
    ),
    sample(
        "reductions",
        "reduce_sequential",
        block_sums(BLOCK),
        Fact(ONE, 16, at("step", "shared", "load", "requests")),
        Fact(ONE, 16, at("step", "shared", "load", "wavefronts")),
        Fact(ONE, 0, total("shared_conflicts")),
    ),
    sample(
        "reductions",
        "reduce_first_add",
        block_sums(2 * BLOCK),
        Fact((256,), 4, per_request("second load", "global", "load", "sectors")),
        Fact((256,), 8, total("global_load_requests")),
        mutant_sizes=(300, 400),
    ),
    sample(
        "reductions",
        "reduce_unrolled_warp",
        block_sums(BLOCK),
        Fact(ONE, 5, at("get", "shared", "load", "requests")),
        Fact(ONE, 0, total("shared_conflicts")),
    ),
    # One word per warp, read once.
    sample("reductions", "reduce_shuffle", block_sums(BLOCK), Fact(ONE, 5, total("shared_requests"))),
    sample(
        "reductions",
        "reduce_redux",
        integer_sum,
        Fact(ONE, 4, mix("sync")),
        Fact(ONE, 4, at("meet", "global", "atomic", "requests")),
    ),
    sample(
        "reductions",
        "reduce_multi",
        one_sum,
        Fact((1000,), 125, at("load", "global", "load", "sectors")),
        Fact((1000,), 2, at("meet", "global", "atomic", "requests")),
    ),
    sample("reductions", "reduce_last_block", last_block, Fact((300,), 1, at("collect", "global", "load", "requests"))),
    # s before: 4 warps for s < 32, then 3, then 2.
    sample(
        "scans",
        "scan_hillis_steele",
        block_prefixes,
        Fact(ONE, 25, at("s before", "shared", "load", "wavefronts")),
        Fact(ONE, 28, at("own", "shared", "load", "requests")),
    ),
    sample(
        "scans",
        "scan_blelloch",
        exclusive_prefixes,
        Fact((256,), up_sweep_wavefronts, at("up left", "shared", "load", "wavefronts")),
    ),
    sample(
        "scans", "scan_warp_shuffle", integer_prefixes, Fact(ONE, 4, per_request("store", "global", "store", "sectors"))
    ),
    sample("scans", "scan_chained", chained, Fact((300,), 3, at("hand on", "global", "store", "requests"))),
    sample("scans", "scan_look_back", look_back, Fact((256,), 4, per_request("store", "global", "store", "sectors"))),
    sample("scans", "scan_segmented", segmented, Fact(ONE, 0, total("shared_conflicts"))),
    sample(
        "histograms",
        "histogram_global",
        counts(blocks_of),
        Fact((1000,), 32, at("count", "global", "atomic", "requests")),
    ),
    sample(
        "histograms",
        "histogram_shared",
        counts(lambda n: 2),
        Fact((1000,), 2, at("count", "global", "atomic", "requests")),
    ),
    sample(
        "histograms",
        "histogram_aggregated",
        counts(blocks_of),
        Fact((1000,), lambda n: 4 * distinct_per_warp(n), at("count", "shared", "atomic", "bytes")),
    ),
    sample(
        "histograms",
        "append_even",
        evens,
        Fact((256,), 8 * 4, at("ticket", "global", "atomic", "bytes")),
        sizes=(9, *LENGTHS[1:]),
        long_sizes=LONG_LENGTHS[1:],
    ),
    sample(
        "vectors",
        "dot_vectorised",
        dot,
        Fact((1024,), 16, per_request("load", "global", "load", "sectors")),
        sizes=(4, 127, 130, 1100),
        mutant_sizes=(130,),
    ),
    sample(
        "vectors",
        "spmv_scalar",
        sparse(BLOCK),
        # Lanes 32 values apart, against lanes side by side.
        Fact((32,), 32, per_request("values", "global", "load", "sectors"), sparse(BLOCK, regular=True)),
        sizes=(1, 40, 130),
        mutant_sizes=(40,),
        long_sizes=(300,),
    ),
    sample(
        "vectors",
        "spmv_vector",
        sparse(BLOCK // 32),
        Fact((4,), 4, per_request("values", "global", "load", "sectors"), sparse(BLOCK // 32, regular=True)),
        sizes=(1, 7, 40),
        mutant_sizes=(7,),
        long_sizes=(300,),
    ),
    sample(
        "vectors",
        "gemv_int8",
        gemv_int8,
        Fact((32, 64), 4, per_request("product", "global", "load", "sectors")),
        sizes=(1, 33, 100),
        mutant_sizes=(33,),
        long_sizes=(2, 31, 32, 200),
    ),
    sample(
        "vectors",
        "gemv_double",
        gemv_double,
        Fact((128,), 8, per_request("product", "global", "load", "sectors")),
        sizes=(1, 127, 300),
        mutant_sizes=(130,),
    ),
    # 16 bytes for each lane go by half warps at best, even if they are the same.
    sample(
        "vectors",
        "nbody",
        nbody,
        Fact(ONE, 2, per_request("broadcast", "shared", "load", "wavefronts")),
        sizes=(1, 130),
        mutant_sizes=(130,),
        long_sizes=(127, 128, 300),
    ),
)
