"""Sizes and tensors of the paged-attention kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.ops.cache_problem import STRIDES, AttentionProblem, CacheProblem, head_macros, scale_strides
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Arguments, Config
from workbench.ops.tensors import RunTensors, dtype_name, made

DEFAULT_BLOCK_SIZE = 16


@dataclass(frozen=True)
class PagedAttentionProblem(CacheProblem, AttentionProblem):
    """The sizes of one decode step. Lengths are in tokens.

    ``block_size`` is the page size of the running cache; None means that a search may choose it (a configuration's
    BLOCK_SIZE, else 16). ``features`` names what is asked for beyond plain attention: "alibi", "sliding_window",
    "soft_cap", "sinks", "fp8_e4m3", "fp8_e5m2", "int8" or "nvfp4" for a quantized cache, "token_scales" for one with a
    scale per token and head. ``arch`` is what it runs on, ``multiprocessors`` how many of them that GPU has, for the
    untuned rules; None where no GPU is named.
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
    def page(self) -> int:
        """The page size in tokens, with the default where it is free."""
        return self.block_size or DEFAULT_BLOCK_SIZE


@dataclass
class PagedAttentionTensors(RunTensors):
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
    workspace: Any = made()
    """Memory through which the blocks, or the kernels, of one variant pass results to each other."""


ARGUMENTS: Arguments = STRIDES | {
    "soft_cap": lambda config, problem, tensors: tensors.soft_cap or 0.0,
    "sliding_window": lambda config, problem, tensors: tensors.sliding_window or 0,
}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""

SCALE_PLACES: Arguments = {
    "k_scale_page": lambda config, problem, tensors: scale_strides(tensors.k_scale)[0] * config["BLOCK_SIZE"],
    "k_scale_token": STRIDES["k_slot_stride"],
    "k_scale_head": STRIDES["k_head_stride"],
    "v_scale_page": lambda config, problem, tensors: scale_strides(tensors.v_scale)[0] * config["BLOCK_SIZE"],
    "v_scale_token": STRIDES["v_slot_stride"],
    "v_scale_head": STRIDES["v_head_stride"],
}
"""Distances between the scales of two pages, of two tokens of a page, and of two KV heads, in elements."""


def macros(config: Config, problem: PagedAttentionProblem) -> dict[str, str | int]:
    """Return the macros of every CUDA kernel: elements, scales, the head, tunables."""
    return {
        "CACHE": ELEMENT_TYPES[dtype_name(problem.cache_dtype)].cpp,
        **({"QUANTIZED": 1} if problem.quantized else {}),
        "TOKEN_SCALES": int("token_scales" in problem.features),
        **head_macros(config, problem),
    }
