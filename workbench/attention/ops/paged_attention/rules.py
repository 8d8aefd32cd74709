"""Restrictions and default partition sizes that several variants share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from workbench.analysis.device_models import device_model, model_of_arch
from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem
from workbench.attention.ops.rules import grid
from workbench.errors import UnknownDeviceWarning
from workbench.ops import Config, Restriction, cdiv


def multiprocessors(problem: Any) -> int:
    """Return the number of multiprocessors of the problem's GPU.

    If the problem gives none, it is that of the first recorded device of its architecture (`device_models`), or without
    one that of the default model, with an UnknownDeviceWarning.
    """
    if problem.multiprocessors is not None:
        return problem.multiprocessors
    known = model_of_arch(problem.arch)
    if known is None:
        known = device_model()
        warnings.warn(
            f"the number of multiprocessors of a GPU of {problem.arch} is unknown: the untuned rule takes the "
            f"{known.multiprocessors:g} of {known.name}. Name a configuration, tune, or pass tensors on that GPU",
            UnknownDeviceWarning,
            stacklevel=2,
        )
    return int(known.multiprocessors)


def partition_size(
    problem: Any, sizes: Sequence[int], *, blocks_per_multiprocessor: int, heads: int | None = None
) -> int:
    """Return the largest of ``sizes`` (tokens) whose partitions still fill the GPU in one wave, else the smallest.

    A block is one of ``heads`` (default: the query heads) of one partition. Short partitions fill the GPU better and
    cost more partial results.
    """
    heads = problem.num_heads if heads is None else heads
    wanted = blocks_per_multiprocessor * multiprocessors(problem)
    for size in sorted(sizes, reverse=True):
        if heads * (problem.total_tokens // size) >= wanted:
            return size
    return min(sizes)


PARTITION_SIZES = (128, 256, 512, 1024, 2048)
"""Partition sizes, in tokens, of the kernels with a block for each query head."""


def longest_partitions(problem: PagedAttentionProblem) -> int:
    """Return the longest of `PARTITION_SIZES` that still give every multiprocessor four blocks, or programs."""
    return partition_size(problem, PARTITION_SIZES, blocks_per_multiprocessor=4)


WANTED_IN_FLIGHT = 25_000
"""Least bytes that a multiprocessor should have in flight, from an H200's bandwidth times latency."""

_PARTITION_COST = 128
"""Cost of a partition beside its own tokens, in tokens: filling the pipeline, query, pages, partial results.

It is an estimate; a measured one belongs in a tuned table.
"""


def balanced_partition_size(problem: PagedAttentionProblem, sizes: Sequence[int], *, resident: int) -> int:
    """Return the one of ``sizes`` (tokens) with which the last block ends first, the largest of equals.

    A block is a KV head's share of a partition, a multiprocessor runs ``resident`` of them at once, and a wave lasts as
    long as a partition. So the choice favours few waves of short partitions, and no wave that is nearly empty.
    """
    at_once = max(resident, 1) * multiprocessors(problem)
    average = -(-problem.total_tokens // max(problem.num_seqs, 1))

    def end(size: int) -> float:
        blocks = problem.num_kv_heads * problem.num_seqs * -(-average // size)
        return -(-blocks // at_once) * (min(size, average) + _PARTITION_COST)

    return min(sorted((size for size in sizes if size % problem.page == 0), reverse=True), key=end, default=max(sizes))


def partition_blocks(config: Config, problem: PagedAttentionProblem, heads: int) -> int:
    """Return the blocks of a launch: one per partition of the longest sequence, for each sequence and head."""
    return heads * problem.num_seqs * num_partitions(config, problem)


def num_partitions(config: Config, problem: Any) -> int:
    """Return the number of partitions of the longest sequence, at least one."""
    return max(cdiv(problem.max_seq_len, config["PARTITION_SIZE"]), 1)


PAGE_SIZE = Restriction.of("page size", "block_size in (None, BLOCK_SIZE)", "the page size of the cache")

GROUP = Restriction.of("group", "num_heads / num_kv_heads <= 16", "the rows of a tile of queries")

GRID = grid("num_seqs")

PARTITIONS = Restriction.of(
    "partitions", "cdiv(max_seq_len, PARTITION_SIZE) <= 65535", "the third dimension of a grid holds no more"
)

WHOLE_TILES = Restriction.of("whole tiles", "PARTITION_SIZE % BLOCK_SIZE == 0 and PARTITION_SIZE % TILE_TOKENS == 0")
