"""Sizes and tensors of the kernels for a paged latent cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.cache_formats import fp8_latents
from workbench.attention.ops.cache_problem import STRIDES, Sizes
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.paged_attention.rules import num_partitions, partition_size
from workbench.attention.ops.paged_attention.workspace import Partials, allocated
from workbench.attention.ops.rules import grid, rules
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Arguments, Config, cdiv
from workbench.ops.tensors import RunTensors, made

DEFAULT_BLOCK_SIZE = 64
"""Page size of an untuned cache, in tokens: that of FlashMLA."""

PARTITION_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
"""Partition sizes, in tokens, of the kernels."""


@dataclass(frozen=True)
class MlaDecodeProblem(Sizes):
    """The sizes of one decode step over a latent cache. Lengths are in tokens, sizes in elements.

    A token of the cache is its latent of ``latent_size`` elements (kv_lora_rank) followed by the part of the key that
    carries its position, ``rope_size`` elements (qk_rope_head_dim). ``block_size`` is the page size of the running
    cache; None means that a search may choose it. ``kv_cache_dtype`` is "auto" (that of the query) or "fp8_ds_mla",
    which is then among the ``features``, too, as
    "sinks" is. ``arch`` is what it runs on, ``multiprocessors`` how many of them that
    GPU has; None where no GPU is named. ``rope_size`` may be 0: the whole key is the value then, as in DeepSeek-V4.
    """

    num_seqs: int
    num_heads: int
    latent_size: int
    rope_size: int
    max_seq_len: int
    total_tokens: int
    dtype: str
    layout: str = "latent"
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"
    multiprocessors: int | None = None

    @property
    def key_size(self) -> int:
        """Number of elements of a token in the cache, which are its key for every head."""
        return self.latent_size + self.rope_size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype].itemsize

    @property
    def quantized(self) -> bool:
        """True if a latent is stored as codes of one byte with scales."""
        return self.kv_cache_dtype != "auto"

    @property
    def row_bytes(self) -> int:
        """Bytes of a token in the cache."""
        if self.quantized:
            return fp8_latents.row_bytes(self.latent_size, self.rope_size)
        return self.key_size * self.itemsize

    @property
    def page(self) -> int:
        """The page size in tokens, with the default where it is free."""
        return self.block_size or DEFAULT_BLOCK_SIZE


@dataclass
class MlaDecodeTensors(RunTensors):
    """The tensors and numbers of one run; ``out`` is what a variant fills.

    query ``[num_seqs, num_heads, key_size]``; latent_cache ``[num_blocks, block_size, key_size]``, or of bytes
    ``[num_blocks, block_size, row_bytes]``; block_tables ``[num_seqs, max_blocks] int32``; seq_lens
    ``[num_seqs] int32``; out ``[num_seqs, num_heads, latent_size]``; sinks ``[num_heads] float32``.
    """

    query: torch.Tensor
    latent_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    scale: float
    out: torch.Tensor
    sinks: torch.Tensor | None = None
    workspace: Any = made()
    """Memory through which the blocks of one variant pass results to each other."""


def features_of(kv_cache_dtype: str, *, sinks: bool) -> tuple[str, ...]:
    """Return what a variant has to support beside the plain op."""
    wanted = {kv_cache_dtype: kv_cache_dtype != "auto", "sinks": sinks}
    return tuple(name for name, used in wanted.items() if used)


ARGUMENTS: Arguments = STRIDES | {"page_stride": lambda config, problem, tensors: tensors.latent_cache.stride(0)}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""


def head_tiles(config: Config, problem: MlaDecodeProblem) -> int:
    """Return the number of blocks that share a sequence's query heads."""
    return cdiv(problem.num_heads, config["HEADS_PER_BLOCK"])


def with_partitions(config: Config, problem: MlaDecodeProblem, *, heads: int | None = None) -> dict[str, int]:
    """Return a configuration with the longest partitions that fill the GPU with blocks, of ``heads`` if it is given."""
    sizes = [size for size in PARTITION_SIZES if size % problem.page == 0]
    tiles = cdiv(problem.num_heads, heads or config["HEADS_PER_BLOCK"])
    wanted = partition_size(problem, sizes, blocks_per_multiprocessor=1, heads=tiles)
    return {**config, "PARTITION_SIZE": wanted}


def partials(config: Config, problem: MlaDecodeProblem, tensors: MlaDecodeTensors) -> Partials:
    """Return uninitialised partial results for every partition of PARTITION_SIZE tokens."""
    shape = problem.num_seqs, problem.num_heads, num_partitions(config, problem), problem.latent_size
    return allocated(*shape, tensors.query.device)


def macros(config: Config, problem: MlaDecodeProblem) -> dict[str, Any]:
    """Return the macros of the CUDA kernels: element type, sizes, and the tunables."""
    return {
        "SCALAR": ELEMENT_TYPES[problem.dtype].cpp,
        "LATENT_SIZE": problem.latent_size,
        "KEY_SIZE": problem.key_size,
        **({"QUANTIZED": 1} if problem.quantized else {}),
        **config,
    }


RESTRICTIONS = rules(
    ("page size", "block_size in (None, BLOCK_SIZE)", "the page size of the cache"),
    ("whole tiles", "PARTITION_SIZE % BLOCK_SIZE == 0 and PARTITION_SIZE % TILE_TOKENS == 0"),
    ("partitions", "cdiv(max_seq_len, PARTITION_SIZE) <= 65535", "the third dimension of a grid holds no more"),
    grid("num_seqs"),
)
"""Rules of every kernel."""
