"""What kernels that move tiles of tokens between pages and rows declare alike: macros, constexprs, rules.

`reshape_and_cache` writes pages and `gather_cache` reads them. Their problems have ``num_kv_heads``, ``head_size``,
``dtype``, ``layout``, ``block_size`` and ``kv_cache_dtype``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.ops.page_strides import head_and_strides, head_and_token_stride, padded
from workbench.ops.paged_attention.cuda_types import CPP_NAMES
from workbench.ops.paged_attention.problem import DTYPES
from workbench.ops.scales import no_scales
from workbench.ops.variant import Config, Restriction

STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a block may declare."""

WHOLE_X_GROUPS = Restriction(
    "whole x groups",
    "layout 'x' only: head_size % x == 0 with x = 16 / sizeof(cache element)",
    lambda config, problem: problem.layout != "x" or problem.head_size % problem.x == 0,
)

CUDA_RESTRICTIONS = (
    Restriction(
        "whole vectors",
        "head_size % VEC_SIZE == 0",
        lambda c, p: p.head_size % c["VEC_SIZE"] == 0,
    ),
    Restriction(
        "16-byte values",
        "V_VEC_SIZE * sizeof(cache element) <= 16",
        lambda c, p: c["V_VEC_SIZE"] * p.cache_dtype.itemsize <= 16,
    ),
    Restriction(
        "a run of tokens stays in its page",
        "TILE_TOKENS % V_VEC_SIZE == 0 and block_size % V_VEC_SIZE == 0",
        lambda c, p: c["TILE_TOKENS"] % c["V_VEC_SIZE"] == 0 and p.block_size % c["V_VEC_SIZE"] == 0,
    ),
    Restriction(
        "value rows are those of layout x",
        "V_VEC_SIZE == 1 unless layout is 'x'",
        lambda c, p: p.layout == "x" or c["V_VEC_SIZE"] == 1,
    ),
    WHOLE_X_GROUPS,
    Restriction(
        "threads per block",
        "NUM_THREADS % 32 == 0 and NUM_THREADS <= 1024",
        lambda c, p: c["NUM_THREADS"] % 32 == 0 and 32 <= c["NUM_THREADS"] <= 1024,
    ),
)

CUDA_SPACE = {
    "NUM_THREADS": (32, 64, 128, 256),
    "TILE_TOKENS": (1, 4, 8, 16, 32),
    "VEC_SIZE": (1, 2, 4, 8),
    "V_VEC_SIZE": (1, 2, 4, 8, 16),
}


def macros(config: Config, problem: Any) -> Mapping[str, Any]:
    """The macros of a CUDA kernel: elements, and where they lie in a page."""
    head, token = head_and_token_stride(problem, problem.block_size)
    if problem.quantized:
        scalar, cache = CPP_NAMES[DTYPES[problem.dtype]], CPP_NAMES[problem.cache_dtype]
    else:  # words of that size: the same code for float16 and bfloat16
        scalar = cache = {2: "unsigned short", 4: "unsigned int"}[problem.itemsize]
    return {
        "SCALAR": scalar,
        "CACHE": cache,
        **({"QUANTIZED": 1} if problem.quantized else {}),
        "HEAD_SIZE": problem.head_size,
        "BLOCK_SIZE": problem.block_size,
        "LAYOUT_X": int(problem.layout == "x"),
        "HEAD_STRIDE": head,
        "TOKEN_STRIDE": token,
        **config,
    }


TRITON_RESTRICTIONS = (
    Restriction(
        "powers of two",
        "TILE_TOKENS is a power of two",
        lambda c, p: c["TILE_TOKENS"] > 0 and c["TILE_TOKENS"] & (c["TILE_TOKENS"] - 1) == 0,
    ),
    Restriction(
        "only layout x turns values",
        "TURN_VALUES == 0 unless layout is 'x'",
        lambda c, p: p.layout == "x" or not c["TURN_VALUES"],
    ),
    Restriction(
        "a tile fits in registers",
        "TILE_TOKENS * next_power_of_2(head_size) / (32 * num_warps) <= 64 elements per thread",
        lambda c, p: c["TILE_TOKENS"] * padded(p.head_size) <= 64 * 32 * c["num_warps"],
    ),
    WHOLE_X_GROUPS,
)

TRITON_SPACE = {
    "TILE_TOKENS": (1, 4, 8, 16, 32),
    "TURN_VALUES": (0, 1),
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1,),
}


def constexprs(config: Config, problem: Any) -> Mapping[str, Any]:
    """The constexprs of a Triton function: a head, where its elements lie in a page, the tile."""
    return {
        **head_and_strides(problem, problem.block_size),
        "BLOCK_SIZE": problem.block_size,
        "TILE_TOKENS": config["TILE_TOKENS"],
        "TURN_VALUES": config["TURN_VALUES"],
        "KIND": problem.kv_cache_dtype,
        **no_scales(problem),
    }


def default_triton_config(problem: Any) -> dict:
    """16 tokens on four warps, turned, where the layout turns values; else enough tokens for 16 bytes per thread."""
    size, turn = padded(problem.head_size), int(problem.layout == "x")
    tile = min(16, 8192 // size) if turn else min(32, 128 * 16 // problem.itemsize // size)
    return {"TILE_TOKENS": max(tile, 1), "TURN_VALUES": turn, "num_warps": 4, "num_stages": 1}
