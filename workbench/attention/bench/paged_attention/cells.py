"""Cells of the benchmark: decode steps of several geometries, batches, contexts, cache types and page sizes.

They are ordered from the most informative to the least. Every sequence of a cell has the same length, a whole number of
pages, so that contenders without lengths need no mask and no contender profits from short sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from workbench.attention.ops.paged_attention import Case, Problem
from workbench.errors import ArgumentError

CACHES = {"bf16": "auto", "fp8": "fp8_e4m3", "int8": "int8"}
"""``kv_cache_dtype`` of each cache type of the grid. Query and output are always bfloat16."""

# The first value of each axis is the centre of the grid: Llama 3 8B, a full batch, a medium context.
HEADS = ((32, 8), (64, 8), (32, 32), (32, 4))
BATCHES = (64, 1, 8, 256)
CONTEXTS = (8192, 32768, 131072, 1024)
PAGES = (16, 1, 32, 64)


@dataclass(frozen=True, order=True)
class Cell:
    """One decode step: ``num_seqs`` sequences of ``context`` cached tokens each, in pages of ``block_size`` tokens."""

    num_heads: int = 32
    num_kv_heads: int = 8
    num_seqs: int = 64
    context: int = 8192
    cache: str = "bf16"
    head_size: int = 128
    block_size: int = 16

    @property
    def label(self) -> str:
        """Label, for example ``32/8 x128 bf16, 64 x 8k``, or ``... x 8k, pages of 32`` for pages not of 16 tokens."""
        tokens = f"{self.context // 1024}k" if self.context % 1024 == 0 else str(self.context)
        pages = "" if self.block_size == PAGES[0] else f", pages of {self.block_size}"
        return f"{self.num_heads}/{self.num_kv_heads} x{self.head_size} {self.cache}, {self.num_seqs} x {tokens}{pages}"

    @property
    def group(self) -> int:
        """Number of query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def pages(self) -> int:
        """Number of pages of one sequence."""
        return self.context // self.block_size

    def case(self, layout: str) -> Case:
        """Return the op's case of these sizes, for a cache in a layout; the case's own inputs are not used."""
        return Case(
            "bench",
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            seq_lens=(self.context,) * self.num_seqs,
            dtype="bfloat16",
            layout=layout,
            kv_cache_dtype=CACHES[self.cache],
        )

    def problem(self, layout: str, arch: str) -> Problem:
        """Return the problem for which a variant is compiled and launched."""
        return self.case(layout).problem({"BLOCK_SIZE": self.block_size}, arch)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values of all tokens."""
        size = 2 if self.cache == "bf16" else 1
        return 2 * size * self.num_seqs * self.context * self.num_kv_heads * self.head_size

    @property
    def minimum_bytes(self) -> int:
        """Bytes that any kernel must transfer: keys and values, query, output, lengths and block table."""
        return self.case("nhd").minimum_bytes(self.problem("nhd", "sm_80"))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as the benchmark's JSON file has them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Cell:
        """Return the cell of a record that `to_dict` made."""
        return cls(**record)


def grid(block_size: int | None = None) -> tuple[Cell, ...]:
    """Return all 768 cells, or the 192 of one page size, the most informative first.

    The centre of the grid comes first, then the cells that differ from it in one axis, in two, and so on.

    Args:
        block_size: tokens per page; None for all of PAGES.

    Raises:
        ArgumentError: if the contexts are not whole numbers of pages of ``block_size`` tokens.
    """
    pages = PAGES if block_size is None else (block_size,)
    if min(pages) < 1 or any(min(CONTEXTS) % size for size in pages):
        raise ArgumentError("block_size", block_size, f"a power of two up to {min(CONTEXTS)}", "Pages are whole.")
    caches = tuple(CACHES)
    axes = (HEADS, BATCHES, CONTEXTS, caches, pages)
    ranked = sorted(
        itertools.product(*(range(len(axis)) for axis in axes)),
        key=lambda ranks: (sum(rank > 0 for rank in ranks), sum(ranks), ranks),
    )
    cells = []
    for ranks in ranked:
        heads, batch, context, cache, page = ranks
        cells.append(Cell(*HEADS[heads], BATCHES[batch], CONTEXTS[context], caches[cache], block_size=pages[page]))
    return tuple(cells)
