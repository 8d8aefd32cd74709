"""Copying pages inside a paged cache, all layers at once."""

from workbench.attention.ops.copy_blocks import cuda_vectors, triton_vectors
from workbench.attention.ops.copy_blocks.api import OP, copy_blocks
from workbench.attention.ops.copy_blocks.cases import CASES, Case
from workbench.attention.ops.copy_blocks.problem import Problem, Tensors
from workbench.attention.ops.copy_blocks.torch_indexed import VARIANT as TORCH

VARIANTS = (TORCH, cuda_vectors.variant("copy_blocks"), triton_vectors.variant("copy_blocks"))

OP.add(*VARIANTS, *CASES.values())
OP.function = copy_blocks
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "Case", "Problem", "Tensors", "case", "copy_blocks"]
