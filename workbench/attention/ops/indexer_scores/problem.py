"""Sizes and tensors of the kernels that score the tokens of a paged index cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.cache_formats import fp8_index_keys
from workbench.attention.ops.cache_problem import Sizes
from workbench.attention.ops.rules import grid, rules
from workbench.ops import Arguments, Config, cdiv
from workbench.ops.tensors import RunTensors

DEFAULT_BLOCK_SIZE = 64
"""Page size of an untuned cache, in tokens: that of vLLM's indexer."""

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn}
"""Dtypes of queries, which say how keys are stored."""


@dataclass(frozen=True)
class IndexerProblem(Sizes):
    """The sizes of one decode step's scores. Lengths are in tokens, sizes in elements.

    ``max_seq_len`` is the number of scores in a row of the output. ``block_size`` is the page size of the running
    cache; None means that a search may choose it.
    """

    num_seqs: int
    num_heads: int
    head_size: int
    max_seq_len: int
    dtype: str
    layout: str = "any"
    block_size: int | None = None
    features: tuple[str, ...] = ()
    arch: str = "sm_80"

    @property
    def quantized(self) -> bool:
        """True if keys and queries are codes of one byte."""
        return DTYPES[self.dtype].itemsize == 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a token in the cache."""
        own = self.head_size * DTYPES[self.dtype].itemsize
        return own + fp8_index_keys.SCALE_BYTES if self.quantized else own

    @property
    def page(self) -> int:
        """The page size in tokens, with the default where it is free."""
        return self.block_size or DEFAULT_BLOCK_SIZE

    @property
    def padded_heads(self) -> int:
        """Number of heads in products, of 16 at once."""
        return cdiv(self.num_heads, 16) * 16


@dataclass
class IndexerTensors(RunTensors):
    """The tensors of one run; ``out`` is what a variant fills.

    query ``[num_seqs, num_heads, head_size]``; weights ``[num_seqs, num_heads] float32``; index_cache ``[num_blocks,
    block_size, head_size]`` or of bytes ``[num_blocks, block_size, head_size + 4]``; block_tables ``[num_seqs,
    max_blocks] int32``; seq_lens ``[num_seqs] int32``; out ``[num_seqs, max_seq_len] float32``.
    """

    query: torch.Tensor
    weights: torch.Tensor
    index_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    out: torch.Tensor


def tiles(config: Config, problem: IndexerProblem) -> tuple[int, int]:
    """Return the grid: tiles of tokens, sequences."""
    return cdiv(problem.max_seq_len, config["TILE_TOKENS"]), problem.num_seqs


ARGUMENTS: Arguments = {
    "query": lambda config, problem, tensors: _bytes(tensors.query, problem),
    "table_stride": lambda config, problem, tensors: tensors.block_tables.stride(0),
    "page_stride": lambda config, problem, tensors: tensors.index_cache.stride(0),
}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""

RESTRICTIONS = rules(
    ("page size", "block_size in (None, BLOCK_SIZE)", "the page size of the cache"),
    grid("num_seqs"),
)
"""Rules of every kernel."""


def _bytes(codes: torch.Tensor, problem: IndexerProblem) -> torch.Tensor:
    return codes.view(torch.uint8) if problem.quantized else codes
