"""The sizes of one causal attention, and the tensors of one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from workbench.attention.ops import dtypes
from workbench.attention.ops.cache_problem import AttentionProblem
from workbench.attention.ops.rules import grid
from workbench.ops import Arguments, Config, Restriction, cdiv
from workbench.ops.tensors import RunTensors, made

DTYPES = {"float64": torch.float64, **dtypes.DTYPES}
"""The dtypes of query, key, value and output by name."""


@dataclass(frozen=True)
class CausalAttentionProblem(AttentionProblem):
    """Sizes of one causal attention: ``num_queries`` new tokens at the end of ``num_tokens``.

    ``block_size`` is that of the blockwise form. ``alignment`` is that of the rows of query, key and value, in bytes.
    ``features`` is ("lengths",) where sequences are padded to one length.
    """

    num_seqs: int
    num_heads: int
    num_kv_heads: int
    num_queries: int
    num_tokens: int
    head_size: int
    dtype: str
    block_size: int = 16
    alignment: int = 16
    layout: str = "heads first"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


class Read(Protocol):
    """Tensors and numbers that both the forward and the backward pass read."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scale: float | None
    query_lens: torch.Tensor | None
    seq_lens: torch.Tensor | None


@dataclass
class CausalAttentionTensors(RunTensors):
    """The tensors and numbers of one run; ``output`` and ``lse`` are what a variant fills.

    query, output ``[num_seqs, num_heads, num_queries, head_size]``; key, value ``[num_seqs, num_kv_heads, num_tokens,
    head_size]``; lse ``[num_seqs, num_heads, num_queries]`` float32 (of float64 float64), the logarithm of the sum of
    exp(score), None where it is not wanted; query_lens, seq_lens ``[num_seqs] int32``, both or None.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scale: float | None
    output: torch.Tensor = made()
    lse: torch.Tensor | None = made()
    query_lens: torch.Tensor | None = None
    seq_lens: torch.Tensor | None = None
    out: torch.Tensor | None = made()
    """Result that is judged: the output, or the bytes of output and lse."""


def lse_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the logarithms for a query's dtype: float64 for float64, float32 for all others."""
    return torch.promote_types(dtype, torch.float32)


def strides(name: str) -> Arguments:
    """Return the arguments for the strides of a tensor between sequences, heads and tokens, in elements."""

    def along(dimension: int) -> Callable[[Config, Any, Any], int]:
        return lambda config, problem, tensors: getattr(tensors, name).stride(dimension)

    return {f"{name}_{what}_stride": along(i) for i, what in enumerate(("seq", "head", "token"))}


STRIDES: Arguments = strides("query") | strides("key") | strides("value")


def blocks(config: Config, problem: CausalAttentionProblem) -> tuple[int, int, int]:
    """Return the grid of the forward kernels: tiles of BLOCK_M queries, heads, sequences."""
    return cdiv(problem.num_queries, config["BLOCK_M"]), problem.num_heads, problem.num_seqs


GRID = grid("num_heads", "num_seqs")

ROWS = Restriction.of("16-byte rows", "alignment >= 16", "rows of query, key and value start so; call .contiguous()")
WHOLE_STEPS = Restriction.of("whole 16-byte steps", "head_size % 8 == 0 and head_size <= 256", "8 elements each")
