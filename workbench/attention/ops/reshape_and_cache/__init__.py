"""Writing the keys and values of new tokens into a paged cache."""

from workbench.attention.ops.reshape_and_cache.api import OP, reshape_and_cache
from workbench.attention.ops.reshape_and_cache.cases import CASES, Case
from workbench.attention.ops.reshape_and_cache.cuda_tiled import VARIANT as CUDA_TILED
from workbench.attention.ops.reshape_and_cache.problem import Problem, Tensors
from workbench.attention.ops.reshape_and_cache.torch_indexed import VARIANT as TORCH
from workbench.attention.ops.reshape_and_cache.triton_tiled import VARIANT as TRITON_TILED

VARIANTS = (TORCH, CUDA_TILED, TRITON_TILED)

OP.add(*VARIANTS, *CASES.values())
OP.function = reshape_and_cache
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "Case", "Problem", "Tensors", "case", "reshape_and_cache"]
