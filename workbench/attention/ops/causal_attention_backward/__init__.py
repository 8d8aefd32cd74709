"""The gradients of causal attention, whose scores are computed again instead of being kept."""

from workbench.attention.ops.causal_attention.problem import Problem
from workbench.attention.ops.causal_attention_backward.api import OP, causal_attention_backward
from workbench.attention.ops.causal_attention_backward.cases import CASES, Case
from workbench.attention.ops.causal_attention_backward.tensors import Tensors
from workbench.attention.ops.causal_attention_backward.torch_recompute import VARIANT as TORCH_RECOMPUTE
from workbench.attention.ops.causal_attention_backward.triton_flash import VARIANT as TRITON_FLASH

VARIANTS = (TORCH_RECOMPUTE, TRITON_FLASH)

OP.add(*VARIANTS, *CASES.values())
OP.function = causal_attention_backward
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "Case", "Problem", "Tensors", "case", "causal_attention_backward"]
