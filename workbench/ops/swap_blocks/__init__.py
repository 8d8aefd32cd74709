"""Moving pages between two paged caches, all layers at once: preemption, and what a host cache keeps."""

from workbench.ops.copy_blocks.problem import Problem, Tensors
from workbench.ops.op import Op
from workbench.ops.swap_blocks.api import swap_blocks
from workbench.ops.swap_blocks.cases import CASES, Case, case
from workbench.ops.swap_blocks.cuda_vectors import VARIANT as CUDA_VECTORS
from workbench.ops.swap_blocks.torch_indexed import VARIANT as TORCH
from workbench.ops.swap_blocks.triton_vectors import VARIANT as TRITON_VECTORS

VARIANTS = (TORCH, CUDA_VECTORS, TRITON_VECTORS)

OP = Op(name="swap_blocks", variants=VARIANTS, cases=CASES, function=swap_blocks)

__all__ = ["CASES", "OP", "VARIANTS", "Case", "Problem", "Tensors", "case", "swap_blocks"]
