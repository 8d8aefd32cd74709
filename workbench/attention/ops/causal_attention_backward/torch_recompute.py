"""The gradients by their formula, with every score in memory.

    P = exp(S - lse),   S = scale * Q K^T
    dV = P^T dO,   dP = dO V^T,   dS = P * (dP - delta),   delta_i = dO_i . O_i - dlse_i
    dQ = scale * dS K,   dK = scale * dS^T Q

The softmax is not computed again: lse, one number per row, combines its maximum and its sum. Dao et al., 2022, appendix
B.
"""

from __future__ import annotations

import torch

from workbench.attention.ops.causal_attention.problem import DTYPES, CausalAttentionProblem, lse_dtype
from workbench.attention.ops.causal_attention.torch_naive import mask_of, repeat_kv, without_padding
from workbench.attention.ops.causal_attention_backward.tensors import CausalAttentionBackwardTensors
from workbench.ops import TorchVariant


def compute(problem: CausalAttentionProblem, tensors: CausalAttentionBackwardTensors) -> None:
    """Fill ``tensors.d_query``, ``d_key`` and ``d_value``."""
    t, exact = tensors, lse_dtype(tensors.query.dtype)
    rows = (t.query, t.output, t.d_output, t.lse, t.d_lse)
    query, output, d_output, lse, d_lse = (x.to(exact) for x in without_padding(t.query_lens, *rows))
    key, value = (repeat_kv(x.to(exact), problem.num_heads) for x in without_padding(t.seq_lens, t.key, t.value))
    scores = (query @ key.transpose(-1, -2) * t.scale).masked_fill(~mask_of(problem, t), -torch.inf)
    (weights,) = without_padding(t.query_lens, torch.exp(scores - lse[..., None]))
    delta = (d_output * output).sum(-1) - d_lse
    d_scores = weights * (d_output @ value.transpose(-1, -2) - delta[..., None]) * t.scale
    t.d_query.copy_(d_scores @ key)
    for gradient, factor, rows in ((t.d_key, d_scores, query), (t.d_value, weights, d_output)):
        per_head = factor.transpose(-1, -2) @ rows  # [num_seqs, num_heads, num_tokens, head_size]
        gradient.copy_(per_head.unflatten(1, (problem.num_kv_heads, problem.group)).sum(2))


VARIANT = TorchVariant(
    op="causal_attention_backward",
    name="torch_recompute",
    idea="the formula: all scores in memory again",
    layouts=("heads first",),
    dtypes=tuple(DTYPES),
    features=("lengths",),
    compute=compute,
)
