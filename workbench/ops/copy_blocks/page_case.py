"""What the cases of the ops that move whole pages share: caches of some layers, and pairs of pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from workbench.ops.copy_blocks.problem import Problem
from workbench.ops.element_types import DTYPES
from workbench.ops.named_case import NamedCase, check_bits
from workbench.ops.variant import Check

UNWRITTEN = 0xFF
"""Every byte of a page before something is written to it."""


@dataclass(frozen=True)
class PageCase(NamedCase):
    """One batch of pairs in the key and value caches of ``num_layers`` layers; ``block_size`` is in tokens."""

    name: str
    num_layers: int
    num_kv_heads: int
    head_size: int
    num_pairs: int
    block_size: int = 16
    dtype: str = "float16"
    seed: int = 0

    def __post_init__(self):
        self._check_choices(dtype=DTYPES)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of one cache."""
        return self.block_size * self.num_kv_heads * self.head_size * DTYPES[self.dtype].itemsize

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``fork 16 pairs 4 caches of 32768-byte pages``."""
        return f"{self.name} {self.num_pairs} pairs {2 * self.num_layers} caches of {self.page_bytes}-byte pages"

    def problem(self, config: Mapping[str, Any] | None = None, arch: str = "sm_80") -> Problem:
        """The problem to solve; no configuration changes it."""
        return Problem(self.num_pairs, 2 * self.num_layers, self.page_bytes, arch=arch)

    def sources(self, num_pages: int) -> torch.Tensor:
        """Random source pages of all caches, ``[num_caches, num_pages, page_bytes] uint8``: no two pages agree."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        shape = (2 * self.num_layers, num_pages, self.page_bytes)
        return torch.randint(256, shape, dtype=torch.uint8, generator=generator)

    def reference(self) -> torch.Tensor:
        """The bytes of every page that may be written, afterwards, ``[num_caches, pages, bytes] uint8``."""
        raise NotImplementedError

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output by its bytes; ``max_error`` is the largest difference of two."""
        return check_bits(out, self.reference())
