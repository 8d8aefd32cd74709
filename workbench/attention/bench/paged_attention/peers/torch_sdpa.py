"""Scaled dot product attention of torch, over tokens gathered from the pages, in the timed run or before it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.bench.paged_attention.cells import Cell
from workbench.attention.bench.paged_attention.contender import Contender, Prepared, Way
from workbench.attention.bench.paged_attention.inputs import Inputs
from workbench.attention.bench.paged_attention.peers.installed import NO_QUANTIZED


@dataclass(frozen=True)
class TorchSdpa(Contender, Way):
    """The function ``torch.nn.functional.scaled_dot_product_attention`` over tokens gathered from the pages."""

    gathers: bool
    """True if gathering is timed too, because a paged cache has to gather at every step."""
    is_ours = False
    tunes = False
    missing = ""
    label = ""
    form = "gathered"

    @property
    def name(self) -> str:
        """Name in the rows."""
        return "torch_sdpa" if self.gathers else "torch_sdpa_gathered_before"

    @property
    def about(self) -> str:
        """Short description of exactly what is timed."""
        return "gather the pages, then SDPA" if self.gathers else "SDPA alone, over tokens gathered beforehand"

    def ways(self, cell: Cell) -> Sequence[Way]:
        """Return itself as the only way."""
        return (self,)

    def refuses(self, cell: Cell, arch: str) -> str:
        """Return the reason why it cannot compute a cell; empty if it can."""
        return "" if cell.cache == "bf16" else f"torch's SDPA {NO_QUANTIZED}"

    def code(self, cell: Cell) -> Hashable:
        """Return one key for all cells, because nothing is compiled."""
        return "nothing"

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        """Return the function over the gathered tokens, ready to run."""
        keys, values = (cache.transpose(1, 2) for cache in inputs.caches(self.form))
        query = inputs.query[:, :, None]  # one new token: [num_seqs, num_heads, 1, head_size]

        def compute() -> torch.Tensor:
            if self.gathers:
                inputs.gather()
            return torch.nn.functional.scaled_dot_product_attention(
                query, keys, values, enable_gqa=inputs.cell.group > 1
            )

        return Prepared(compute)
