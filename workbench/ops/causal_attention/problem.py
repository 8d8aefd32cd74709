"""The sizes of one causal attention, and the tensors of one run."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.ops import element_types
from workbench.ops.cache_problem import Sizes

DTYPES = {"float64": torch.float64, **element_types.DTYPES}
"""The dtypes of query, key, value and output by name."""


@dataclass(frozen=True)
class Problem(Sizes):
    """``num_queries`` new tokens at the end of ``num_tokens``; ``block_size`` is that of the blockwise form."""

    num_seqs: int
    num_heads: int
    num_kv_heads: int
    num_queries: int
    num_tokens: int
    head_size: int
    dtype: str
    block_size: int = 16
    layout: str = "heads first"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass
class Tensors:
    """query, out ``[num_seqs, num_heads, num_queries, head_size]``; key, value ``[num_seqs, num_kv_heads, num_tokens,
    head_size]``."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scale: float
    out: torch.Tensor | None = None
