"""What a kernel that writes tokens into pages is compiled and launched for, and the tensors of one run."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.ops.cache_problem import STRIDES, CacheProblem
from workbench.ops.rules import grid
from workbench.ops.run_tensors import RunTensors, made
from workbench.ops.steps import Arguments


@dataclass(frozen=True)
class Problem(CacheProblem):
    """The sizes of one write. ``num_tokens`` counts the skipped ones too; ``block_size`` is the page size in tokens.

    ``alignment`` is what the rows of key and value keep, in bytes: no vector may be wider. ``features`` is
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
class Tensors(RunTensors):
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
"""What kernels take beside tensors and sizes of their names."""

GRID = grid("num_kv_heads")
