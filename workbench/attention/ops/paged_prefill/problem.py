"""Sizes and tensors of the kernels for new tokens over a paged cache, prompts and decode steps in one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.ops.cache_problem import STRIDES, AttentionProblem, CacheProblem, head_and_token_stride
from workbench.attention.ops.paged_attention.rules import GROUP, PAGE_SIZE
from workbench.attention.ops.rules import grid, rules
from workbench.ops import Arguments, Config
from workbench.ops.tensors import RunTensors

DEFAULT_BLOCK_SIZE = 16

MOST_DRAFTS = 64
"""Largest number of new tokens of a sequence to which a tree mask applies: the bits of an int64."""


@dataclass(frozen=True)
class PagedPrefillProblem(CacheProblem, AttentionProblem):
    """The sizes of one launch. Lengths are in tokens; ``num_tokens`` counts the new ones of all sequences.

    ``block_size`` is the page size of the running cache; None means that a search may choose it. ``features`` names
    what is asked for beyond causal attention: "sliding_window", "soft_cap", "sinks", "tree", and as in
    `workbench.attention.ops.paged_attention` how the cache is quantized. ``alignment`` is that of the rows of the
    query, in bytes. ``arch`` is what it runs on.
    """

    num_seqs: int
    num_tokens: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    max_query_len: int
    max_seq_len: int
    dtype: str
    layout: str = "nhd"
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    alignment: int = 16
    features: tuple[str, ...] = ()
    arch: str = "sm_80"

    @property
    def page(self) -> int:
        """The page size in tokens, with the default where it is free."""
        return self.block_size or DEFAULT_BLOCK_SIZE


@dataclass
class PagedPrefillTensors(RunTensors):
    """The tensors and numbers of one run; ``out`` is what a variant fills.

    query, out ``[num_tokens, num_heads, head_size]``; block_tables ``[num_seqs, max_blocks] int32``; seq_lens
    ``[num_seqs] int32``, context and new tokens together; cu_seqlens_q ``[num_seqs + 1] int32``; sinks ``[num_heads]
    float32``; tree_mask ``[num_tokens] int64``.
    """

    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    cu_seqlens_q: torch.Tensor
    scale: float
    out: torch.Tensor
    sliding_window: int | None = None
    soft_cap: float | None = None
    sinks: torch.Tensor | None = None
    tree_mask: torch.Tensor | None = None
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None


def block_q(config: Config, problem: PagedPrefillProblem) -> int:
    """Return the number of tokens whose query heads of a group fill a tile of BLOCK_M rows."""
    return max(int(config["BLOCK_M"]) // problem.group, 1)


def tiles(config: Config, problem: PagedPrefillProblem) -> tuple[int, int]:
    """Return the grid: tiles of rows, KV heads.

    The tiles of sequence i begin with number ``cu_seqlens_q[i] // block_q + i``, so that the number of tiles, and the
    sequence of each, follow without the lengths. (vLLM's unified attention has this numbering.)
    """
    return problem.num_tokens // block_q(config, problem) + problem.num_seqs, problem.num_kv_heads


def rows_of_average(problem: PagedPrefillProblem, most: int) -> int:
    """Return the power of two from 16 to ``most`` that holds the rows of an average sequence, or of all its drafts."""
    tokens = -(-problem.num_tokens // max(problem.num_seqs, 1))
    if "tree" in problem.features:
        tokens = max(tokens, min(problem.max_query_len, MOST_DRAFTS))
    rows = 16
    while rows < most and rows < tokens * problem.group:
        rows *= 2
    return rows


ARGUMENTS: Arguments = {
    **{name: STRIDES[name] for name in ("table_stride", "query_stride", "key_page_stride", "value_page_stride")},
    "soft_cap": lambda config, problem, tensors: tensors.soft_cap or 0.0,
    "sliding_window": lambda config, problem, tensors: tensors.sliding_window or 0,
    "head_stride": lambda config, problem, tensors: head_and_token_stride(problem, config["BLOCK_SIZE"])[0],
    "token_stride": lambda config, problem, tensors: head_and_token_stride(problem, config["BLOCK_SIZE"])[1],
}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""

RESTRICTIONS = rules(
    PAGE_SIZE,
    GROUP,
    ("16-byte rows", "alignment >= 16", "rows of query start so; call .clone()"),
    ("offsets inside a page", "BLOCK_SIZE * num_kv_heads * head_size < 2**31", "elements, as 32-bit numbers"),
    grid("num_kv_heads"),
)
"""Rules of every kernel."""

FEATURES = ("sliding_window", "soft_cap", "sinks", "tree")
"""Features that the kernels have."""

BLOCK_SIZES = (8, 16, 32, 64, 128)


def flags(problem: Any) -> dict[str, bool]:
    """Return a flag for each of `FEATURES`, under the name of a constant in a kernel."""
    named = {"sliding_window": "WINDOW", "soft_cap": "SOFT_CAP", "sinks": "SINKS", "tree": "TREE"}
    return {name: feature in problem.features for feature, name in named.items()}
