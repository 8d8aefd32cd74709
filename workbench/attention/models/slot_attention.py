"""The attention of a decode step in plain torch, over slots that are found once for all layers of the model.

What `workbench.attention.ops.paged_attention` computes with CPU tensors, for the cache that needs nothing special:
float32 in layout "nhd", neither quantized nor windowed. The op finds and checks its indices in every layer anew, which
takes longer than the attention of a small model.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from workbench.attention.kvcache import PagedKVCache


def serves(cache: PagedKVCache) -> bool:
    """Whether `SlotAttention` can stand in for the op."""
    plain = cache.kv_cache_dtype == "auto" and cache.layout == "nhd" and cache.manager.sliding_window is None
    return plain and cache.dtype == torch.float32 and cache.device.type == "cpu"


class SlotAttention:
    """An `Attend` for the newest token of every sequence.

    Args:
        cache: one that `serves`.
        new_slots: ``[num_seqs] int64``, where the new tokens go.
        block_tables, seq_lens: as the op takes them.
    """

    def __init__(
        self, cache: PagedKVCache, new_slots: torch.Tensor, block_tables: torch.Tensor, seq_lens: torch.Tensor
    ):
        self._new = new_slots
        # A row for each slot: [num_slots, num_kv_heads * head_size].
        self._layers = [tuple(side.flatten(2).flatten(0, 1) for side in layer) for layer in cache.layers]
        token = torch.arange(int(seq_lens.max()))
        slots = block_tables.long()[:, token // cache.block_size] * cache.block_size + token % cache.block_size
        seen = token < seq_lens[:, None]
        # Beyond its end a sequence reads its own newest token, with no weight: another's slot may hold a NaN.
        self._slots = torch.where(seen, slots, new_slots[:, None]).flatten()
        self._bias = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)[:, None, None]

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Store the new keys and values of a layer; ``[num_seqs, num_heads, head_size]``."""
        num_seqs, num_kv_heads, head_size = key.shape
        keys_and_values = []
        for cached, new in zip(self._layers[layer], (key, value), strict=True):
            cached.index_copy_(0, self._new, new.flatten(1))
            rows = cached.index_select(0, self._slots)
            keys_and_values.append(rows.view(num_seqs, -1, num_kv_heads, head_size).transpose(1, 2))
        # The heads of a group are rows that look at the same keys.
        groups = query.view(num_seqs, num_kv_heads, -1, head_size)
        keys, values = keys_and_values
        out = functional.scaled_dot_product_attention(groups, keys, values, attn_mask=self._bias)
        return out.reshape(query.shape)
