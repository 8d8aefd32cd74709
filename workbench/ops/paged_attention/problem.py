"""What a paged-attention kernel is compiled and launched for, and the tensors of one run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from workbench.kvcache.quantization import CACHE_DTYPES

__all__ = ["CACHE_DTYPES", "DEFAULT_BLOCK_SIZE", "DTYPES", "CacheProblem", "Problem", "Tensors"]

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""The dtypes of query and output by name."""

DEFAULT_BLOCK_SIZE = 16


class CacheProblem:
    """What follows from the ``dtype`` and ``kv_cache_dtype`` of a problem of any op on paged caches."""

    dtype: str
    kv_cache_dtype: str
    features: tuple[str, ...]

    @property
    def itemsize(self) -> int:
        """Bytes of an element that is not in the cache."""
        return DTYPES[self.dtype].itemsize

    @property
    def quantized(self) -> bool:
        """Whether the cache holds codes, to be multiplied by scales."""
        return self.kv_cache_dtype != "auto"

    @property
    def cache_dtype(self) -> torch.dtype:
        """The dtype of a cache element."""
        return CACHE_DTYPES[self.kv_cache_dtype] if self.quantized else DTYPES[self.dtype]

    @property
    def x(self) -> int:
        """Cache elements per 16 bytes."""
        return 16 // self.cache_dtype.itemsize

    def to_dict(self) -> dict:
        """Plain values, for a store or a table of tuned configurations."""
        return asdict(self) | {"features": list(self.features)}


@dataclass(frozen=True)
class Problem(CacheProblem):
    """The sizes of one decode step. Lengths are in tokens.

    ``block_size`` is the page size of the running cache; None means that a search may choose it (a configuration's
    BLOCK_SIZE, else 16). ``features`` names what is asked for beyond plain attention: "alibi", "sliding_window",
    "soft_cap", "sinks", "fp8_e4m3", "fp8_e5m2" or "int8" for a quantized cache, "token_scales" for one with a scale per
    token and head. ``arch`` is what it runs on, ``multiprocessors`` how many of them that GPU has, for the untuned
    rules; None where no GPU is named.
    """

    num_seqs: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    max_seq_len: int
    total_tokens: int
    dtype: str
    layout: str = "x"
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"
    multiprocessors: int | None = None

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def page(self) -> int:
        """The page size in tokens, with the default where it is free."""
        return self.block_size or DEFAULT_BLOCK_SIZE


@dataclass
class Tensors:
    """The tensors and numbers of one run; ``out`` is what a variant fills. Shapes as in `workbench.ops`."""

    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    scale: float
    out: torch.Tensor
    alibi_slopes: torch.Tensor | None = None
    sliding_window: int | None = None
    soft_cap: float | None = None
    sinks: torch.Tensor | None = None
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    workspace: Any = None
    """What the blocks, or the kernels, of one variant leave for each other."""

    @property
    def read(self) -> tuple[torch.Tensor, ...]:
        """What every kernel reads, in the order of its parameters."""
        return self.query, self.key_cache, self.value_cache, self.block_tables, self.seq_lens

    @property
    def strides(self) -> tuple[int, ...]:
        """From one row of the tables and of the query, and one page of keys and of values to the next, in elements, in
        the order of every kernel's parameters."""
        return tuple(t.stride(0) for t in (self.block_tables, self.query, self.key_cache, self.value_cache))
