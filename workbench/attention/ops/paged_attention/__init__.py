"""Attention of one new token per sequence over a paged cache of keys and values (decode)."""

from workbench.attention.ops.paged_attention.api import OP, paged_attention
from workbench.attention.ops.paged_attention.cases import CASES, PagedAttentionCase
from workbench.attention.ops.paged_attention.cuda_grouped_mma import VARIANT as CUDA_GROUPED_MMA
from workbench.attention.ops.paged_attention.cuda_partitioned import VARIANT as CUDA_PARTITIONED
from workbench.attention.ops.paged_attention.cuda_scaled_groups import VARIANT as CUDA_SCALED_GROUPS
from workbench.attention.ops.paged_attention.cuda_thread_group import VARIANT as CUDA_THREAD_GROUP
from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem, PagedAttentionTensors
from workbench.attention.ops.paged_attention.torch_vectorised import VARIANT as TORCH
from workbench.attention.ops.paged_attention.triton_descriptors import VARIANT as TRITON_DESCRIPTORS
from workbench.attention.ops.paged_attention.triton_grouped import VARIANT as TRITON_GROUPED
from workbench.attention.ops.paged_attention.triton_online_softmax import VARIANT as TRITON_ONLINE_SOFTMAX
from workbench.attention.ops.paged_attention.triton_partitioned import VARIANT as TRITON_PARTITIONED
from workbench.attention.ops.paged_attention.triton_scaled_groups import VARIANT as TRITON_SCALED_GROUPS

VARIANTS = (
    TORCH,
    CUDA_THREAD_GROUP,
    TRITON_ONLINE_SOFTMAX,
    CUDA_PARTITIONED,
    TRITON_PARTITIONED,
    CUDA_GROUPED_MMA,
    TRITON_GROUPED,
    TRITON_DESCRIPTORS,
    CUDA_SCALED_GROUPS,
    TRITON_SCALED_GROUPS,
)

OP.add(*VARIANTS, *CASES.values())
OP.function = paged_attention
case = OP.case

__all__ = [
    "CASES",
    "OP",
    "VARIANTS",
    "PagedAttentionCase",
    "PagedAttentionProblem",
    "PagedAttentionTensors",
    "case",
    "paged_attention",
]
