"""The decode step: one new token per sequence attends to cached keys and values, in an engine's shapes.

The keys and values of past tokens depend on those tokens alone, so they are computed once and kept; the new token's
query is the only one needed. Work per token falls from O(n^2) to O(n) dot products, and reading remains.
"""

from __future__ import annotations

import torch


def append(cache: torch.Tensor, new: torch.Tensor, seq_lens: torch.Tensor) -> None:
    """Write each sequence's newest key (or value) to its place in the cache, in place.

    Args:
        cache: ``[num_seqs, num_kv_heads, max_seq_len, head_size]``.
        new: ``[num_seqs, num_kv_heads, head_size]``.
        seq_lens: ``[num_seqs]``, including the newest token.
    """
    seqs = torch.arange(len(new), device=new.device)
    cache[seqs, :, seq_lens.long() - 1] = new


def decode_step(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """Compute the attention of every sequence's newest token over its cache, for sequences of different lengths.

    Args:
        query: ``[num_seqs, num_heads, head_size]``.
        key_cache: ``[num_seqs, num_kv_heads, max_seq_len, head_size]``; slots past a sequence's length take no part,
            even if they hold NaN.
        value_cache: as key_cache.
        seq_lens: ``[num_seqs]``, at least 1: the newest token is cached already and attends to itself.
        scale: factor of the scores; default ``head_size ** -0.5``.

    Returns:
        ``[num_seqs, num_heads, head_size]``.
    """
    num_seqs, num_heads, head_size = query.shape
    num_kv_heads, max_seq_len = key_cache.shape[1:3]
    scale = head_size**-0.5 if scale is None else scale
    grouped = query.view(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_size)  # heads that share K and V
    scores = grouped @ key_cache.transpose(-1, -2) * scale  # [num_seqs, num_kv_heads, group, max_seq_len]
    valid = torch.arange(max_seq_len, device=query.device) < seq_lens[:, None]
    valid = valid[:, None, :]  # the same for every KV head
    weights = torch.softmax(scores.masked_fill(~valid[:, :, None], -torch.inf), dim=-1)
    value = value_cache.masked_fill(~valid[..., None], 0.0)  # a weight of zero is not enough: 0 * NaN is NaN
    return (weights @ value).view(num_seqs, num_heads, head_size)
