"""Causal attention as its formula says, every score in memory: what the faster forms are to be equal to.

    a_ij = exp(q_i . k_j / sqrt(head_size)) / sum_{t <= i} exp(q_i . k_t / sqrt(head_size))    for j <= i, else 0
    o_i  = sum_{j <= i} a_ij v_j

A token attends to itself (t <= i). The scale is that of one head, 1/sqrt(head_size), because it keeps the variance of a
dot product of head_size terms at 1; 1/sqrt(embedding size) would flatten the weights. Vaswani et al., 2017.
"""

from __future__ import annotations

import torch

from workbench.ops.causal_attention.problem import DTYPES, Problem, Tensors
from workbench.ops.variant import TorchVariant


def causal_mask(num_queries: int, num_tokens: int, device: torch.device | None = None) -> torch.Tensor:
    """``[num_queries, num_tokens] bool``: whether a query sees a token, the queries being the last of the tokens."""
    position = torch.arange(num_tokens - num_queries, num_tokens, device=device)  # of each query
    return torch.arange(num_tokens, device=device) <= position[:, None]


def single_head(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """Causal attention of one head.

    Args:
        query: ``[num_queries, head_size]``, the last tokens.
        key, value: ``[num_tokens, head_size]``.
        scale: of the scores; default ``head_size ** -0.5``.

    Returns:
        ``[num_queries, head_size]``.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-1, -2) * scale  # [num_queries, num_tokens]
    mask = causal_mask(*scores.shape[-2:], device=scores.device)
    scores = scores.masked_fill(~mask, -torch.inf)  # before the softmax, so that the others' weights still sum to 1
    weights = torch.softmax(scores, dim=-1)
    return weights @ value


def repeat_kv(heads: torch.Tensor, num_heads: int) -> torch.Tensor:
    """``[..., num_heads, tokens, head_size]`` from ``[..., num_kv_heads, tokens, head_size]``.

    Query head h shares KV head ``h // (num_heads // num_kv_heads)``. As many KV heads as query heads is multi-head
    attention (MHA), one KV head multi-query (MQA), anything between grouped-query attention (GQA).
    """
    return heads.repeat_interleave(num_heads // heads.shape[-3], dim=-3)


def multi_head(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None = None) -> torch.Tensor:
    """Causal attention of every head by itself.

    Args:
        query: ``[num_seqs, num_heads, num_queries, head_size]``.
        key, value: ``[num_seqs, num_kv_heads, num_tokens, head_size]``.
        scale: of the scores; default ``head_size ** -0.5``.

    Returns:
        ``[num_seqs, num_heads, num_queries, head_size]``.
    """
    num_heads = query.shape[1]
    return single_head(query, repeat_kv(key, num_heads), repeat_kv(value, num_heads), scale)


def compute(problem: Problem, tensors: Tensors) -> None:
    """Fill ``tensors.out``."""
    tensors.out.copy_(multi_head(tensors.query, tensors.key, tensors.value, tensors.scale))


VARIANT = TorchVariant(
    op="causal_attention",
    name="torch_naive",
    idea="the formula: all scores in memory, minus infinity above the diagonal, softmax",
    layouts=("heads first",),
    dtypes=tuple(DTYPES),
    compute=compute,
)
