"""Tokens of a paged cache, gathered and dequantized in plain torch, for the variants that need no kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch

from workbench.attention.cache_formats import nvfp4
from workbench.attention.cache_formats.layouts import bits_of


def tokens_of_pages(
    cache: torch.Tensor,
    tables: torch.Tensor,
    canonical: Callable[[torch.Tensor, str], torch.Tensor],
    layout: str,
    scale: torch.Tensor | None,
) -> torch.Tensor:
    """Return ``[num_seqs, max_pages * block_size, num_kv_heads, head_size]`` in fp32, dequantized."""
    pages = bits_of(cache)[tables.flatten()].view(cache.dtype)
    if cache.dtype == torch.uint8:
        tokens = nvfp4.dequantize_rows(nvfp4.to_rows(pages, layout))
    else:
        tokens = canonical(pages, layout).float()
    if scale is not None:
        # One scale, one per KV head, or one per token and head [num_blocks, block_size, num_kv_heads].
        per_token = scale.dim() == 3
        tokens = tokens * (scale[tables.flatten()][..., None] if per_token else scale.float().view(-1, 1))
    return tokens.reshape(tables.shape[0], -1, *tokens.shape[2:])
