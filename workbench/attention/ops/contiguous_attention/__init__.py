"""Attention of one new token per sequence over a contiguous cache of keys and values (decode)."""

from workbench.attention.ops.contiguous_attention.api import OP, contiguous_attention
from workbench.attention.ops.contiguous_attention.cases import CASES, Case
from workbench.attention.ops.contiguous_attention.cuda_register_softmax import VARIANT as CUDA_REGISTER_SOFTMAX
from workbench.attention.ops.contiguous_attention.problem import Problem, Tensors
from workbench.attention.ops.contiguous_attention.torch_vectorised import VARIANT as TORCH
from workbench.attention.ops.contiguous_attention.triton_online_softmax import VARIANT as TRITON_ONLINE_SOFTMAX

VARIANTS = (TORCH, CUDA_REGISTER_SOFTMAX, TRITON_ONLINE_SOFTMAX)

OP.add(*VARIANTS, *CASES.values())
OP.function = contiguous_attention
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "Case", "Problem", "Tensors", "case", "contiguous_attention"]
