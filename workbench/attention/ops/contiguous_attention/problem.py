"""Sizes and tensors of the kernels for the contiguous cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.ops.cache_problem import STRIDES, AttentionProblem
from workbench.attention.ops.rules import grid
from workbench.ops import Arguments
from workbench.ops.tensors import RunTensors


@dataclass(frozen=True)
class ContiguousAttentionProblem(AttentionProblem):
    """Sizes of one decode step over a contiguous cache.

    Lengths are in tokens: ``max_seqlen`` is the capacity of a row of the cache, ``max_seq_len`` the longest sequence in
    it.
    """

    num_seqs: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    max_seqlen: int
    max_seq_len: int
    total_tokens: int
    dtype: str
    layout: str = "contiguous"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass
class ContiguousAttentionTensors(RunTensors):
    """The tensors and numbers of one run; ``out`` is what a variant fills.

    query, out ``[num_seqs, num_heads, head_size]``; kv_cache ``[rows, 2, num_kv_heads, max_seqlen, head_size]``;
    seq_lens, cache_rows ``[num_seqs] int32``.
    """

    query: torch.Tensor
    kv_cache: torch.Tensor
    seq_lens: torch.Tensor
    cache_rows: torch.Tensor
    scale: float
    out: torch.Tensor


ARGUMENTS: Arguments = STRIDES | {"row_stride": lambda config, problem, tensors: tensors.kv_cache.stride(0)}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""

GRID = grid("num_seqs")
