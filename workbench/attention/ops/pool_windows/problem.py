"""Sizes and tensors of the kernels that pool windows of tokens into entries."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.ops.cache_problem import ElementProblem
from workbench.ops.tensors import RunTensors


@dataclass(frozen=True)
class PoolProblem(ElementProblem):
    """The sizes of one pooling: windows of ``window`` tokens with ``head_size`` elements each."""

    num_windows: int
    window: int
    head_size: int
    dtype: str
    layout: str = "any"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass
class PoolTensors(RunTensors):
    """The tensors of one run; ``out`` is what a variant fills.

    values, gates ``[num_windows, window, head_size]``; position_bias ``[window, head_size] float32``; out
    ``[num_windows, head_size]``.
    """

    values: torch.Tensor
    gates: torch.Tensor
    position_bias: torch.Tensor
    out: torch.Tensor
