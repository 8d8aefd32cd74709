"""FlexAttention of torch, where the block table becomes a block mask over the pages.

``kernel_options`` set its sizes, with a compilation for each choice. ``mode="max-autotune-no-cudagraphs"`` would not
find them. It tries tiles, whose size a page limits, on artificial block lists, and never the number of parts into which
a sequence is split; torch takes two parts per multiprocessor in all, or one per sequence and KV head if those are more.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.bench.paged_attention.cells import Cell
from workbench.attention.bench.paged_attention.contender import Contender, Prepared, Way
from workbench.attention.bench.paged_attention.inputs import FREE_PAGES, Inputs
from workbench.attention.bench.paged_attention.peers.installed import LEAST_TILE, NO_QUANTIZED, parts_for

_CHOICES = ((512, 2, 3), (1024, 1, 3), (512, 4, 2))
"""Choices (total thread blocks, warps, stages) to try beside torch's own."""


@dataclass(frozen=True)
class FlexAttention(Contender):
    """FlexAttention under ``torch.compile``, with several choices of its sizes."""

    name = "flex_attention"
    about = "torch.compile of FlexAttention, the block table as block mask, the fastest of four choices of its sizes"
    is_ours = False
    tunes = True

    @property
    def missing(self) -> str:
        """Reason why FlexAttention cannot run here; empty if it can."""
        return "" if importlib.util.find_spec("torch.nn.attention.flex_attention") else "this torch has none"

    def ways(self, cell: Cell) -> Sequence[Way]:
        """Return torch's own choice of sizes, then the others."""
        tile = min(cell.block_size, 64)
        options = [
            {"SPLIT_KV": parts_for(cell, blocks, tile), "num_warps": warps, "num_stages": stages, "BLOCK_N": tile}
            for blocks, warps, stages in _CHOICES
        ]
        # Every query sees a token, so no row needs the check for an empty one.
        safe = [{**choice, "ROWS_GUARANTEED_SAFE": True} for choice in options]
        return FlexWay("as torch chooses", {}), *(FlexWay(_named(choice), choice) for choice in safe)


def _named(choice: Mapping[str, Any]) -> str:
    return f"split {choice['SPLIT_KV']}, {choice['num_warps']} warps, {choice['num_stages']} stages"


@dataclass(frozen=True)
class FlexWay:
    """FlexAttention with one choice of sizes.

    All pages are full, so nothing needs a mask. They are listed as partial blocks nevertheless: the decode kernel
    divides the partial blocks of a sequence between thread blocks, but full blocks by the length of the whole cache.
    """

    label: str
    options: Mapping[str, Any]
    form = "nhd"

    def refuses(self, cell: Cell, arch: str) -> str:
        """Return the reason why the decode kernel cannot compute a cell; empty if it can."""
        if cell.cache != "bf16":
            return f"FlexAttention {NO_QUANTIZED}"
        if cell.group.bit_count() != 1:
            return "its decode kernel needs a power of two of query heads per KV head"
        if cell.block_size < LEAST_TILE:
            return f"a tile of its decode kernel lies in one page, and has {LEAST_TILE} tokens or more"
        # The kernel multiplies token and stride in 32 bits, so larger caches would be read at wrong addresses.
        elements = cell.kv_bytes // 4 + FREE_PAGES * cell.block_size * cell.num_kv_heads * cell.head_size
        return "its decode kernel has 32-bit offsets: fewer than 2**31 keys' elements" if elements >= 2**31 else ""

    def code(self, cell: Cell) -> Hashable:
        """Return a key of the code, which is compiled for each cell and choice, because shapes are constants."""
        return cell, self.label

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        """Return FlexAttention over the cache as one long sequence, whose pages the block mask selects."""
        from torch.nn.attention.flex_attention import BlockMask

        cell, tables = inputs.cell, inputs.block_tables
        keys, values = (cache.flatten(0, 1).transpose(0, 1)[None] for cache in inputs.caches(self.form))
        num_blocks = keys.shape[2] // cell.block_size
        counts = torch.full((cell.num_seqs, 1, 1), cell.pages, dtype=torch.int32, device=tables.device)
        listed = tables.new_zeros(cell.num_seqs, num_blocks)  # FlexAttention needs an entry for every page of the cache
        listed[:, : cell.pages] = tables
        mask = BlockMask.from_kv_blocks(
            counts,
            listed[:, None, None],  # [num_seqs, 1, 1, num_blocks]: one row of queries, for all heads
            BLOCK_SIZE=(128, cell.block_size),
            seq_lengths=(1, num_blocks * cell.block_size),
            compute_q_blocks=False,
        )
        query = inputs.query[:, :, None]
        attend, options = compiled(), dict(self.options) or None

        def compute() -> torch.Tensor:
            return attend(query, keys, values, block_mask=mask, enable_gqa=cell.group > 1, kernel_options=options)

        return Prepared(compute, {"page": cell.block_size, **self.options})


@functools.cache
def compiled() -> Any:
    """Return FlexAttention under ``torch.compile``, which compiles it anew for each shape."""
    from torch._dynamo import config
    from torch.nn.attention.flex_attention import flex_attention

    # Every cell is compiled for its own shape; past its limit torch would silently fall back to unfused code.
    config.recompile_limit = 4096
    config.accumulated_recompile_limit = 16384
    config.fail_on_recompile_limit_hit = True
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)
