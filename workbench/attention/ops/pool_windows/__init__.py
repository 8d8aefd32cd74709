"""Pooling of windows of tokens into entries of a compressed cache."""

from workbench.attention.ops.pool_windows.api import OP, pool_windows
from workbench.attention.ops.pool_windows.cases import CASES, PoolCase
from workbench.attention.ops.pool_windows.cuda_online import VARIANT as CUDA_ONLINE
from workbench.attention.ops.pool_windows.problem import PoolProblem, PoolTensors
from workbench.attention.ops.pool_windows.torch_softmax import VARIANT as TORCH
from workbench.attention.ops.pool_windows.triton_online import VARIANT as TRITON_ONLINE

VARIANTS = (TORCH, CUDA_ONLINE, TRITON_ONLINE)

OP.add(*VARIANTS, *CASES.values())
OP.function = pool_windows
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "PoolCase", "PoolProblem", "PoolTensors", "case", "pool_windows"]
