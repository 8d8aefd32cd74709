"""Copying pages inside a paged cache, all layers at once."""

from workbench.ops.copy_blocks.api import copy_blocks
from workbench.ops.copy_blocks.cases import CASES, Case, case
from workbench.ops.copy_blocks.cuda_vectors import VARIANT as CUDA_VECTORS
from workbench.ops.copy_blocks.problem import Problem, Tensors
from workbench.ops.copy_blocks.torch_indexed import VARIANT as TORCH
from workbench.ops.copy_blocks.triton_vectors import VARIANT as TRITON_VECTORS
from workbench.ops.op import Op

VARIANTS = (TORCH, CUDA_VECTORS, TRITON_VECTORS)

OP = Op(name="copy_blocks", variants=VARIANTS, cases=CASES, function=copy_blocks)

__all__ = ["CASES", "OP", "VARIANTS", "Case", "Problem", "Tensors", "case", "copy_blocks"]
