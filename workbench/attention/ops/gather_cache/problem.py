"""Sizes and tensors of the kernels that read tokens out of pages."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.ops.cache_problem import CacheProblem
from workbench.attention.ops.rules import grid
from workbench.ops import Config, cdiv
from workbench.ops.tensors import RunTensors, made


@dataclass(frozen=True)
class GatherCacheProblem(CacheProblem):
    """Sizes of one read. ``dtype`` is that of the result; ``features`` is ``(kv_cache_dtype,)`` if quantized."""

    num_seqs: int
    max_seq_len: int
    num_tokens: int
    num_kv_heads: int
    head_size: int
    dtype: str
    layout: str = "x"
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass
class GatherCacheTensors(RunTensors):
    """Tensors of one run.

    ``starts [num_seqs] int64`` is where each sequence begins in ``keys`` and ``values``, which are written. ``out`` is
    the bytes of both, which are judged.
    """

    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    starts: torch.Tensor | None = made()
    out: torch.Tensor | None = made()


GRID = grid("num_kv_heads", "num_seqs")


def blocks(config: Config, problem: GatherCacheProblem) -> tuple[int, int, int]:
    """Return the grid: tiles of the longest sequence, KV heads, sequences."""
    return cdiv(problem.max_seq_len, config["TILE_TOKENS"]), problem.num_kv_heads, problem.num_seqs
