"""The suite's sorts, what a language model does to rows, and threads that wait for each other."""

from __future__ import annotations

import numpy as np
from suite_cases_sums import BLOCK, DATA, INTEGERS, LENGTHS, LONG_LENGTHS, ONE, VALUES, blocks_of, in_parts, sample
from suite_sample import Case, Fact, Fresh, at, mix, per_request, total


def sorted_parts(n: int) -> Case:
    parts = in_parts(DATA[:n], BLOCK)
    parts.reshape(-1)[n:] = np.inf
    return Case(blocks_of(n), BLOCK, [Fresh(n), DATA[:n], n], {0: np.sort(parts, 1).reshape(-1)[:n]})


def sorted_in_place(n: int) -> Case:
    return Case(1, BLOCK, [DATA[:n], n], {0: np.sort(DATA[:n])})


def split_by_bit(n: int) -> Case:
    values, bit = VALUES[:n].astype(np.uint32), 2
    parts = [values[i : i + BLOCK] for i in range(0, n, BLOCK)]
    expected = np.concatenate([part[np.argsort(part >> bit & 1, kind="stable")] for part in parts])
    return Case(blocks_of(n), BLOCK, [Fresh(n, np.uint32), values, n, bit], {0: expected})


def kept(n: int) -> Case:
    positive = DATA[:n][DATA[:n] > 0]
    args = [Fresh(len(positive)), Fresh(1, np.int32), DATA[:n], n]
    return Case(1, BLOCK, args, {0: positive, 1: np.array([len(positive)])})


def largest(columns: int) -> Case:
    rows, k = 5, min(4, columns)
    values = DATA[: rows * columns].reshape(rows, columns)
    order = np.argsort(-values, 1, kind="stable")[:, :k]
    args = [Fresh((rows, k)), Fresh((rows, k), np.int32), values, rows, columns, k]
    return Case(2, BLOCK, args, {0: np.take_along_axis(values, order, 1), 1: order}, shared_bytes=16 * columns)


def softmax(columns: int) -> Case:
    values = DATA[: 3 * columns].reshape(3, columns) * np.float32(10)
    e = np.exp(values - values.max(1, keepdims=True).astype(np.float64))
    return Case(3, BLOCK, [Fresh((3, columns)), values, columns], {0: e / e.sum(1, keepdims=True)}, tolerance=1e-4)


def layer_norm(columns: int) -> Case:
    values = DATA[: 2 * columns].reshape(2, columns) + np.float32(3)
    weight, bias = DATA[-columns:], DATA[-2 * columns : -columns]
    centred = values - values.mean(1, keepdims=True, dtype=np.float64)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * weight + bias
    return Case(2, BLOCK, [Fresh((2, columns)), values, weight, bias, columns], {0: expected}, tolerance=1e-4)


