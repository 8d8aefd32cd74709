"""Sizes and tensors of the kernels that write tokens into pages."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.ops.cache_problem import STRIDES, CacheProblem
from workbench.attention.ops.rules import grid
from workbench.ops import Arguments
from workbench.ops.tensors import RunTensors, made


@dataclass(frozen=True)
class ReshapeAndCacheProblem(CacheProblem):
    """Sizes of one write. ``num_tokens`` counts the skipped ones too; ``block_size`` is the page size in tokens.

    ``alignment`` is that of the rows of key and value, in bytes: no vector may be wider. ``features`` is
    ``(kv_cache_dtype,)`` for a quantized cache.
    """

    num_tokens: int
    num_kv_heads: int
    head_size: int
    dtype: str
    layout: str = "x"
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    alignment: int = 16
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass
class ReshapeAndCacheTensors(RunTensors):
    """The tensors of one run. The caches are written in place; ``out`` is the bytes of both, for whoever judges."""

    key: torch.Tensor
    value: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    slot_mapping: torch.Tensor
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    out: torch.Tensor | None = made()


ARGUMENTS: Arguments = STRIDES | {
    "key_stride": lambda config, problem, tensors: tensors.key.stride(0),
    "value_stride": lambda config, problem, tensors: tensors.value.stride(0),
}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""

GRID = grid("num_kv_heads")
