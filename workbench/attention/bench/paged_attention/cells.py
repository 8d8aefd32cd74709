"""What is measured: decode steps of several geometries, batches, contexts, cache types and page sizes, in the order of
what they tell.

Every sequence of a cell has the same length, a whole number of pages: contenders that know no lengths need no mask
then, and nobody profits from short sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from workbench.attention.ops.paged_attention import Case, Problem
from workbench.errors import ArgumentError

CACHES = {"bf16": "auto", "fp8": "fp8_e4m3", "int8": "int8"}
"""Cache types of the grid: name -> ``kv_cache_dtype``. Query and output are bfloat16 in all of them."""

# The first of each axis is the centre of the grid: Llama 3 8B, a full batch, a middling context.
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
        """E.g. ``32/8 x128 bf16, 64 x 8k``; where pages are not of 16 tokens, ``... x 8k, pages of 32``."""
        tokens = f"{self.context // 1024}k" if self.context % 1024 == 0 else str(self.context)
        pages = "" if self.block_size == PAGES[0] else f", pages of {self.block_size}"
        return f"{self.num_heads}/{self.num_kv_heads} x{self.head_size} {self.cache}, {self.num_seqs} x {tokens}{pages}"

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def pages(self) -> int:
        """Pages of one sequence."""
        return self.context // self.block_size

    def case(self, layout: str) -> Case:
        """The op's own description of the step, for a cache in this layout (its content is not used)."""
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
        """What a variant is compiled and launched for."""
        return self.case(layout).problem({"BLOCK_SIZE": self.block_size}, arch)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values of every token."""
        size = 2 if self.cache == "bf16" else 1
        return 2 * size * self.num_seqs * self.context * self.num_kv_heads * self.head_size

    @property
    def minimum_bytes(self) -> int:
        """Bytes that must cross memory once: keys and values, query, output, lengths and block table."""
        return self.case("nhd").minimum_bytes(self.problem("nhd", "sm_80"))

    def to_dict(self) -> dict[str, Any]:
        """The fields, as the benchmark's JSON file has them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Cell:
        """The cell of such a record."""
        return cls(**record)


def grid(block_size: int | None = None) -> tuple[Cell, ...]:
    """All 768 cells, or the 192 of one page size; the most telling first: the centre, then what differs from it in one
    respect, in two, ...

    Args:
        block_size: tokens per page; None for all of PAGES.

    Raises:
        ArgumentError: pages of ``block_size`` tokens do not make up the contexts.
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
