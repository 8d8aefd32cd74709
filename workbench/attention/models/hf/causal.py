"""Attention of the last tokens of one sequence to its tokens, in plain torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class ScoreRule:
    """Rule of the scores: factor, bound by tanh and attention sinks ``[num_heads]``, as in `paged_attention`.

    None as ``soft_cap`` is no bound, None as ``sinks`` no sinks. ``chosen`` ``[num_rows, num_new, k] int32`` are the
    positions that each query reads, -1 for none; None: all.
    """

    scale: float
    soft_cap: float | None
    sinks: torch.Tensor | None
    chosen: torch.Tensor | None = None


def causal(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    columns: torch.Tensor,
    rule: ScoreRule,
    *,
    window: int | None = None,
    chosen: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the attention of the last ``num_new`` tokens of one sequence.

    The softmax is in float32, as in transformers' eager path.

    Args:
        query: queries ``[num_heads, num_new, head_size]``.
        key: keys ``[num_kv_heads, num_tokens, head_size]``; with a window, at least those inside it.
        value: values of the same shape.
        columns: column of the attention mask of each token, ``[num_tokens] int64``, rising.
        rule: rule of the scores.
        window: sliding window in columns, the newest included; None: no window.
        chosen: positions that each query reads, ``[num_new, k]``, -1 for none; None: all.

    Returns:
        The attention, ``[num_new, num_heads, head_size]``.
    """
    group, num_new, num_tokens = query.shape[0] // key.shape[0], query.shape[1], key.shape[1]
    key, value = key.repeat_interleave(group, 0), value.repeat_interleave(group, 0)
    scores = (query @ key.transpose(1, 2)) * rule.scale
    if rule.soft_cap is not None:
        scores = rule.soft_cap * torch.tanh(scores / rule.soft_cap)
    age = columns[num_tokens - num_new :, None] - columns
    hidden = (age < 0) if window is None else (age < 0) | (age >= window)
    if chosen is not None:
        unread = torch.ones(num_new, num_tokens + 1, dtype=torch.bool)  # the last column takes the -1
        hidden = hidden | unread.scatter_(1, chosen.long().cpu() % (num_tokens + 1), False)[:, :-1]
    scores = scores.masked_fill(hidden.to(scores.device), -torch.inf).float()
    if rule.sinks is not None:
        scores = torch.cat([scores, rule.sinks[:, None, None].expand(-1, num_new, 1)], -1)
    weights = scores.softmax(-1)[..., :num_tokens]
    return (weights.to(query.dtype) @ value).transpose(0, 1)
