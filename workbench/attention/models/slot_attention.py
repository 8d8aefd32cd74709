"""Attention of a decode step in plain torch, with slot indices computed once for all layers of the model.

It computes what `workbench.attention.ops.paged_attention` computes with CPU tensors, for the simplest cache: float32
in layout "nhd", without quantization and sliding window. The op computes and checks its indices again in every layer,
which takes longer than the attention of a small model.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from workbench.attention.kvcache import PagedKVCache


def serves(cache: PagedKVCache) -> bool:
    """Return True if `SlotAttention` can replace the op for this cache."""
    plain = cache.kv_cache_dtype == "auto" and cache.layout == "nhd" and cache.manager.sliding_window is None
    return plain and cache.dtype == torch.float32 and cache.device.type == "cpu"


class SlotAttention:
    """An `Attend` function for the newest token of every sequence.

    Args:
        cache: a cache for which `serves` returns True.
        new_slots: slots of the new tokens, ``[num_seqs] int64``.
        block_tables: block tables ``[num_seqs, max_blocks] int32``, as for `paged_attention`.
        seq_lens: lengths ``[num_seqs] int32``, as for `paged_attention`.
    """

    def __init__(
        self, cache: PagedKVCache, new_slots: torch.Tensor, block_tables: torch.Tensor, seq_lens: torch.Tensor
    ):
        self._new = new_slots
        # Views with a row for each slot: [num_slots, num_kv_heads * head_size].
        self._layers = [tuple(side.flatten(2).flatten(0, 1) for side in layer) for layer in cache.layers]
        token = torch.arange(int(seq_lens.max()))
        slots = block_tables.long()[:, token // cache.block_size] * cache.block_size + token % cache.block_size
        seen = token < seq_lens[:, None]
        # Past its end a sequence reads its own newest token with weight 0: another sequence's slot may hold a NaN.
        self._slots = torch.where(seen, slots, new_slots[:, None]).flatten()
        self._bias = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)[:, None, None]

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Write a layer's new keys and values and return the attention ``[num_seqs, num_heads, head_size]``."""
        num_seqs, num_kv_heads, head_size = key.shape
        keys_and_values = []
        for cached, new in zip(self._layers[layer], (key, value), strict=True):
            cached.index_copy_(0, self._new, new.flatten(1))
            rows = cached.index_select(0, self._slots)
            keys_and_values.append(rows.view(num_seqs, -1, num_kv_heads, head_size).transpose(1, 2))
        # The query heads of a group are rows that share the same keys.
        groups = query.view(num_seqs, num_kv_heads, -1, head_size)
        keys, values = keys_and_values
        out = functional.scaled_dot_product_attention(groups, keys, values, attn_mask=self._bias)
        return out.reshape(query.shape)
