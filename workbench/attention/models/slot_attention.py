"""Attention of new tokens over a paged cache in plain torch, with slot indices computed once for all layers.

It computes what `workbench.attention.ops.paged_prefill` computes with CPU tensors, for the simplest cache: float32 in
layout "nhd", without quantization and sliding window. The op computes and checks its indices again in every layer,
which takes longer than the attention of a small model.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch.nn import functional

from workbench.attention.kvcache import PagedKVCache


def serves(cache: PagedKVCache) -> bool:
    """Return True if `SlotAttention` can replace the op for this cache."""
    plain = cache.kv_cache_dtype == "auto" and cache.layout == "nhd" and cache.manager.sliding_window is None
    return plain and cache.dtype == torch.float32 and cache.device.type == "cpu"


class SlotAttention:
    """An `Attend` function for the newest tokens of every sequence.

    Sequences beside each other with one new token are computed together, any other one by itself.

    Args:
        cache: a cache for which `serves` returns True.
        new_slots: slots of the new tokens, ``[num_tokens] int64``.
        block_tables: block tables ``[num_seqs, max_blocks] int32``, as for `paged_prefill`.
        query_lens: numbers of new tokens, one or more.
        seq_lens: lengths ``[num_seqs] int32``, as for `paged_prefill`.
    """

    def __init__(
        self,
        cache: PagedKVCache,
        new_slots: torch.Tensor,
        block_tables: torch.Tensor,
        query_lens: Sequence[int],
        seq_lens: torch.Tensor,
    ):
        self._new = new_slots
        # Views with a row for each slot: [num_slots, num_kv_heads * head_size].
        self._layers = [tuple(side.flatten(2).flatten(0, 1) for side in layer) for layer in cache.layers]
        token = torch.arange(int(seq_lens.max()))
        slots = block_tables.long()[:, token // cache.block_size] * cache.block_size + token % cache.block_size
        self._parts: list[_Part] = []
        row = seq = 0
        for length, run in itertools.groupby(query_lens):
            several = len(list(run))
            for count in [several] if length == 1 else [1] * several:
                of_seqs, rows = slice(seq, seq + count), slice(row, row + count * length)
                self._parts.append(_Part(rows, length, slots[of_seqs], seq_lens[of_seqs], new_slots[rows]))
                row, seq = rows.stop, of_seqs.stop

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Write a layer's new keys and values and return the attention ``[num_tokens, num_heads, head_size]``."""
        num_kv_heads = key.shape[1]
        cached = self._layers[layer]
        for side, new in zip(cached, (key, value), strict=True):
            side.index_copy_(0, self._new, new.flatten(1))
        found = [part.attend(query[part.rows], cached, num_kv_heads) for part in self._parts]
        return found[0] if len(found) == 1 else torch.cat(found)


class _Part:
    """Sequences with one new token each, or one with several: the rows of these, and the slots that they read."""

    def __init__(self, rows: slice, length: int, slots: torch.Tensor, seq_lens: torch.Tensor, new_slots: torch.Tensor):
        self.rows, self._num_seqs = rows, len(seq_lens)
        token = torch.arange(int(seq_lens.max()))
        # Past its end a sequence reads its own newest token with weight 0: another sequence's slot may hold a NaN.
        newest = new_slots.view(-1, length)[:, -1:]
        self._slots = torch.where(token < seq_lens[:, None], slots[:, : len(token)], newest).flatten()
        position = (seq_lens - length)[:, None, None] + torch.arange(length)[:, None]
        hidden = token > position
        self._bias = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None]

    def attend(self, query: torch.Tensor, cached: Sequence[torch.Tensor], num_kv_heads: int) -> torch.Tensor:
        """Return the attention of ``query [num_tokens, num_heads, head_size]`` to the slots of a layer."""
        num_tokens, _, head_size = query.shape
        keys, values = (
            side.index_select(0, self._slots).view(self._num_seqs, -1, num_kv_heads, head_size).transpose(1, 2)
            for side in cached
        )
        if num_tokens == self._num_seqs:  # the query heads of a group are rows that share the same keys
            rows = query.view(num_tokens, num_kv_heads, -1, head_size)
            return functional.scaled_dot_product_attention(rows, keys, values, attn_mask=self._bias).reshape(
                query.shape
            )
        heads = query.transpose(0, 1)[None]
        found = functional.scaled_dot_product_attention(heads, keys, values, attn_mask=self._bias, enable_gqa=True)
        return found[0].transpose(0, 1)
