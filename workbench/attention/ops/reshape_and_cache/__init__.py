"""Writing the keys and values of new tokens into a paged cache."""

from workbench.attention.ops.reshape_and_cache.api import OP, reshape_and_cache
from workbench.attention.ops.reshape_and_cache.cases import CASES, ReshapeAndCacheCase
from workbench.attention.ops.reshape_and_cache.cuda_scaled_groups import VARIANT as CUDA_SCALED_GROUPS
from workbench.attention.ops.reshape_and_cache.cuda_tiled import VARIANT as CUDA_TILED
from workbench.attention.ops.reshape_and_cache.problem import ReshapeAndCacheProblem, ReshapeAndCacheTensors
from workbench.attention.ops.reshape_and_cache.torch_indexed import VARIANT as TORCH
from workbench.attention.ops.reshape_and_cache.triton_scaled_groups import VARIANT as TRITON_SCALED_GROUPS
from workbench.attention.ops.reshape_and_cache.triton_tiled import VARIANT as TRITON_TILED

VARIANTS = (TORCH, CUDA_TILED, TRITON_TILED, CUDA_SCALED_GROUPS, TRITON_SCALED_GROUPS)

OP.add(*VARIANTS, *CASES.values())
OP.function = reshape_and_cache
case = OP.case

__all__ = [
    "CASES",
    "OP",
    "VARIANTS",
    "ReshapeAndCacheCase",
    "ReshapeAndCacheProblem",
    "ReshapeAndCacheTensors",
    "case",
    "reshape_and_cache",
]
