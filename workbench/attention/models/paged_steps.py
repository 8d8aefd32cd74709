"""One forward pass over a paged cache: prompts, and new tokens beside them, attend in one launch.

`workbench.attention.ops.paged_prefill` computes prompts and whatever is mixed with them, `paged_attention` new tokens
alone, and for a small model on a CPU `workbench.attention.models.slot_attention` both.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from workbench.attention import causal_attention, paged_attention, paged_prefill
from workbench.attention.kvcache import PagedKVCache
from workbench.attention.models.gpt import Attend
from workbench.attention.models.slot_attention import SlotAttention, serves


@dataclass(frozen=True)
class PagedPart:
    """The new tokens of one sequence of a paged cache.

    Attributes:
        seq: name of the sequence.
        tokens: token ids.
        start: position of the first.
        slots: slot of each, ``[num_tokens] int64``.
        fresh: True for a prompt that attends to its keys and values as they were computed, not as the cache has them.
    """

    seq: Hashable
    tokens: Sequence[int]
    start: int
    slots: torch.Tensor
    fresh: bool = False


class PagedAttend:
    """An `Attend` function for new tokens over a paged cache, which looks up pages when it is first called."""

    def __init__(self, kv: PagedKVCache, parts: Sequence[PagedPart], variant: str):
        self._kv, self._parts, self._variant = kv, parts, variant

    def __call__(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Write a layer's new keys and values and return the attention ``[num_tokens, num_heads, head_size]``."""
        return self._attend(layer, query, key, value)

    @functools.cached_property
    def _attend(self) -> Attend:
        kv, variant, parts = self._kv, self._variant, self._parts
        slots = torch.cat([torch.empty(0, dtype=torch.int64, device=kv.device), *(part.slots for part in parts)])
        lengths = [len(part.tokens) for part in parts]
        if any(part.fresh for part in parts):
            return self._with_fresh(slots, lengths)
        tables = kv.block_tables([part.seq for part in parts])
        seq_lens, starts = (
            torch.tensor(numbers, dtype=torch.int32, device=kv.device)
            for numbers in ([part.start + len(part.tokens) for part in parts], [0, *itertools.accumulate(lengths)])
        )
        prompts = max(lengths, default=0) > 1
        if parts and (prompts or variant == "auto") and serves(kv):
            return SlotAttention(kv, slots, tables, lengths, seq_lens)

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            kv.write(layer, key, value, slots)
            options = kv.attention_options(layer)
            if prompts:
                return paged_prefill(query, *kv.layers[layer], tables, seq_lens, starts, **options)
            return paged_attention(query, *kv.layers[layer], tables, seq_lens, variant=variant, **options)

        return attend

    def _with_fresh(self, slots: torch.Tensor, lengths: list[int]) -> Attend:
        """Return the function for sequences of which some are fresh prompts, which are computed one by one."""
        others = [index for index, part in enumerate(self._parts) if not part.fresh]
        read = PagedAttend(self._kv, [self._parts[index] for index in others], self._variant)

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            self._kv.write(layer, key, value, slots)
            sides = [side.split(lengths) for side in (query, key, value)]
            found = {
                i: causal(*(side[i] for side in sides)) if one.fresh else query for i, one in enumerate(self._parts)
            }
            if others:
                rows = read(layer, *(torch.cat([side[index] for index in others]) for side in sides))
                found |= zip(others, rows.split([lengths[index] for index in others]), strict=True)
            return torch.cat(list(found.values()))

        return attend


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Compute causal attention of the last tokens of one sequence; ``[num_tokens, heads, head_size]`` each."""
    query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
    return causal_attention(query, key, value, variant="torch_sdpa")[0].transpose(0, 1)