def rms_norm(columns: int) -> Case:
    values, weight = DATA[: 5 * columns].reshape(5, columns), DATA[-columns:]
    scale = 1 / np.sqrt((values.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6)
    return Case(
        2, BLOCK, [Fresh((5, columns)), values, weight, 5, columns], {0: values * scale * weight}, tolerance=1e-4
    )


def turned(head_size: int) -> Case:
    tokens, num_heads, half = 3, 3, head_size // 2
    heads = DATA[: tokens * num_heads * head_size].reshape(tokens, num_heads, head_size)
    positions = np.array([7, 0, 11], np.int32)
    angles = np.arange(12)[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos_sin = np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    low, high = heads[..., :half], heads[..., half:]
    turn = (low + 1j * high) * np.exp(1j * angles[positions])[:, None]
    expected = np.concatenate([turn.real, turn.imag], 2)
    return Case(tokens, 64, [heads, positions, cos_sin, num_heads, head_size], {0: expected})


def locked_total(n: int) -> Case:
    expected = {0: INTEGERS[:n].sum(keepdims=True)}
    return Case(blocks_of(n), BLOCK, [np.zeros(1, np.int32), INTEGERS[:n], n, np.zeros(1, np.int32)], expected)


def warps_total(n: int) -> Case:
    return Case(1, BLOCK, [Fresh(1, np.int32), INTEGERS[:n], n], {0: INTEGERS[:n].sum(keepdims=True)})


def reversed_runs(length: int, block: int, in_elements: bool = False):
    def case(runs: int) -> Case:
        n = runs * length
        expected = DATA[:n].reshape(runs, length)[:, ::-1].reshape(-1)
        return Case(1, block, [Fresh(n), DATA[:n], n if in_elements else runs], {0: expected})

    return case


WIDTHS, LONG_WIDTHS = (1, 33, 129), (2, 31, 32, 64, 128, 300, 1000)
ROWS = (
    # 25 of the 28 steps keep all 4 warps busy, those of distance 32 and 64 two; each pair is read.
    sample(
        "sorts",
        "bitonic_sort",
        sorted_parts,
        Fact(ONE, 2 * (25 * 4 + 3 * 2), at("pair", "shared", "load", "wavefronts")),
        Fact(ONE, 2 * 28 * 64 * 4, at("pair", "shared", "load", "bytes")),
    ),
    # Batcher's network has ((log n)^2 - log n + 4) n / 4 - 1 comparators.
    sample(
        "sorts",
        "odd_even_merge_sort",
        sorted_parts,
        Fact(ONE, 2 * 4 * ((7 * 7 - 7 + 4) * 128 // 4 - 1), at("pair", "shared", "load", "bytes")),
    ),
    # 64 and 63 pairs in turns.
    sample(
        "sorts",
        "transposition_sort",
        sorted_in_place,
        Fact(ONE, 2 * 4 * 64 * (64 + 63), at("pair", "global", "load", "bytes")),
        long_sizes=(2, 31, 32, 33, 128, 257),
    ),
    sample("sorts", "radix_split", split_by_bit, Fact(ONE, 4 + 4, mix("sync"))),
    sample(
        "sorts",
        "compact",
        kept,
        Fact((256,), 2 * 4 * 3, mix("sync")),
        sizes=(4, *LENGTHS[1:]),
        long_sizes=LONG_LENGTHS[1:],
    ),
    # 5 rounds of two shuffles, for each of k = 4 winners in each of 5 rows.
    sample(
        "sorts",
        "top_k",
        largest,
        Fact((64,), 4, per_request("load", "global", "load", "sectors")),
        Fact((64,), 5 * 4 * 10, mix("sync")),
        sizes=(1, 33, 100),
        mutant_sizes=(33,),
    ),
    sample(
        "rows",
        "softmax_online",
        softmax,
        Fact((256,), 4, per_request("pass", "global", "load", "sectors")),
        sizes=WIDTHS,
        mutant_sizes=(150,),
        long_sizes=LONG_WIDTHS,
    ),
    # Three passes over two rows, one over weight and bias for each row.
    sample(
        "rows",
        "layer_norm",
        layer_norm,
        Fact((256,), 2 * (3 + 2) * 256 // 8, total("global_load_sectors")),
        Fact((256,), (2 + 2) * 256 * 4, total("unique_bytes_read")),
        sizes=WIDTHS,
        mutant_sizes=(150,),
        long_sizes=LONG_WIDTHS,
    ),
    sample(
        "rows",
        "rms_norm",
        rms_norm,
        Fact((64,), 5 * 5, mix("sync")),
        sizes=WIDTHS,
        mutant_sizes=(33,),
        long_sizes=LONG_WIDTHS,
    ),
    sample(
        "rows",
        "rope",
        turned,
        Fact((64,), 4, per_request("turn", "global", "store", "sectors")),
        sizes=(2, 10, 64),
        mutant_sizes=(10,),
        long_sizes=(32, 80, 128),
    ),
    sample("pipelines", "spin_lock", locked_total, Fact((300,), 3, at("under the lock", "global", "load", "requests"))),
    sample("pipelines", "warps_lock", warps_total, Fact((300,), 4, at("under the lock", "shared", "load", "requests"))),
    sample(
        "pipelines",
        "stream_async",
        reversed_runs(BLOCK, BLOCK, in_elements=True),
        Fact((5,), 4, per_request("copy", "global", "load", "sectors")),
        Fact((5,), 0, total("shared_conflicts")),
        sizes=(1, 2, 3, 7),
        mutant_sizes=(5, 1),
        long_sizes=(4, 20),
    ),
    sample(
        "pipelines",
        "named_barriers",
        reversed_runs(64, BLOCK),
        Fact((5,), 4, per_request("bring", "global", "load", "sectors")),
        Fact((5,), 1, per_request("take", "shared", "load", "wavefronts")),
        sizes=(1, 2, 3, 7),
        mutant_sizes=(5,),
        long_sizes=(4, 20),
    ),
    sample(
        "pipelines",
        "specialised_warps",
        reversed_runs(32, 64),
        Fact((5,), 4, per_request("bring", "global", "load", "sectors")),
        Fact((5,), 5, at("take", "shared", "load", "requests")),
        sizes=(1, 2, 3, 7),
        mutant_sizes=(5,),
        long_sizes=(4, 20),
    ),
)
