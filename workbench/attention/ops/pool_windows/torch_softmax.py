"""Pooled windows in plain torch operations: the default on a CPU."""

from __future__ import annotations

import torch

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.pool_windows.problem import PoolProblem, PoolTensors
from workbench.ops import TorchVariant


def compute(problem: PoolProblem, tensors: PoolTensors) -> None:
    """Fill ``tensors.out [num_windows, head_size]``."""
    t = tensors
    logits = t.gates.float() + t.position_bias
    highest = logits.amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
    weights = torch.exp(logits - highest)
    total = weights.sum(1).clamp(min=torch.finfo(torch.float32).tiny)
    t.out.copy_((weights * t.values.float()).sum(1) / total)


VARIANT = TorchVariant(
    op="pool_windows",
    name="torch",
    idea="the formula: a softmax over the tokens of each window, and a weighted sum",
    layouts=("any",),
    dtypes=tuple(DTYPES),
    compute=compute,
)
