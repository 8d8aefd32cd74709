"""Positions of the highest scores: what a sparse attention reads."""

from workbench.attention.ops.top_k_positions.api import OP, top_k_positions
from workbench.attention.ops.top_k_positions.cases import CASES, TopKCase
from workbench.attention.ops.top_k_positions.cuda_radix import VARIANT as CUDA_RADIX
from workbench.attention.ops.top_k_positions.problem import TopKProblem, TopKTensors
from workbench.attention.ops.top_k_positions.torch_sorted import VARIANT as TORCH
from workbench.attention.ops.top_k_positions.triton_bits import VARIANT as TRITON_BITS

VARIANTS = (TORCH, CUDA_RADIX, TRITON_BITS)

OP.add(*VARIANTS, *CASES.values())
OP.function = top_k_positions
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "TopKCase", "TopKProblem", "TopKTensors", "case", "top_k_positions"]
