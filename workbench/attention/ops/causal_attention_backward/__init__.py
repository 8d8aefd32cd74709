"""The gradients of causal attention, whose scores are computed again instead of being kept."""

from workbench.attention.ops.causal_attention.problem import Problem
from workbench.attention.ops.causal_attention_backward.api import causal_attention_backward
from workbench.attention.ops.causal_attention_backward.cases import CASES, Case
from workbench.attention.ops.causal_attention_backward.tensors import Tensors
from workbench.attention.ops.causal_attention_backward.torch_recompute import VARIANT as TORCH_RECOMPUTE
from workbench.attention.ops.causal_attention_backward.triton_flash import VARIANT as TRITON_FLASH
from workbench.ops.op import Op

VARIANTS = (TORCH_RECOMPUTE, TRITON_FLASH)

OP = Op(name="causal_attention_backward", variants=VARIANTS, cases=CASES, function=causal_attention_backward)
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "Case", "Problem", "Tensors", "case", "causal_attention_backward"]
