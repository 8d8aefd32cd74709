"""Partial results of a sequence's partitions, and the counters by which the last block knows that it is the last."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem, PagedAttentionTensors
from workbench.attention.ops.paged_attention.rules import num_partitions
from workbench.ops import Config
from workbench.ops.tensors import kept_zeros


@dataclass(frozen=True)
class Partials:
    """Partial results of each sequence's partitions; empty tensors if there is only one, which needs none.

    ``partial_out [num_seqs, num_heads, partitions, head_size]`` float32 holds the sums of ``exp2(score - max) * V`` and
    ``partial_stats [num_seqs, num_heads, partitions, 2]`` float32 the maximum and the sum of the weights. Partitions
    past the end of a sequence, or before its window, are never written, nor read; nor is the only one of a sequence.

    ``counters [num_seqs * num_heads]`` int32 count the blocks of a sequence and (KV) head that are done. They are zeros
    before and after a launch, since the last block of each resets its own (`workbench.ops.tensors.zeros`).
    """

    partial_out: torch.Tensor
    partial_stats: torch.Tensor
    counters: torch.Tensor


def partials(config: Config, problem: PagedAttentionProblem, tensors: PagedAttentionTensors) -> Partials:
    """Return uninitialised partial results for every partition of PARTITION_SIZE tokens, at least one per sequence."""
    shape = problem.num_seqs, problem.num_heads, num_partitions(config, problem), problem.head_size
    return allocated(*shape, tensors.query.device)


def allocated(num_seqs: int, num_heads: int, partitions: int, size: int, device: torch.device) -> Partials:
    """Return uninitialised partial results, of ``size`` elements a head; empty tensors for a single partition."""
    if partitions == 1:
        return _nothing(device)
    shape = (num_seqs, num_heads, partitions)
    return Partials(
        partial_out=torch.empty(*shape, size, dtype=torch.float32, device=device),
        partial_stats=torch.empty(*shape, 2, dtype=torch.float32, device=device),
        counters=kept_zeros(num_seqs * num_heads, device),
    )


@functools.cache
def _nothing(device: torch.device) -> Partials:
    sums, counters = (torch.empty(0, dtype=dtype, device=device) for dtype in (torch.float32, torch.int32))
    return Partials(sums, sums, counters)
