"""Attention of new tokens by its formula, one sequence at a time, in float64: the reference for every variant.

The last m of the n tokens of a sequence are new. New token i stands at position p = n - m + i, and sees token t, for
query head h and the KV head k = h // group, if t <= p and p - t < sliding_window:

    s_t = scale * q_ih . K_{t,k}
    s_t = soft_cap * tanh(s_t / soft_cap)                       if there is a cap
    a_t = exp(s_t) / (sum_u exp(s_u) + exp(sink_h))             over the tokens that are seen
    o_ih = sum_t a_t V_{t,k}

With a *tree mask* the new tokens are drafts of several continuations at once (SpecInfer: Miao et al., 2023): i sees, of
the new tokens, those j whose bit of mask i is set, itself and its ancestors, and all tokens before. Its position is
then that in its own continuation: p = n - m + (number of ancestors).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from workbench.attention.cache_formats.layouts import from_paged
from workbench.attention.ops.paged_prefill.problem import MOST_DRAFTS


def visible(
    query_len: int,
    seq_lens: torch.Tensor,
    *,
    sliding_window: int | None = None,
    tree_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``[num_seqs, query_len, tokens] bool``, True where a new token sees a token of its sequence.

    Args:
        query_len: number of new tokens of each sequence, the last of its tokens.
        seq_lens: ``[num_seqs] int64``; the result has the tokens of the longest.
        sliding_window: number of tokens that are seen, including the newest.
        tree_mask: masks ``[num_seqs, query_len] int64``; bits past a token's own are not looked at, nor are the masks
            of more than `MOST_DRAFTS` new tokens, which are a prompt.
    """
    context = (seq_lens - query_len)[:, None, None]
    new = torch.arange(query_len, device=seq_lens.device)[:, None]
    token = torch.arange(int(seq_lens.max()), device=seq_lens.device)
    sees, ages = token <= context + new, context + new - token
    if tree_mask is not None and query_len <= MOST_DRAFTS:
        draft = token - context
        bits = tree_mask[..., None] >> draft.clamp(0, MOST_DRAFTS - 1) & (draft >= 0) & (draft <= new)
        depth = bits.sum(-1, keepdim=True) - 1
        sees = (draft < 0) | bits.bool()
        # A visible draft's own depth is the number of its ancestors, which are those of the token that sees it.
        ages = torch.where(draft < 0, context + depth - token, depth - (bits.cumsum(-1) - 1))
    return sees if sliding_window is None else sees & (ages < sliding_window)


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    sees: torch.Tensor,
    *,
    scale: float,
    dtype: torch.dtype = torch.float64,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the attention of the new tokens of one sequence in ``dtype``.

    Args:
        query: ``[query_len, num_heads, head_size]``.
        keys: ``[tokens, num_kv_heads, head_size]``.
        values: as keys.
        sees: ``[query_len, tokens] bool``, as `visible` returns it.
        scale: factor of the scores.
        dtype: dtype of computation and result.
        soft_cap: scores become ``soft_cap * tanh(score / soft_cap)``.
        sinks: ``[num_heads]``, scores that take weight and give no value.

    Returns:
        ``[query_len, num_heads, head_size]`` in ``dtype``.
    """
    query_len, num_heads, _ = query.shape
    group = num_heads // keys.shape[1]
    keys, values = (side.to(dtype).repeat_interleave(group, 1) for side in (keys, values))
    scores = torch.einsum("qhd,thd->hqt", query.to(dtype), keys) * scale
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    scores = scores.masked_fill(~sees, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(dtype)[:, None, None].expand(-1, query_len, 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : len(keys)]
    return torch.einsum("hqt,thd->qhd", weights, values)


def reference(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    *,
    scale: float | None = None,
    layout: str | None = None,
    sliding_window: int | None = None,
    tree_mask: torch.Tensor | None = None,
    **features: Any,
) -> torch.Tensor:
    """Compute `paged_prefill` in float64 over a cache that is not quantized; arguments as there.

    Returns:
        ``[num_tokens, num_heads, head_size] float64``.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    lengths = cu_seqlens_q.diff().tolist()
    keys, values = from_paged(key_cache, value_cache, block_tables, seq_lens.tolist(), layout=layout)
    masks: Sequence[torch.Tensor | None] = [None] * len(lengths) if tree_mask is None else tree_mask.split(lengths)
    rows = []
    for q, k, v, mask in zip(query.split(lengths), keys, values, masks, strict=True):
        tree = None if mask is None else mask[None]
        sees = visible(len(q), torch.tensor([len(k)]), sliding_window=sliding_window, tree_mask=tree)[0]
        rows.append(attend(q, k, v, sees, scale=scale, **features))
    return torch.cat(rows) if rows else query.double()
