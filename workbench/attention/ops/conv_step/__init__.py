"""One step of a causal convolution: the inputs before the newest are its state."""

from workbench.attention.ops.conv_step.api import OP, conv_step
from workbench.attention.ops.conv_step.cases import CASES, ConvCase
from workbench.attention.ops.conv_step.cuda_vectors import VARIANT as CUDA_VECTORS
from workbench.attention.ops.conv_step.problem import ConvProblem, ConvTensors
from workbench.attention.ops.conv_step.torch_formula import VARIANT as TORCH
from workbench.attention.ops.conv_step.triton_vectors import VARIANT as TRITON_VECTORS

VARIANTS = (TORCH, CUDA_VECTORS, TRITON_VECTORS)

OP.add(*VARIANTS, *CASES.values())
OP.function = conv_step
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "ConvCase", "ConvProblem", "ConvTensors", "case", "conv_step"]
