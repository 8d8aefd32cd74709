"""The suite's idioms: short kernels that are right by one rule each."""

from __future__ import annotations

import numpy as np
from suite_cases_sums import BLOCK, INTEGERS, LENGTHS, LONG_LENGTHS, ONE, VALUES, blocks_of, in_parts, sample
from suite_sample import Case, Fact, Fresh, at, mix, per_request, total


def votes(n: int) -> Case:
    parts = in_parts(VALUES[:n], BLOCK)
    expected = (parts % 2).sum(1) + 1000 * (parts == 7).any(1)
    args = [Fresh(n, np.int32), VALUES[:n], n]
    return Case(blocks_of(n), BLOCK, args, {0: np.repeat(expected, BLOCK)[:n]})


def thirds(n: int) -> Case:
    kept = VALUES[:n][VALUES[:n] % 3 == 0]
    args = [Fresh(len(kept), np.int32), np.zeros(1, np.int32), VALUES[:n], n]
    return Case(blocks_of(n), BLOCK, args, {0: kept, 1: np.array([len(kept)])}, any_order=True)


def by_block(rearranged):
    """``rearranged``: what becomes of [blocks, 128]."""

    def case(n: int) -> Case:
        expected = rearranged(in_parts(INTEGERS[:n], BLOCK)).reshape(-1)[:n]
        return Case(blocks_of(n), BLOCK, [Fresh(n, np.int32), INTEGERS[:n], n], {0: expected})

    return case


def exchanged(parts: np.ndarray) -> np.ndarray:
    t = np.arange(BLOCK)
    return parts[:, np.where(t % 32 < 16, t ^ 1, t ^ 8)]


def reused(parts: np.ndarray) -> np.ndarray:
    return parts[:, ::-1] + np.repeat(np.arange(4), BLOCK // 4) * 0x01010101


def reversed_without_rest(n: int) -> Case:
    expected = np.concatenate([INTEGERS[i : min(i + BLOCK, n)][::-1] for i in range(0, n, BLOCK)])
    return Case(blocks_of(n), BLOCK, [Fresh(n, np.int32), INTEGERS[:n], n], {0: expected})


def double_sum(n: int) -> Case:
    expected = INTEGERS[:n].sum(keepdims=True).astype(np.float64)
    return Case(blocks_of(n), BLOCK, [np.zeros(1), INTEGERS[:n], n], {0: expected})


def chain(blocks: int) -> Case:
    args = [Fresh(blocks, np.int32), INTEGERS[:blocks], blocks, np.zeros(blocks, np.int32)]
    return Case(blocks, 32, args, {0: np.cumsum(INTEGERS[:blocks])})


IDIOMS = (
    sample("idioms", "vote_counts", votes, Fact(ONE, 4 * 2, mix("sync"))),
    sample(
        "idioms",
        "opportunistic_append",
        thirds,
        Fact((256,), lambda n: 4 * int((VALUES[:n] % 3 == 0).sum()), at("append", "global", "store", "bytes")),
        sizes=(9, *LENGTHS[1:]),
        long_sizes=LONG_LENGTHS[2:],
    ),
    sample(
        "idioms",
        "half_warps",
        by_block(exchanged),
        Fact(ONE, 1, per_request("exchange", "shared", "load", "wavefronts")),
    ),
    sample(
        "idioms",
        "early_exit",
        reversed_without_rest,
        Fact(ONE, 1, per_request("reverse", "shared", "load", "wavefronts")),
    ),
    # 32 bytes side by side are 8 words.
    sample("idioms", "reused_bytes", by_block(reused), Fact(ONE, 0, total("shared_conflicts"))),
    # The lanes go one after the other, each with one try that fails but for the first.
    sample(
        "idioms",
        "cas_sum",
        double_sum,
        Fact((32,), 8 * 32 * 33 // 2, at("try", "global", "atomic", "bytes")),
        sizes=(1, 33, 130),
        mutant_sizes=(130,),
        long_sizes=(2, 31, 32, 300),
    ),
    sample(
        "idioms",
        "release_chain",
        chain,
        Fact((5,), 1, per_request("hand on", "global", "store", "sectors")),
        sizes=(1, 2, 7),
        mutant_sizes=(5,),
        long_sizes=(33,),
    ),
)
