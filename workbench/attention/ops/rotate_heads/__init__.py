"""Hadamard rotation of heads: outliers of a few channels are spread over all before they are quantized."""

from workbench.attention.ops.rotate_heads.api import OP, rotate_heads
from workbench.attention.ops.rotate_heads.cases import CASES, RotationCase
from workbench.attention.ops.rotate_heads.cuda_butterflies import VARIANT as CUDA_BUTTERFLIES
from workbench.attention.ops.rotate_heads.problem import RotationProblem, RotationTensors
from workbench.attention.ops.rotate_heads.torch_butterflies import VARIANT as TORCH
from workbench.attention.ops.rotate_heads.triton_butterflies import VARIANT as TRITON_BUTTERFLIES

VARIANTS = (TORCH, CUDA_BUTTERFLIES, TRITON_BUTTERFLIES)

OP.add(*VARIANTS, *CASES.values())
OP.function = rotate_heads
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "RotationCase", "RotationProblem", "RotationTensors", "case", "rotate_heads"]
