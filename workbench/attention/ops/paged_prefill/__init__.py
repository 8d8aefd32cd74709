"""Attention of new tokens over a paged cache: prompts, pieces of prompts, decode steps and drafts in one launch."""

from workbench.attention.ops.paged_prefill.api import OP, paged_prefill
from workbench.attention.ops.paged_prefill.cases import CASES, PagedPrefillCase
from workbench.attention.ops.paged_prefill.cuda_packed_mma import VARIANT as CUDA_PACKED_MMA
from workbench.attention.ops.paged_prefill.problem import PagedPrefillProblem, PagedPrefillTensors
from workbench.attention.ops.paged_prefill.torch_gathered import VARIANT as TORCH
from workbench.attention.ops.paged_prefill.triton_packed import VARIANT as TRITON_PACKED

VARIANTS = (TORCH, CUDA_PACKED_MMA, TRITON_PACKED)

OP.add(*VARIANTS, *CASES.values())
OP.function = paged_prefill
case = OP.case

__all__ = [
    "CASES",
    "OP",
    "VARIANTS",
    "PagedPrefillCase",
    "PagedPrefillProblem",
    "PagedPrefillTensors",
    "case",
    "paged_prefill",
]
