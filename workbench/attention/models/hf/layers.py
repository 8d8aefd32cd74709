"""Layers of the paged cache that keep something of every token: keys and values, or latents."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers.cache_utils import CacheLayerMixin

from workbench.attention import mla_decode, paged_attention
from workbench.attention.cache_formats.layouts import chosen_slots
from workbench.attention.kvcache import PagedKVCache
from workbench.attention.models.hf.causal import ScoreRule, causal
from workbench.attention.models.hf.pool import LayerPool
from workbench.attention.models.hf.step import ForwardPass
from workbench.attention.ops.mla_decode.reference import absorb


class CacheLayer(CacheLayerMixin):
    """One layer of a `PagedCache`; the pool of the cache holds its tensors.

    Args:
        paged: the pool.
        step: state of the forward pass, which all layers share.
        index: index of the layer.
        variants: the variant of each operation.
    """

    def __init__(self, paged: PagedKVCache | LayerPool, step: ForwardPass, index: int, variants: Mapping[str, str]):
        super().__init__()
        self.paged, self.step, self.index, self.variants = paged, step, index, variants
        self.is_initialized = True
        self.sliding_window: int | None = None
        self.steps = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing, because the pool exists already."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the new keys and values to the attention function, which knows the mask and writes them."""
        key_states.paged_layer = self
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Return the number of columns so far, padding included, which transformers takes as the length."""
        return self.step.columns

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of columns of the mask with ``query_length`` new ones, and 0, the first column."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """Return -1 for no limit, because the pool bounds the tokens of all rows together, not of one."""
        return -1

    def enter(self, mask: torch.Tensor | None, num_rows: int, num_new: int) -> None:
        """Make room in all layers if this is the first one of a forward pass."""
        if self.steps == self.step.number:
            self.step.make_room(mask, num_rows=num_rows, num_new=num_new)
        self.steps = self.step.number


class PagedLayer(CacheLayer):
    """Keys and values of every token, read by `paged_attention`."""

    def attend(
        self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        """Write the new tokens and return their attention, ``[num_rows, num_new, num_heads, head_size]``."""
        new_keys, new_values = (side.transpose(1, 2).flatten(0, 1) for side in (key, value))
        self.paged.write(self.index, new_keys.contiguous(), new_values.contiguous(), self.step.slots)
        if query.shape[2] > 1:
            return self._prompt(query, key, value, rule)
        step, (key_cache, value_cache) = self.step, self.paged.layers[self.index]
        newest = query[:, :, 0].contiguous()
        out = torch.empty_like(newest)
        for window, rows in step.rows_by_window(self.sliding_window):
            out[rows] = paged_attention(
                newest[rows],
                key_cache,
                value_cache,
                step.block_tables[rows],
                step.seq_lens[rows],
                **(self.paged.attention_options(self.index) | {"sliding_window": window}),
                variant=self.variants["paged_attention"],
                scale=rule.scale,
                soft_cap=rule.soft_cap,
                sinks=rule.sinks,
            )
        return out[:, None]

    def _prompt(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule) -> torch.Tensor:
        """Return the attention of several new tokens per row, to the row's cached tokens and to each other."""
        step = self.step
        out = query.new_zeros(query.shape).transpose(1, 2).contiguous()
        for row, new in enumerate(step.real):
            keys, values = key[row, :, new], value[row, :, new]
            if step.had[row]:
                keys, values = (side.transpose(0, 1) for side in self.paged.gather(self.index, row))
            columns = step.columns_of(row)[-keys.shape[1] :]
            out[row, new] = causal(query[row, :, new], keys, values, columns, rule, window=self.sliding_window)
        return out


class LatentLayer(CacheLayer):
    """Latents of every token, with the rotated part of its key (MLA), read by `mla_decode`.

    A new token attends in the absorbed form, the tokens of a prompt to keys and values made of the latents.
    """

    paged: LayerPool

    def attend(
        self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        """Write the new latents and return the attention, ``[num_rows, num_new, num_heads, value_size]``.

        Args:
            module: the model's attention; its ``kv_b_proj`` makes keys and values of a latent.
            query: ``[num_rows, num_heads, num_new, nope_size + rope_size]``.
            key: latents ``[num_rows, 1, num_new, latent_size]``.
            value: rotated parts of the keys ``[num_rows, 1, num_new, rope_size]``.
            rule: rule of the scores.
        """
        latent_cache = self.paged.layers[self.index][0]
        self.paged.store(latent_cache, torch.cat([key, value], -1)[:, 0].flatten(0, 1), self.step.slots)
        latent_size, num_heads = key.shape[-1], query.shape[1]
        nope_size = query.shape[-1] - value.shape[-1]
        weights = module.kv_b_proj.weight.view(num_heads, -1, latent_size)
        key_weight, value_weight = weights.split([nope_size, weights.shape[1] - nope_size], 1)
        if query.shape[2] == 1:
            sums = self._decode(absorb(query[:, :, 0], key_weight), latent_size, rule)
            return torch.einsum("shl,hvl->shv", sums, value_weight)[:, None]
        step = self.step
        out = query.new_zeros(len(query), query.shape[2], num_heads, value_weight.shape[1])
        for row, new in enumerate(step.real):
            latents, rotated = self.paged.gather(self.index, row)[0].split([latent_size, value.shape[-1]], -1)
            keys = torch.cat([latents @ key_weight.mT, rotated.expand(num_heads, -1, -1)], -1)
            columns = step.columns_of(row)
            chosen = None if rule.chosen is None else rule.chosen[row, new]
            out[row, new] = causal(query[row, :, new], keys, latents @ value_weight.mT, columns, rule, chosen=chosen)
        return out

    def _decode(self, query: torch.Tensor, latent_size: int, rule: ScoreRule) -> torch.Tensor:
        latent_cache, tables, lengths = self.paged.layers[self.index][0], self.step.block_tables, self.step.seq_lens
        if rule.chosen is not None:
            positions = rule.chosen[:, 0]
            latent_cache, pages = self.paged.rows(latent_cache, tables)
            tables, lengths = chosen_slots(positions, pages, self.paged.block_size), (positions >= 0).sum(1).int()
        return mla_decode(
            query,
            latent_cache,
            tables,
            lengths,
            scale=rule.scale,
            latent_size=latent_size,
            sinks=rule.sinks,
            variant=self.variants["mla_decode"],
        )
