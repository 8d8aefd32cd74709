"""Torch's own scaled_dot_product_attention, as a peer to compare with."""

from __future__ import annotations

import torch

from workbench.attention.ops.causal_attention.problem import DTYPES, CausalAttentionProblem, CausalAttentionTensors
from workbench.attention.ops.causal_attention.torch_naive import mask_of, repeat_kv, without_padding
from workbench.ops import TorchVariant


def compute(problem: CausalAttentionProblem, tensors: CausalAttentionTensors) -> None:
    """Fill ``tensors.output``, and ``tensors.lse`` if there is one, from scores computed again: torch returns none."""
    t = tensors
    (query,), (key, value) = without_padding(t.query_lens, t.query), without_padding(t.seq_lens, t.key, t.value)
    # torch's is_causal aligns the mask to the first token; with cached tokens before the queries it must be the last.
    mask = mask_of(problem, t)
    attend = torch.nn.functional.scaled_dot_product_attention
    output = attend(query, key, value, attn_mask=mask, scale=t.scale, enable_gqa=True)
    t.output.copy_(without_padding(t.query_lens, output)[0])
    if t.lse is not None:
        scores = query @ repeat_kv(key, problem.num_heads).transpose(-1, -2) * t.scale
        lse = scores.masked_fill(~mask, -torch.inf).to(t.lse.dtype).logsumexp(-1)
        t.lse.copy_(without_padding(t.query_lens, lse, padding=-torch.inf)[0])


VARIANT = TorchVariant(
    op="causal_attention",
    name="torch_sdpa",
    idea="torch's scaled_dot_product_attention, with an explicit mask",
    layouts=("heads first",),
    dtypes=tuple(DTYPES),
    features=("lengths",),
    compute=compute,
)
