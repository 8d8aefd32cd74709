"""What the partitions of a sequence leave for the kernel that combines them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.ops.paged_attention.problem import Problem, Tensors
from workbench.ops.scales import scale_strides
from workbench.ops.variant import Config


@dataclass(frozen=True)
class Partials:
    """Partial results of ``count`` partitions per sequence, in fp32.

    ``out [num_seqs, num_heads, count, head_size]`` holds the sums of ``exp2(score - max) * V`` and
    ``stats [num_seqs, num_heads, count, 2]`` the maximum and the sum of the weights. Partitions past the end of a
    sequence are never written, nor read.
    """

    out: torch.Tensor
    stats: torch.Tensor
    count: int


def partials(config: Config, problem: Problem, tensors: Tensors) -> Partials:
    """Uninitialised partial results for every partition of PARTITION_SIZE tokens, at least one per sequence."""
    count = max(-(-problem.max_seq_len // config["PARTITION_SIZE"]), 1)
    device = tensors.query.device
    shape = (problem.num_seqs, problem.num_heads, count)
    return Partials(
        out=torch.empty(*shape, problem.head_size, dtype=torch.float32, device=device),
        stats=torch.empty(*shape, 2, dtype=torch.float32, device=device),
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
