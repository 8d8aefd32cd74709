"""Causal attention without a cache: the mathematics that everything else is to be equal to, and its kernels."""

from workbench.attention.ops.causal_attention.api import OP, causal_attention
from workbench.attention.ops.causal_attention.cases import CASES, CausalAttentionCase
from workbench.attention.ops.causal_attention.cuda_mma import VARIANT as CUDA_MMA
from workbench.attention.ops.causal_attention.cuda_tcgen05 import VARIANT as CUDA_TCGEN05
from workbench.attention.ops.causal_attention.cuda_wgmma import VARIANT as CUDA_WGMMA
from workbench.attention.ops.causal_attention.decode import append, decode_step
from workbench.attention.ops.causal_attention.problem import CausalAttentionProblem, CausalAttentionTensors
from workbench.attention.ops.causal_attention.torch_blockwise import VARIANT as TORCH_BLOCKWISE
from workbench.attention.ops.causal_attention.torch_blockwise import attend_to_blocks, into_blocks
from workbench.attention.ops.causal_attention.torch_naive import VARIANT as TORCH_NAIVE
from workbench.attention.ops.causal_attention.torch_naive import causal_mask, multi_head, repeat_kv, single_head
from workbench.attention.ops.causal_attention.torch_sdpa import VARIANT as TORCH_SDPA
from workbench.attention.ops.causal_attention.triton_descriptors import VARIANT as TRITON_DESCRIPTORS
from workbench.attention.ops.causal_attention.triton_flash import VARIANT as TRITON_FLASH

VARIANTS = (
    TORCH_NAIVE, TORCH_BLOCKWISE, TORCH_SDPA, CUDA_MMA, CUDA_WGMMA, CUDA_TCGEN05, TRITON_FLASH, TRITON_DESCRIPTORS,
)  # fmt: skip

OP.add(*VARIANTS, *CASES.values())
OP.function = causal_attention
case = OP.case

__all__ = [
    "CASES",
    "OP",
    "VARIANTS",
    "CausalAttentionCase",
    "CausalAttentionProblem",
    "CausalAttentionTensors",
    "append",
    "attend_to_blocks",
    "case",
    "causal_attention",
    "causal_mask",
    "decode_step",
    "into_blocks",
    "multi_head",
    "repeat_kv",
    "single_head",
]
