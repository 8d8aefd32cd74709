"""Sizes and tensors of the kernels that rotate heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.ops.cache_problem import ElementProblem
from workbench.ops import Arguments
from workbench.ops.tensors import RunTensors


@dataclass(frozen=True)
class RotationProblem(ElementProblem):
    """The sizes of one rotation: heads of ``head_size`` elements, in blocks of ``block`` that are rotated each."""

    num_tokens: int
    num_heads: int
    head_size: int
    block: int
    dtype: str
    layout: str = "any"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"

    @property
    def num_elements(self) -> int:
        """Number of elements of all heads."""
        return self.num_tokens * self.num_heads * self.head_size


@dataclass
class RotationTensors(RunTensors):
    """The tensors of one run; ``out`` is what a variant fills.

    heads ``[num_tokens, num_heads, head_size]``, tokens any distance apart; out the same, contiguous; ``block`` is the
    number of neighbouring elements that are rotated together.
    """

    heads: torch.Tensor
    block: int
    out: torch.Tensor


ARGUMENTS: Arguments = {"token_stride": lambda config, problem, tensors: tensors.heads.stride(0)}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""
