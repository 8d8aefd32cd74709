"""Split-K decode of xformers, in Triton, with several choices of its sizes.

A tile must lie in one page, so the default of 64 tokens does not work for smaller pages. By its source (0.0.35),
``FwOp.get_operator`` makes an operator with given tile, warps, stages and number of parts; ``FwOp.get_split_k`` returns
the number of parts that xformers would choose.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.bench.paged_attention.cells import Cell
from workbench.attention.bench.paged_attention.contender import Contender, Prepared, Way
from workbench.attention.bench.paged_attention.inputs import Inputs
from workbench.attention.bench.paged_attention.peers.installed import LEAST_TILE, missing, parts_for

_CHOICES = ((64, 0, 2, 1), (64, 512, 2, 3), (64, 1024, 2, 2), (32, 512, 1, 3), (64, 512, 4, 2))
"""Choices (most tokens of a tile, total thread blocks or 0 for xformers' rule, warps, stages), its own first."""


@dataclass(frozen=True)
class Xformers(Contender):
    """The operator ``triton_splitk.FwOp`` with the paged mask; the fastest of several choices of its sizes."""

    name = "xformers"
    about = "triton_splitk with a paged mask, the fastest of up to five choices of tile, parts, warps and stages"
    is_ours = False
    tunes = True

    @property
    def missing(self) -> str:
        """Reason why xformers cannot run here; empty if it can."""
        return missing("xformers", "xformers")

    def ways(self, cell: Cell) -> Sequence[Way]:
        """Return a way for each choice of sizes, xformers' own first."""
        ways: list[SplitK] = []
        for tile, blocks, warps, stages in _CHOICES:
            tile = min(tile, cell.block_size)
            ways.append(SplitK(tile, parts_for(cell, blocks, tile) if blocks else 0, warps, stages))
        return tuple(dict.fromkeys(ways))


@dataclass(frozen=True)
class SplitK(Way):
    """xformers with one choice of sizes; ``parts`` is the number of parts of a sequence, 0 for xformers' choice."""

    tile: int
    parts: int
    warps: int
    stages: int
    form = "nhd"

    @property
    def label(self) -> str:
        """Description of the sizes."""
        parts = f"{self.parts} parts" if self.parts else "its own parts"
        return f"tile {self.tile}, {parts}, {self.warps} warps, {self.stages} stages"

    def refuses(self, cell: Cell, arch: str) -> str:
        """Return the reason why it cannot compute a cell; empty if it can."""
        if cell.cache != "bf16":
            return "xformers' paged decode takes no int8 and no plain fp8 cache"
        if cell.block_size < LEAST_TILE:
            return f"its tile lies in one page, and has {LEAST_TILE} tokens or more"
        return ""

    def code(self, cell: Cell) -> Hashable:
        """Return a key of the code, which is compiled for each cell and choice, because sizes are constants."""
        return cell, self

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        """Return the operator with these sizes, ready to run."""
        from xformers.ops import fmha
        from xformers.ops.fmha.attn_bias import PagedBlockDiagonalPaddedKeysMask

        cell, made = inputs.cell, fmha.triton_splitk.FwOp
        own = made.get_split_k(cell.num_seqs, cell.num_kv_heads, 1, cell.context, 1, cell.block_size, True)
        parts = self.parts or own
        operator = made.get_operator(parts, block_n=self.tile, num_warps=self.warps, num_stages=self.stages)
        mask = PagedBlockDiagonalPaddedKeysMask.from_seqlens(
            [1] * cell.num_seqs,
            [cell.context] * cell.num_seqs,
            inputs.block_tables,
            cell.block_size,
            device=inputs.query.device,
        )
        shape = (1, -1, cell.num_kv_heads, cell.group, cell.head_size)
        query = inputs.query.view(shape)
        # A stride of zero over a group's query heads tells xformers that they share keys and values.
        keys, values = (
            cache.flatten(0, 1)[None, :, :, None].expand(-1, -1, -1, cell.group, -1)
            for cache in inputs.caches(self.form)
        )

        def compute() -> torch.Tensor:
            return fmha.memory_efficient_attention_forward(query, keys, values, attn_bias=mask, op=operator)

        config = {"BLOCK_N": self.tile, "SPLIT_K": parts, "num_warps": self.warps, "num_stages": self.stages}
        return Prepared(compute, config)
