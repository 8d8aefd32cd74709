"""Named copies with a known answer: every byte of every page that a copy may write.

Sources are even pages, destinations odd ones, both in shuffled order, and some sources have several destinations.
All layers lie in one allocation. Source pages hold random bytes, so that no two pages, caches or halves of a page
agree; odd pages hold ones, those without a pair too. ``Tensors.out`` is the odd pages of all caches, and the answer is
exact.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.ops.copy_blocks.problem import CopyBlocksProblem, CopyBlocksTensors, tensors_of
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.named_case import NamedCase, by_name, check_bits
from workbench.ops import Check

_FREE_PAGES = 3

UNWRITTEN = 0xFF
"""Value of every byte of a page before something is written to it."""


@dataclass(frozen=True)
class PageCase(NamedCase):
    """One batch of pairs in the key and value caches of ``num_layers`` layers; ``block_size`` is in tokens."""

    num_layers: int
    num_kv_heads: int
    head_size: int
    num_pairs: int
    block_size: int = 16
    dtype: str = "float16"
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_choices(dtype=DTYPES)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of one cache."""
        return self.block_size * self.num_kv_heads * self.head_size * DTYPES[self.dtype].itemsize

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``fork 16 pairs 4 caches of 32768-byte pages``."""
        return f"{self.name} {self.num_pairs} pairs {2 * self.num_layers} caches of {self.page_bytes}-byte pages"

    def problem(self, config: Mapping[str, Any] | None = None, arch: str = "sm_80") -> CopyBlocksProblem:
        """Return the problem to solve; no configuration changes it."""
        return CopyBlocksProblem(self.num_pairs, 2 * self.num_layers, self.page_bytes, arch=arch)

    def sources(self, num_pages: int) -> torch.Tensor:
        """Draw source pages of all caches, ``[num_caches, num_pages, page_bytes] uint8``; no two pages agree."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        shape = (2 * self.num_layers, num_pages, self.page_bytes)
        return torch.randint(256, shape, dtype=torch.uint8, generator=generator)

    def reference(self) -> torch.Tensor:
        """Return the bytes of every page that may be written, after the copy, ``[num_caches, pages, bytes] uint8``."""
        raise NotImplementedError

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output by its bytes; ``max_error`` is the largest difference of two."""
        return check_bits(out, self.reference())


@dataclass(frozen=True)
class CopyBlocksCase(PageCase):
    """One batched copy inside the caches."""

    def minimum_bytes(self, problem: CopyBlocksProblem) -> int:
        """Return the bytes that must cross memory once.

        They are those of each source page read and each destination written, in every cache, of places and of pairs.
        """
        pages = self.num_pairs + len(_pairs(self)[:, 0].unique())
        return 2 * self.num_layers * (pages * self.page_bytes + 8) + 16 * self.num_pairs

    def inputs(self, problem: CopyBlocksProblem, device: str | torch.device = "cpu") -> CopyBlocksTensors:
        """Return fresh tensors; the caches are parts of one tensor, whose odd pages are ``out``."""
        pages = torch.full((2 * self.num_layers, 2 * self._half, self.page_bytes), UNWRITTEN, dtype=torch.uint8)
        halves = pages.unflatten(1, (self._half, 2))
        halves[:, :, 0] = self.sources(self._half)
        pages = pages.to(device, copy=True)
        caches = pages.view(DTYPES[self.dtype]).unbind(0)
        return tensors_of(
            caches,
            caches,
            _pairs(self).to(device, copy=True),
            out=pages.unflatten(1, (self._half, 2))[:, :, 1],
        )

    @property
    def _half(self) -> int:
        """Number of even pages, which is also that of odd ones."""
        return self.num_pairs + _FREE_PAGES

    def reference(self) -> torch.Tensor:
        """Return the odd pages of all caches after the copy, ``[num_caches, pages, page_bytes] uint8``."""
        return _answer(self)


@functools.lru_cache(maxsize=16)
def _pairs(case: CopyBlocksCase) -> torch.Tensor:
    """Draw pairs ``[num_pairs, 2] int64``: from even pages, about a third of them several times, to odd pages."""
    generator = torch.Generator().manual_seed(case.seed)
    sources = torch.randint(case._half, (case.num_pairs,), generator=generator)
    destinations = torch.randperm(case._half, generator=generator)[: case.num_pairs]
    return torch.stack([2 * sources, 2 * destinations + 1], 1)


@functools.lru_cache(maxsize=8)
def _answer(case: CopyBlocksCase) -> torch.Tensor:
    sources = case.sources(case._half)
    odd = torch.full_like(sources, UNWRITTEN)
    for source, destination in _pairs(case).tolist():
        odd[:, destination // 2] = sources[:, source // 2]
    return odd


CASES = by_name(
    CopyBlocksCase("small", num_layers=2, num_kv_heads=2, head_size=80, num_pairs=5, block_size=8),
    CopyBlocksCase("fork", num_layers=2, num_kv_heads=8, head_size=128, num_pairs=16),
    CopyBlocksCase("layers", num_layers=32, num_kv_heads=2, head_size=64, num_pairs=2, dtype="bfloat16"),
    CopyBlocksCase(
        "tiny-pages", num_layers=1, num_kv_heads=1, head_size=20, num_pairs=9, block_size=1, dtype="float32"
    ),
)
