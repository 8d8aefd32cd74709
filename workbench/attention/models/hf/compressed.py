"""Layers of DeepSeek-V4 over the paged cache: a window of tokens, and entries that a compressor makes of many."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from copy import copy
from typing import Any

import torch

from workbench.attention import mla_decode
from workbench.attention.cache_formats.layouts import chosen_slots
from workbench.attention.kvcache import Compressor
from workbench.attention.models.hf.causal import ScoreRule, attend, unread
from workbench.attention.models.hf.indexer import select
from workbench.attention.models.hf.layers import CacheLayer
from workbench.attention.models.hf.pool import LayerPool
from workbench.attention.models.hf.step import ForwardPass

COMPRESSORS = {"DeepseekV4HCACompressor": False, "DeepseekV4CSACompressor": True}
"""Compressors of each class, and whether their windows overlap and an indexer chooses their entries."""


class CompressedLayer(CacheLayer):
    """Rows of tokens that are key and value at once, of which a window is read, and the entries before them.

    A page holds the rows of its tokens, then their entries, then the index keys of these. What fills no entry yet is
    kept beside the pages, in a `Compressor` for each row of the batch. Padding makes no entry.
    """

    paged: LayerPool
    sliding_window: int

    def __init__(self, paged: LayerPool, step: ForwardPass, index: int, variants: Mapping[str, str]):
        super().__init__(paged, step, index, variants)
        self._compressors: dict[tuple[int, int], Compressor] = {}
        self._rate = 0
        self._chosen: torch.Tensor | None = None

    def compress(self, module: Any, hidden: torch.Tensor, residual: torch.Tensor, positions: torch.Tensor) -> None:
        """Store the entries that new tokens complete, and choose those that each token reads.

        Args:
            module: the model's compressor.
            hidden: ``[num_rows, num_new, hidden_size]``.
            residual: ``[num_rows, num_new, q_lora_rank]``, of which an indexer makes its queries.
            positions: positions of the new tokens, ``[num_rows, num_new]``.
        """
        self._rate = module.compress_rate
        self._append(1, module, hidden)
        if not COMPRESSORS[type(module).__name__]:
            return
        indexer = module.indexer
        self._append(2, indexer, hidden)
        query = indexer.q_b_proj(residual).unflatten(-1, (-1, indexer.head_dim))
        query = _rotate(indexer, query.transpose(1, 2), positions).transpose(1, 2)
        scorer = indexer.scorer
        weights = scorer.weights_proj(hidden).float() * (scorer.weights_scaling * scorer.softmax_scale)
        self._chosen = select(self, 2, query, weights, indexer.index_topk, rate=self._rate)

    def reorder(self, parents: list[int]) -> None:
        """Let each row continue from the waiting tokens of its parent."""
        parts = {part for _, part in self._compressors}
        self._compressors = {
            (row, part): copy(self._compressors[parent, part]) for row, parent in enumerate(parents) for part in parts
        }

    def start_over(self) -> None:
        """Forget the waiting tokens."""
        self._compressors = {}
        super().start_over()

    def attend(
        self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        """Write the new rows and return the attention, ``[num_rows, num_new, num_heads, head_size]``.

        Args:
            module: the model's attention.
            query: ``[num_rows, num_heads, num_new, head_size]``.
            key: ``[num_rows, 1, num_new, head_size]``.
            value: the same tensor.
            rule: rule of the scores.
        """
        step, rows = self.step, self.paged.layers[self.index][0]
        self.paged.store(rows, key[:, 0].flatten(0, 1), step.slots)
        if query.shape[2] == 1:
            return self._decode(query[:, :, 0].contiguous(), rule)[:, None]
        out = query.new_zeros(query.shape).transpose(1, 2).contiguous()
        for row, new in enumerate(step.real):
            tokens, *more = self.paged.gather(self.index, row)
            columns = step.columns_of(row)
            age = columns[step.had[row] :, None] - columns
            hidden = (age < 0) | (age >= self.sliding_window)
            if more:
                tokens = torch.cat([tokens, more[0]])
                hidden = torch.cat([hidden, self._unread(row, len(age), len(more[0]))], 1)
            out[row, new] = attend(query[row, :, new], tokens[None], tokens[None], hidden, rule)
        return out

    def _unread(self, row: int, num_new: int, entries: int) -> torch.Tensor:
        if self._chosen is not None:
            return unread(self._chosen[row, self.step.real[row]], entries)
        ready = (self.step.had[row] + torch.arange(1, num_new + 1)) // self._rate
        return torch.arange(entries) >= ready[:, None]

    def _decode(self, query: torch.Tensor, rule: ScoreRule) -> torch.Tensor:
        step, (rows, *more) = self.step, self.paged.layers[self.index]
        pages, tables = self.paged.rows(rows, step.block_tables)
        seen = step.shown[:, -self.sliding_window :].sum(1)
        lengths = step.seq_lens.cpu()
        window = _last(lengths, seen.minimum(lengths))
        slots = chosen_slots(window.to(query.device), tables, self.paged.block_size)
        if more:
            counts = lengths // self._rate
            chosen = _last(counts, counts).to(query.device) if self._chosen is None else self._chosen[:, 0]
            size = more[0].shape[1]  # entries follow the rows of their page
            pages_of_entries = step.block_tables.gather(1, chosen.clamp(min=0).long() // size)
            offsets = self.paged.block_size + chosen % size
            apart = rows.stride(0) // rows.shape[2]
            slots = torch.cat([slots, torch.where(chosen < 0, -1, pages_of_entries * apart + offsets).int()], 1)
        slots = slots.sort(1, descending=True).values.contiguous()
        return mla_decode(
            query,
            pages,
            slots,
            (slots >= 0).sum(1).int(),
            scale=rule.scale,
            latent_size=query.shape[-1],
            sinks=rule.sinks,
            variant=self.variants["mla_decode"],
        )

    def _append(self, part: int, module: Any, hidden: torch.Tensor) -> None:
        """Pool the new tokens of every row and store the entries that they complete in one tensor of the layer."""
        values, gates = module.kv_proj(hidden), module.gate_proj(hidden)
        store = self.paged.layers[self.index][part]
        overlapping = values.shape[-1] != module.head_dim
        for row, new in enumerate(self.step.real):
            if (row, part) not in self._compressors:
                bias = module.position_bias.detach()
                variant = self.variants["pool_windows"]
                self._compressors[row, part] = Compressor(bias, overlapping=overlapping, variant=variant)
            compressor = self._compressors[row, part]
            first = compressor.num_entries
            entries = compressor.append(values[row, new], gates[row, new])
            if len(entries):
                numbers = torch.arange(first, first + len(entries), device=hidden.device)
                rotated = _rotate(module, module.kv_norm(entries)[None, None], numbers[None] * module.compress_rate)
                pages = self.step.block_tables[row, numbers // store.shape[1]]
                self.paged.store(store, rotated[0, 0], pages * store.shape[1] + numbers % store.shape[1])


def _rotate(module: Any, vectors: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotate ``[num_rows, num_heads, tokens, size]`` as the compressor's module does."""
    cos, sin = module.rotary_emb(vectors, position_ids=positions, layer_type=module.rope_layer_type)
    return sys.modules[type(module).__module__].apply_rotary_pos_emb(vectors, cos, sin)


def _last(lengths: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Return the last ``counts`` of ``lengths`` positions of each row, -1 where a row has fewer than another."""
    steps = torch.arange(int(counts.max()) if len(counts) else 0)
    return torch.where(steps < counts[:, None], (lengths - counts)[:, None] + steps, -1).int()
