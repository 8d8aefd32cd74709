"""Torch's own scaled_dot_product_attention: the peer to compare with."""

from __future__ import annotations

import torch

from workbench.ops.causal_attention.problem import DTYPES, Problem, Tensors
from workbench.ops.causal_attention.torch_naive import causal_mask
from workbench.ops.variant import TorchVariant


def compute(problem: Problem, tensors: Tensors) -> None:
    """Fill ``tensors.out``."""
    t = tensors
    # Its is_causal aligns the mask to the first token; with cached tokens before the queries it must be the last.
    mask = causal_mask(problem.num_queries, problem.num_tokens, t.query.device)
    attend = torch.nn.functional.scaled_dot_product_attention
    t.out.copy_(attend(t.query, t.key, t.value, attn_mask=mask, scale=t.scale, enable_gqa=True))


VARIANT = TorchVariant(
    op="causal_attention",
    name="torch_sdpa",
    idea="torch's scaled_dot_product_attention, with an explicit mask",
    layouts=("heads first",),
    dtypes=tuple(DTYPES),
    compute=compute,
)
