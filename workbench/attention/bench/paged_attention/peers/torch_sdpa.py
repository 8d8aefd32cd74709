"""torch's scaled dot product attention: it knows no pages, so that they are gathered, in the timed run or before."""

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
    """``torch.nn.functional.scaled_dot_product_attention`` over tokens gathered from the pages."""

    gathers: bool
    """Whether gathering is timed too; a cache in pages must do it at every step."""
    is_ours = False
    tunes = False
    missing = ""
    label = ""
    form = "gathered"

    @property
    def name(self) -> str:
        return "torch_sdpa" if self.gathers else "torch_sdpa_gathered_before"

    @property
    def about(self) -> str:
        return "gather the pages, then SDPA" if self.gathers else "SDPA alone, over tokens gathered beforehand"

    def ways(self, cell: Cell) -> Sequence[Way]:
        return (self,)

    def refuses(self, cell: Cell, arch: str) -> str:
        return "" if cell.cache == "bf16" else f"torch's SDPA {NO_QUANTIZED}"

    def code(self, cell: Cell) -> Hashable:
        return "nothing"

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        keys, values = (cache.transpose(1, 2) for cache in inputs.caches(self.form))
        query = inputs.query[:, :, None]  # one new token: [num_seqs, num_heads, 1, head_size]

        def compute() -> torch.Tensor:
            if self.gathers:
                inputs.gather()
            return torch.nn.functional.scaled_dot_product_attention(
                query, keys, values, enable_gqa=inputs.cell.group > 1
            )

        return Prepared(compute)
