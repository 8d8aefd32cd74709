"""Causal attention by its formula, with every score in memory: the reference for the faster forms.

    a_ij = exp(q_i . k_j / sqrt(head_size)) / sum_{t <= i} exp(q_i . k_t / sqrt(head_size))    for j <= i, else 0
    o_i  = sum_{j <= i} a_ij v_j

A token attends to itself (t <= i). The scale is that of one head, 1/sqrt(head_size), because it keeps the variance of a
dot product of head_size terms at 1; 1/sqrt(embedding size) would flatten the weights. Vaswani et al., 2017.
"""

from __future__ import annotations

import torch

from workbench.attention.ops.causal_attention.problem import (
    DTYPES,
    CausalAttentionProblem,
    CausalAttentionTensors,
    Read,
)
from workbench.ops import TorchVariant


def causal_mask(num_queries: int, num_tokens: int, device: torch.device | None = None) -> torch.Tensor:
    """Return ``[num_queries, num_tokens] bool``, True where a query sees a token; the queries are the last tokens."""
    position = torch.arange(num_tokens - num_queries, num_tokens, device=device)  # of each query
    return torch.arange(num_tokens, device=device) <= position[:, None]


def mask_of(problem: CausalAttentionProblem, tensors: Read) -> torch.Tensor:
    """Return the `causal_mask` of a run; with lengths of sequences ``[num_seqs, 1, num_queries, num_tokens]``."""
    t, device = tensors, tensors.query.device
    if t.seq_lens is None:
        return causal_mask(problem.num_queries, problem.num_tokens, device)
    position = torch.arange(problem.num_queries, device=device) + (t.seq_lens - t.query_lens)[:, None]
    return torch.arange(problem.num_tokens, device=device) <= position[:, None, :, None]


def without_padding(
    lengths: torch.Tensor | None, *sides: torch.Tensor, padding: float = 0.0
) -> tuple[torch.Tensor, ...]:
    """Return ``[num_seqs, heads, tokens, ...]`` with ``padding`` past each sequence's length, where anything may be."""
    if lengths is None:
        return sides
    past = torch.arange(sides[0].shape[2], device=sides[0].device) >= lengths[:, None, None]  # [num_seqs, 1, tokens]
    return tuple(side.masked_fill(past.view(past.shape + (1,) * (side.dim() - 3)), padding) for side in sides)


def single_head(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """Compute causal attention of one head.

    Args:
        query: ``[num_queries, head_size]``, the last tokens.
        key: ``[num_tokens, head_size]``.
        value: as key.
        scale: factor of the scores; default ``head_size ** -0.5``.

    Returns:
        ``[num_queries, head_size]``.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-1, -2) * scale  # [num_queries, num_tokens]
    mask = causal_mask(scores.shape[-2], scores.shape[-1], scores.device)
    scores = scores.masked_fill(~mask, -torch.inf)  # before the softmax, so that the others' weights still sum to 1
    weights = torch.softmax(scores, dim=-1)
    return weights @ value


def repeat_kv(heads: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Return ``[..., num_heads, tokens, head_size]`` from ``[..., num_kv_heads, tokens, head_size]``.

    Query head h shares KV head ``h // (num_heads // num_kv_heads)``. As many KV heads as query heads is multi-head
    attention (MHA), one KV head multi-query (MQA), anything between grouped-query attention (GQA).
    """
    return heads.repeat_interleave(num_heads // heads.shape[-3], dim=-3)


def multi_head(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None = None) -> torch.Tensor:
    """Compute causal attention of every head by itself.

    Args:
        query: ``[num_seqs, num_heads, num_queries, head_size]``.
        key: ``[num_seqs, num_kv_heads, num_tokens, head_size]``.
        value: as key.
        scale: factor of the scores; default ``head_size ** -0.5``.

    Returns:
        ``[num_seqs, num_heads, num_queries, head_size]``.
    """
    num_heads = query.shape[1]
    return single_head(query, repeat_kv(key, num_heads), repeat_kv(value, num_heads), scale)


def compute(problem: CausalAttentionProblem, tensors: CausalAttentionTensors) -> None:
    """Fill ``tensors.output``, and ``tensors.lse`` if there is one."""
    t = tensors
    (query,), (key, value) = without_padding(t.query_lens, t.query), without_padding(t.seq_lens, t.key, t.value)
    key, value = repeat_kv(key, problem.num_heads), repeat_kv(value, problem.num_heads)
    scores = query @ key.transpose(-1, -2) * t.scale
    scores = scores.masked_fill(~mask_of(problem, t), -torch.inf)  # before the softmax: the others' weights sum to 1
    weights = torch.softmax(scores, dim=-1)
    t.output.copy_(without_padding(t.query_lens, weights @ value)[0])
    if t.lse is not None:
        lse = scores.to(t.lse.dtype).logsumexp(-1)
        t.lse.copy_(without_padding(t.query_lens, lse, padding=-torch.inf)[0])


VARIANT = TorchVariant(
    op="causal_attention",
    name="torch_naive",
    idea="the formula: all scores in memory, minus infinity above the diagonal, softmax",
    layouts=("heads first",),
    dtypes=tuple(DTYPES),
    features=("lengths",),
    compute=compute,
)
