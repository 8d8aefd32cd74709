"""Declarations that kernels moving tiles of tokens between pages and rows share: macros, constexprs, rules.

`reshape_and_cache` writes pages and `gather_cache` reads them. Their problems have ``num_kv_heads``, ``head_size``,
``dtype``, ``layout``, ``block_size`` and ``kv_cache_dtype``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.attention.ops.cache_problem import head_and_strides, head_and_token_stride, no_scales
from workbench.attention.ops.rules import THREADS, TILE_TOKENS, rules, tile_in_registers
from workbench.attention.ops.triton_types import TYPES
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, Restriction, next_power_of_2
from workbench.ops.tensors import dtype_name

WHOLE_X_GROUPS = Restriction.of(
    "whole x groups", "layout != 'x' or head_size % x == 0", "x = 16 / sizeof(cache element)"
)

CUDA_RESTRICTIONS = rules(
    ("whole vectors", "head_size % VEC_SIZE == 0"),
    ("16-byte values", "V_VEC_SIZE * cache_itemsize <= 16"),
    ("a run of tokens stays in its page", "TILE_TOKENS % V_VEC_SIZE == 0 and block_size % V_VEC_SIZE == 0"),
    ("value rows are those of layout x", "layout == 'x' or V_VEC_SIZE == 1"),
    WHOLE_X_GROUPS,
    THREADS,
)

CUDA_SPACE = {
    "NUM_THREADS": (32, 64, 128, 256),
    "TILE_TOKENS": (1, 4, 8, 16, 32),
    "VEC_SIZE": (1, 2, 4, 8),
    "V_VEC_SIZE": (1, 2, 4, 8, 16),
}


def macros(config: Config, problem: Any) -> Mapping[str, Any]:
    """Return the macros of a CUDA kernel: elements, and their places in a page."""
    head, token = head_and_token_stride(problem, problem.block_size)
    if problem.quantized:
        scalar, cache = ELEMENT_TYPES[problem.dtype].cpp, ELEMENT_TYPES[dtype_name(problem.cache_dtype)].cpp
    else:  # words of the element's size, so that float16 and bfloat16 share one kernel
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


TRITON_RESTRICTIONS = rules(
    TILE_TOKENS,
    ("only layout x turns values", "layout == 'x' or not TURN_VALUES"),
    tile_in_registers(64),
    WHOLE_X_GROUPS,
)

TRITON_SPACE = {
    "TILE_TOKENS": (1, 4, 8, 16, 32),
    "TURN_VALUES": (0, 1),
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1,),
}


def constexprs(config: Config, problem: Any) -> Mapping[str, Any]:
    """Return the constexprs of a Triton function: the size of a head, and the places of its elements in a page."""
    return {
        "NUM_KV_HEADS": problem.num_kv_heads,
        **head_and_strides(problem, problem.block_size),
        "BLOCK_SIZE": problem.block_size,
        "KIND": problem.kv_cache_dtype,
        **no_scales(problem),
    }


def triton_types(problem: Any) -> dict[str, str]:
    """Return Triton's types of the parameters that both functions take."""
    cache, page = f"*{'u8' if problem.quantized else ELEMENT_TYPES[problem.dtype].triton}", f"i64:{problem.x}"
    pages = {"key_cache": cache, "value_cache": cache, "key_page_stride": page, "value_page_stride": page}
    return TYPES | pages


def default_triton_config(problem: Any) -> dict:
    """Return 16 tokens, turned, if the layout turns values, else enough tokens for 16 bytes per thread; four warps."""
    size, turn = next_power_of_2(problem.head_size), int(problem.layout == "x")
    tile = min(16, 8192 // size) if turn else min(32, 128 * 16 // problem.itemsize // size)
    return {"TILE_TOKENS": max(tile, 1), "TURN_VALUES": turn, "num_warps": 4, "num_stages": 1}
