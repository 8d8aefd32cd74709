"""What the partitions of a sequence leave for the block that is done last, and how it knows that it is."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.ops.kept_zeros import kept_zeros
from workbench.ops.paged_attention.problem import Problem, Tensors
from workbench.ops.scales import scale_strides
from workbench.ops.variant import Config


@dataclass(frozen=True)
class Partials:
    """Partial results of ``count`` partitions per sequence; empty tensors where that is one, which needs none.

    ``out [num_seqs, num_heads, count, head_size]`` float32 holds the sums of ``exp2(score - max) * V`` and
    ``stats [num_seqs, num_heads, count, 2]`` float32 the maximum and the sum of the weights. Partitions past the end of
    a sequence, or before its window, are never written, nor read; nor is the only one of a sequence.

    ``counters [num_seqs * num_heads]`` int32: how many blocks of a sequence and (KV) head are done. Zeros before a
    launch, and after it, since the last block of each sets its own back (`workbench.ops.kept_zeros`).
    """

    out: torch.Tensor
    stats: torch.Tensor
    counters: torch.Tensor
    count: int

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        """In the order of every kernel's parameters."""
        return self.out, self.stats, self.counters


def partials(config: Config, problem: Problem, tensors: Tensors) -> Partials:
    """Uninitialised partial results for every partition of PARTITION_SIZE tokens, at least one per sequence."""
    count = max(-(-problem.max_seq_len // config["PARTITION_SIZE"]), 1)
    device, split = tensors.query.device, count > 1
    shape = (problem.num_seqs, problem.num_heads, count if split else 0)
    return Partials(
        out=torch.empty(*shape, problem.head_size, dtype=torch.float32, device=device),
        stats=torch.empty(*shape, 2, dtype=torch.float32, device=device),
        counters=kept_zeros(problem.num_seqs * problem.num_heads if split else 0, device),
        count=count,
    )


def scale_places(scale: torch.Tensor | None, block_size: int) -> tuple[int, int, int]:
    """How far apart the scales of two pages, of two tokens of a page and of two KV heads are."""
    slot, head = scale_strides(scale)
    return slot * block_size, slot, head


def scale_or_one(scale: torch.Tensor | None, problem: Problem, unused: torch.Tensor) -> torch.Tensor:
    """The scale, or 1 for a quantized cache without one; for any other cache ``unused``, as nobody reads it."""
    if scale is None and problem.quantized:
        return torch.ones(1, dtype=torch.float32, device=unused.device)
    return unused if scale is None else scale
