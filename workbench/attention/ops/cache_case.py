"""Common base of the cases of ops on paged caches: shuffled pages, scales per token in them, quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from workbench.attention.cache_formats import nvfp4
from workbench.attention.cache_formats.layouts import slots_of
from workbench.attention.cache_formats.quantization import LARGEST
from workbench.attention.ops.named_case import NamedCase
from workbench.errors import ArgumentError

SCALES = ("none", "tensor", "head", "token")
"""Granularities of a quantized cache's scales: none (a scale of 1), one for all, per KV head, per token and head."""

UNWRITTEN = 0xFF
"""Value of every byte that nothing has written yet: all ones is NaN in every floating-point type."""

FREE_PAGES = 3


def cache_row_bytes(case: Any, problem: Any) -> int:
    """Return the bytes of one token of a KV head in one cache, NVFP4's scales included."""
    if case.kv_cache_dtype == "nvfp4":
        return nvfp4.row_bytes(case.head_size)
    return case.head_size * problem.cache_dtype.itemsize


def check_nvfp4(case: Any) -> None:
    """Refuse a case of NVFP4 with scales per token, or with heads that are no whole groups."""
    if case.kv_cache_dtype != "nvfp4":
        return
    nvfp4.row_bytes(case.head_size)
    if case.scales == "token":
        raise ArgumentError(
            "scales", "'token' for nvfp4", "scales per tensor or head, beside those of the pages", "Change the case."
        )


class CacheCase(NamedCase):
    """Case with ``kv_cache_dtype`` and ``scales``, one of `SCALES`: the granularity of a quantized cache's scales."""

    layout: str
    block_size: int
    kv_cache_dtype: str
    scales: str

    @property
    def quantized(self) -> bool:
        """True if the cache holds codes, which are multiplied by scales."""
        return self.kv_cache_dtype != "auto"

    @property
    def cache_label(self) -> str:
        """The layout, and how the cache is quantized, e.g. ``x/16 int8 per token``."""
        kind = f" {self.kv_cache_dtype} per {self.scales}" if self.quantized else ""
        return f"{self.layout}/{self.block_size}{kind}"

    @property
    def features(self) -> tuple[str, ...]:
        """The features of the problem: the kind of a quantized cache."""
        return (self.kv_cache_dtype,) if self.quantized else ()


def random_scales(case: Any, per_token: Sequence[int], generator: torch.Generator) -> Sequence[torch.Tensor | None]:
    """Draw scales of K and V at which a few in a thousand elements of N(0, 1) saturate: those beyond 2.5 to 3.5.

    Scales are arbitrary fp32 numbers, so that their reciprocals are rounded. ``per_token`` is the shape of scales per
    token. Both scales are None if the case has none.
    """
    if not case.quantized or case.scales == "none":
        return None, None
    shape = {"tensor": (1,), "head": (case.num_kv_heads,), "token": per_token}[case.scales]
    return torch.rand((2, *shape), generator=generator).add(2.5).div(LARGEST[case.kv_cache_dtype]).unbind(0)


def shuffled_tables(lengths: Sequence[int], block_size: int, generator: torch.Generator) -> tuple[torch.Tensor, int]:
    """Return block tables ``[num_seqs, max_blocks] int32``, -1 where no page is in use, and the number of pages.

    Pages are shuffled over the cache, with free ones in between.
    """
    counts = [-(-length // block_size) for length in lengths]
    num_blocks = sum(counts) + FREE_PAGES
    tables = torch.full((len(counts), max([1, *counts])), -1, dtype=torch.int32)
    pages = torch.randperm(num_blocks, generator=generator).int()
    for row, table in zip(tables, pages[: sum(counts)].split(counts), strict=True):
        row[: len(table)] = table
    return tables, num_blocks


def in_pages(
    scales: torch.Tensor, tables: torch.Tensor, lengths: Sequence[int], block_size: int, num_blocks: int
) -> torch.Tensor:
    """Return scales ``[tokens, num_kv_heads]`` as ``[num_blocks, block_size, num_kv_heads]``, NaN in free slots."""
    placed = torch.full((num_blocks * block_size, scales.shape[1]), torch.nan)
    placed[slots_of(tables, lengths, block_size)] = scales
    return placed.unflatten(0, (num_blocks, block_size))
