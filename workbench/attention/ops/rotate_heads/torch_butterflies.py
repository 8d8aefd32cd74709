"""Butterflies in plain torch operations: the default on a CPU."""

from __future__ import annotations

import torch

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.rotate_heads.problem import RotationProblem, RotationTensors
from workbench.ops import TorchVariant


def compute(problem: RotationProblem, tensors: RotationTensors) -> None:
    """Fill ``tensors.out``.

    Every stage adds and subtracts the two halves of a block, whose highest bit becomes the lowest: after as many
    stages as an index has bits, each was added once and all are back in their places.
    """
    halves = 2, problem.block // 2
    x = tensors.heads.float().unflatten(-1, (-1, problem.block))
    for _ in range(problem.block.bit_length() - 1):
        a, b = x.unflatten(-1, halves).unbind(-2)
        x = torch.stack([a + b, a - b], -1).flatten(-2)
    tensors.out.copy_((x * problem.block**-0.5).flatten(-2))


VARIANT = TorchVariant(
    op="rotate_heads",
    name="torch",
    idea="butterflies over all blocks at once: plain torch",
    layouts=("any",),
    dtypes=tuple(DTYPES),
    compute=compute,
)
