"""Moving pages between two paged caches, all layers at once: preemption, and what a host cache keeps."""

from workbench.attention.ops.copy_blocks import cuda_vectors, triton_vectors
from workbench.attention.ops.copy_blocks.problem import Problem, Tensors
from workbench.attention.ops.swap_blocks.api import OP, swap_blocks
from workbench.attention.ops.swap_blocks.cases import CASES, Case
from workbench.attention.ops.swap_blocks.torch_indexed import VARIANT as TORCH

VARIANTS = (TORCH, cuda_vectors.variant("swap_blocks"), triton_vectors.variant("swap_blocks"))

OP.add(*VARIANTS, *CASES.values())
OP.function = swap_blocks
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "Case", "Problem", "Tensors", "case", "swap_blocks"]
