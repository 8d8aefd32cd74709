"""One pool of pages for the layers of a model that keep different things: keys and values, latents, states.

Every block of the `BlockManager` is a page of bytes. The layers that keep the same kind of thing are a group; a page
of the group holds a block of each of its layers, one after the other. The tensors of a layer are views of the
pool, so that kernels read pages in place and one copy of a page is a copy in all layers of its group.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.kvcache import BlockManager, LayerKind, plan_pages
from workbench.attention.kvcache.sequence import Placement

_ALIGNMENT = 64
"""Bytes on which a page starts: 16 elements of four bytes, as `paged_attention` wants pages apart."""


@dataclass(frozen=True)
class LayerParts:
    """Tensors that one layer keeps, of every token or, with the kind "state", of the sequence.

    Attributes:
        kind: "full", "latent" or "state", as in `workbench.attention.kvcache.layer_groups.KINDS`.
        parts: shape and dtype of each tensor.
    """

    kind: str
    parts: tuple[tuple[tuple[int, ...], torch.dtype], ...]

    @property
    def slot_bytes(self) -> int:
        """Bytes of a token, or of the state."""
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.parts)


@dataclass(frozen=True)
class PoolStep:
    """Slots of new tokens in the group that keeps tokens, ``[num_tokens] int64``."""

    slot_mapping: torch.Tensor


class LayerPool:
    """Pages for several groups of layers, one of which keeps tokens; the methods are those of `PagedKVCache`.

    ``.layers[i]`` are the tensors of layer i: ``[num_blocks, block_size, ...]``, of a state ``[num_blocks, ...]``.

    Args:
        layers: what each layer keeps.
        num_blocks: pages of the pool.
        block_size: least number of tokens in a page; `plan_pages` raises it until a page holds the states.
        device: where the pool lives.
    """

    def __init__(
        self, layers: Sequence[LayerParts], *, num_blocks: int, block_size: int, device: torch.device | str = "cpu"
    ):
        kinds = sorted(dict.fromkeys(layer.kind for layer in layers), key="state".__eq__)
        members = [[layer for layer in layers if layer.kind == kind] for kind in kinds]
        plan = plan_pages(
            [LayerKind(of[0].kind, len(of), max(layer.slot_bytes for layer in of)) for of in members],
            [len(of) for of in members],
            block_size=block_size,
        )
        self.manager = BlockManager(num_blocks, groups=plan.layer_groups)
        self.block_size = self.manager.block_size
        self.device = torch.device(device)
        self.state_group = next((group.name for group in plan.layer_groups if group.kind == "state"), None)
        slots = {group.kind: group.slots_per_block for group in plan.layer_groups}
        ends, places = dict.fromkeys(kinds, 0), []
        for layer in layers:
            for shape, dtype in layer.parts:
                size = slots[layer.kind] * math.prod(shape) * dtype.itemsize
                places.append((ends[layer.kind], size))
                ends[layer.kind] += _aligned(size)
        blocks_of_latents = [
            slots[layer.kind] * math.prod(layer.parts[0][0]) * layer.parts[0][1].itemsize
            for layer in layers
            if layer.kind == "latent"
        ]  # `rows` needs pages that lie whole blocks apart
        size = _aligned(max(ends.values()), math.lcm(_ALIGNMENT, *blocks_of_latents))
        self._pages = torch.zeros(num_blocks, size, dtype=torch.uint8, device=self.device)
        views = iter(places)
        self.layers = [
            tuple(
                self._view(next(views), dtype, shape if layer.kind == "state" else (self.block_size, *shape))
                for shape, dtype in layer.parts
            )
            for layer in layers
        ]

    def allocate(self, seq: Hashable, tokens: int) -> PoolStep:
        """Begin a sequence and make room for the tokens of its prompt."""
        return self._step(self.manager.allocate(seq, tokens))

    def append_batch(self, batch: Mapping[Any, int]) -> PoolStep:
        """Make room for new tokens of several sequences, and copy the shared pages that they will write."""
        return self._step(self.manager.append_batch(batch))

    def reorder(self, parents: Mapping[Any, Hashable]) -> None:
        """Replace the histories of sequences by those of their ``parents``: a step of beam search without copies."""
        self.manager.reorder(parents)

    def free(self, seq: Hashable) -> None:
        """End a sequence."""
        self.manager.free(seq)

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store the keys and values of new tokens in one layer; -1 skips a token."""
        for part, rows in zip(self.layers[layer], (key, value), strict=True):
            self.store(part, rows, slot_mapping)

    def store(self, part: torch.Tensor, rows: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store ``rows [num_tokens, ...]`` in one tensor of a layer; -1 skips a token."""
        kept = slot_mapping >= 0
        slots = slot_mapping[kept]
        part[slots // self.block_size, slots % self.block_size] = rows[kept].to(part.dtype)

    def gather(self, layer: int, seq: Hashable) -> tuple[torch.Tensor, ...]:
        """Return the tensors of a layer with the tokens of a sequence, ``[num_tokens, ...]`` each."""
        table = self.manager.block_table(seq)
        return tuple(part[table].flatten(0, 1)[: self.manager.num_tokens(seq)] for part in self.layers[layer])

    def rows(self, latents: torch.Tensor, block_tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """View the latents of a layer as pages of one token, and count the blocks of the tables in such pages.

        Returns:
            ``[num_pages, 1, row_size]``, and the tables that `chosen_slots` needs to find tokens there.
        """
        blocks, row = latents.stride(0) // (self.block_size * latents.shape[2]), latents.shape[2]
        pages = ((len(latents) - 1) * blocks + 1) * self.block_size
        return latents.as_strided((pages, 1, row), (row, row, 1)), block_tables * blocks

    def attention_options(self, layer: int) -> dict[str, Any]:
        """Return the keyword arguments with which `paged_attention` reads the keys and values of one layer."""
        return {"layout": "nhd"}

    def block_tables(self, seqs: Iterable[Hashable]) -> torch.Tensor:
        """Return the tables of the group that keeps tokens, ``[num_seqs, max_blocks] int32``; unused entries are 0."""
        tables = [self.manager.block_table(seq) for seq in seqs]
        widest = max(map(len, tables), default=0)
        rows = [table + [0] * (widest - len(table)) for table in tables]
        return torch.tensor(rows, dtype=torch.int32, device=self.device).view(len(rows), widest)

    def state_pages(self, seqs: Iterable[Hashable]) -> list[int]:
        """Return the page of the running state of each sequence, -1 if it has none."""
        tables = [self.manager.block_table(seq, self.state_group) for seq in seqs]
        return [table[-1] if table else -1 for table in tables]

    def seq_lens(self, seqs: Iterable[Hashable]) -> torch.Tensor:
        """Return the lengths of sequences in tokens, ``[num_seqs] int32``."""
        lengths = [self.manager.num_tokens(seq) for seq in seqs]
        return torch.tensor(lengths, dtype=torch.int32, device=self.device)

    def _step(self, placement: Placement) -> PoolStep:
        if placement.copies:
            source, target = torch.tensor(placement.copies, device=self.device).T
            self._pages[target] = self._pages[source]
        return PoolStep(torch.tensor(placement.slots, dtype=torch.int64, device=self.device))

    def _view(self, place: tuple[int, int], dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        start, size = place
        return self._pages[:, start : start + size].view(dtype).unflatten(1, shape)


def _aligned(size: int, unit: int = _ALIGNMENT) -> int:
    return -(-size // unit) * unit
