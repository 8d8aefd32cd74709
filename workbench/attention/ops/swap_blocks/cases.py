"""Named swaps with a known answer: every byte of every target cache.

Source caches hold random bytes, so that no two pages, caches or halves of a page agree; target caches hold ones. Both
sides have free pages, another number of them, and pages of the targets lie further apart. All sources are parts of one
allocation and all targets of another. ``Tensors.out`` is the targets, and the answer is exact.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from workbench.attention.ops.copy_blocks.cases import UNWRITTEN, PageCase
from workbench.attention.ops.copy_blocks.problem import CopyBlocksProblem, CopyBlocksTensors, tensors_of
from workbench.attention.ops.named_case import by_name

_GAP = 32
"""Bytes between two pages of a target."""


@dataclass(frozen=True)
class SwapBlocksCase(PageCase):
    """One swap from caches into others."""

    def minimum_bytes(self, problem: CopyBlocksProblem) -> int:
        """Return the bytes that must cross memory once: each page read and written in every cache, places and pairs."""
        return 2 * self.num_layers * (2 * self.num_pairs * self.page_bytes + 16) + 16 * self.num_pairs

    def inputs(self, problem: CopyBlocksProblem, device: str | torch.device = "cpu") -> CopyBlocksTensors:
        """Return fresh tensors; the targets are parts of ``out``."""
        out = torch.full_like(_answer(self), UNWRITTEN, device=device)
        targets = out[:, :, : self.page_bytes]
        return tensors_of(
            self.sources(self.num_pairs + 2).to(device, copy=True).unbind(0),
            targets.unbind(0),
            _pairs(self).to(device, copy=True),
            out,
        )

    def reference(self) -> torch.Tensor:
        """Return the target caches after the swap, gaps included, ``[num_caches, pages, bytes] uint8``."""
        return _answer(self)


@functools.lru_cache(maxsize=16)
def _pairs(case: SwapBlocksCase) -> torch.Tensor:
    """Draw pairs ``[num_pairs, 2] int64`` of ``num_pairs + 2`` source pages and ``num_pairs + 3`` target pages."""
    generator = torch.Generator().manual_seed(case.seed)
    sides = [torch.randperm(case.num_pairs + free, generator=generator)[: case.num_pairs] for free in (2, 3)]
    return torch.stack(sides, 1)


@functools.lru_cache(maxsize=8)
def _answer(case: SwapBlocksCase) -> torch.Tensor:
    sources = case.sources(case.num_pairs + 2)
    apart = -(-case.page_bytes // 16) * 16 + _GAP
    targets = torch.full((len(sources), case.num_pairs + 3, apart), UNWRITTEN, dtype=torch.uint8)
    for source, destination in _pairs(case).tolist():
        targets[:, destination, : case.page_bytes] = sources[:, source]
    return targets


CASES = by_name(
    SwapBlocksCase("small", num_layers=2, num_kv_heads=2, head_size=80, num_pairs=5, block_size=8),
    SwapBlocksCase("preempt", num_layers=2, num_kv_heads=8, head_size=128, num_pairs=16),
    SwapBlocksCase("layers", num_layers=32, num_kv_heads=2, head_size=64, num_pairs=2, dtype="bfloat16"),
    SwapBlocksCase(
        "tiny-pages", num_layers=1, num_kv_heads=1, head_size=20, num_pairs=9, block_size=1, dtype="float32"
    ),
)
