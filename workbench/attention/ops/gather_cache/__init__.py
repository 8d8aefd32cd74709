"""Reading tokens out of a paged cache into contiguous tensors, dequantized: `reshape_and_cache` undone."""

from workbench.attention.ops.gather_cache.api import OP, gather_cache
from workbench.attention.ops.gather_cache.cases import CASES, GatherCacheCase
from workbench.attention.ops.gather_cache.cuda_scaled_groups import VARIANT as CUDA_SCALED_GROUPS
from workbench.attention.ops.gather_cache.cuda_tiled import VARIANT as CUDA_TILED
from workbench.attention.ops.gather_cache.problem import GatherCacheProblem, GatherCacheTensors
from workbench.attention.ops.gather_cache.torch_indexed import VARIANT as TORCH
from workbench.attention.ops.gather_cache.triton_scaled_groups import VARIANT as TRITON_SCALED_GROUPS
from workbench.attention.ops.gather_cache.triton_tiled import VARIANT as TRITON_TILED

VARIANTS = (TORCH, CUDA_TILED, TRITON_TILED, CUDA_SCALED_GROUPS, TRITON_SCALED_GROUPS)

OP.add(*VARIANTS, *CASES.values())
OP.function = gather_cache
case = OP.case

__all__ = [
    "CASES",
    "OP",
    "VARIANTS",
    "GatherCacheCase",
    "GatherCacheProblem",
    "GatherCacheTensors",
    "case",
    "gather_cache",
]
