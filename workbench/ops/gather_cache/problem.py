"""What a kernel that reads tokens out of pages is compiled and launched for, and the tensors of one run."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch

from workbench.ops.paged_attention.problem import CACHE_DTYPES, DTYPES


@dataclass(frozen=True)
class Problem:
    """The sizes of one read. ``dtype`` is that of the result; ``features`` is ``(kv_cache_dtype,)`` if quantized."""

    num_seqs: int
    max_seq_len: int
    num_tokens: int
    num_kv_heads: int
    head_size: int
    dtype: str
    layout: str = "x"
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"

    @property
    def cache_dtype(self) -> torch.dtype:
        """The dtype of a cache element."""
        return DTYPES[self.dtype] if self.kv_cache_dtype == "auto" else CACHE_DTYPES[self.kv_cache_dtype]

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the result."""
        return DTYPES[self.dtype].itemsize

    @property
    def x(self) -> int:
        """Cache elements per 16 bytes."""
        return 16 // self.cache_dtype.itemsize

    def to_dict(self) -> dict:
        """Plain values, for a store or a table of tuned configurations."""
        return asdict(self) | {"features": list(self.features)}


@dataclass
class Tensors:
    """The tensors of one run. ``starts [num_seqs] int64`` is where each sequence begins in ``keys`` and ``values``,
    which are written; ``out`` is the bytes of both, for whoever judges."""

    keys: torch.Tensor
    values: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    starts: torch.Tensor
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    out: torch.Tensor | None = None
