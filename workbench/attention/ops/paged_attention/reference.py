"""Paged attention by its formula, one sequence at a time, in float64: the reference for every variant.

For the newest token of a sequence of n tokens (including itself: a token attends to itself), query head h and the KV
head k = h // group that it shares:

    s_t = scale * q_h . K_{t,k}            scale is 1/sqrt(head_size), not 1/sqrt(embedding size)
    s_t = soft_cap * tanh(s_t / soft_cap)  if there is a cap (Gemma 2)
    s_t = s_t + slope_h * (t - (n - 1))    if there are ALiBi slopes (Press et al., 2022)
    a_t = exp(s_t) / (sum_u exp(s_u) + exp(sink_h))     the sink takes weight and gives no value (StreamingLLM, gpt-oss)
    o_h = sum_t a_t V_{t,k}

over t = 0 .. n-1, or the last ``sliding_window`` of them. Tokens outside take no part at all: their slots may hold NaN,
and 0 * NaN would not be 0. A sequence without tokens has output 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from workbench.attention.cache_formats.layouts import from_paged


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    scale: float,
    dtype: torch.dtype = torch.float64,
    alibi_slopes: torch.Tensor | None = None,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the attention of one token over its sequence in ``dtype``.

    Args:
        query: ``[num_heads, head_size]``.
        keys: ``[tokens, num_kv_heads, head_size]``, dequantized.
        values: as keys; their rows may have another size.
        scale: factor of the scores.
        dtype: dtype of computation and result.
        alibi_slopes: ``[num_heads]``.
        sliding_window: number of tokens that are seen, including the newest.
        soft_cap: scores become ``soft_cap * tanh(score / soft_cap)``.
        sinks: ``[num_heads]``.

    Returns:
        ``[num_heads, size of a value]`` in ``dtype``.
    """
    tokens, num_kv_heads, head_size = keys.shape
    num_heads = query.shape[0]
    if tokens == 0:
        return torch.zeros(num_heads, values.shape[-1], dtype=dtype, device=query.device)
    positions = torch.arange(tokens, device=query.device) - (tokens - 1)
    if sliding_window is not None:
        inside = positions > -sliding_window
        keys, values, positions = keys[inside], values[inside], positions[inside]
    grouped = query.to(dtype).view(num_kv_heads, num_heads // num_kv_heads, head_size)
    keys, values = keys.to(dtype), values.to(dtype)

    scores = torch.einsum("kgd,tkd->kgt", grouped, keys).flatten(0, 1) * scale
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if alibi_slopes is not None:
        scores = scores + alibi_slopes.to(dtype)[:, None] * positions
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(dtype)[:, None]], dim=1)
    weights = torch.softmax(scores, dim=1)[:, : len(keys)]
    out = torch.einsum("kgt,tkd->kgd", weights.view(*grouped.shape[:2], -1), values)
    return out.reshape(num_heads, values.shape[-1])


def reference(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    scale: float | None = None,
    layout: str | None = None,
    k_scale: torch.Tensor | float = 1.0,
    v_scale: torch.Tensor | float = 1.0,
    **features: Any,
) -> torch.Tensor:
    """Compute paged attention in float64; arguments as in `workbench.attention.ops.paged_attention`.

    ``k_scale`` and ``v_scale`` are numbers or ``[num_kv_heads]``.

    Returns:
        ``[num_seqs, num_heads, head_size] float64``.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    keys, values = from_paged(key_cache, value_cache, block_tables, seq_lens.tolist(), layout=layout)
    return attend_all(
        query,
        [dequantize(key, k_scale) for key in keys],
        [dequantize(value, v_scale) for value in values],
        scale=scale,
        **features,
    )


def attend_all(
    query: torch.Tensor, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], **options: Any
) -> torch.Tensor:
    """Run `attend` for every sequence and return ``[num_seqs, num_heads, head_size]``."""
    rows = [attend(q, k, v, **options) for q, k, v in zip(query, keys, values, strict=True)]
    return torch.stack(rows) if rows else query.to(options.get("dtype", torch.float64))


def dequantize(tokens: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
    """Return cache elements times their scale, in float64; ``scale`` is a number, one element or ``[num_kv_heads]``."""
    scale = torch.as_tensor(scale, dtype=torch.float64, device=tokens.device)
    if scale.numel() > 1:
        scale = scale.view(-1, 1)
    return tokens.double() * scale
