"""Declarations that kernels on caches of NVFP4 share: the places of its groups in a page.

A page has the elements of all groups, 8 bytes each, and then their scales, a byte each, both in the order of the layout
(`workbench.attention.cache_formats.nvfp4`). So one number places both.
"""

from __future__ import annotations

from typing import Any

from workbench.attention.cache_formats.nvfp4 import GROUP
from workbench.attention.ops.rules import TILE_TOKENS, rules, tile_in_registers
from workbench.attention.ops.triton_types import TYPES
from workbench.ops import Arguments, Config, Restriction, next_power_of_2

BYTES_OF_A_GROUP = GROUP // 2 + 1
"""Bytes of 16 elements and their scale."""

WHOLE_GROUPS = Restriction.of("whole groups", "head_size % 16 == 0", "a scale for 16 elements")

TRITON_TYPES = TYPES | {
    "key_cache": "*u8",
    "value_cache": "*u8",
    "key_page_stride": "i64:16",
    "value_page_stride": "i64:16",
}
"""Triton's types of the functions' parameters."""

# Of the functions that move tiles of tokens between pages and rows, as in page_tiles.py.
TRITON_RESTRICTIONS = rules(TILE_TOKENS, WHOLE_GROUPS, tile_in_registers(64))
TRITON_SPACE = {"TILE_TOKENS": (1, 4, 8, 16, 32), "num_warps": (1, 2, 4, 8), "num_stages": (1,)}


def default_triton_config(problem: Any) -> dict:
    """Return tiles of 16 bytes per thread, on four warps."""
    tile = 128 * 16 // problem.itemsize // next_power_of_2(problem.head_size)
    return {"TILE_TOKENS": max(min(32, tile), 1), "num_warps": 4, "num_stages": 1}


def group_strides(problem: Any, page: int) -> tuple[int, int, int]:
    """Return the groups from one KV head to the next, from one token to the next, and of a page.

    ``page`` is in tokens.
    """
    groups = problem.head_size // GROUP
    whole = problem.num_kv_heads * page * groups
    if problem.layout == "nhd":
        return groups, problem.num_kv_heads * groups, whole
    return page * groups, groups, whole


def _page(config: Config, problem: Any) -> int:
    return config.get("BLOCK_SIZE", problem.block_size)


GROUP_STRIDES: Arguments = {
    "head_groups": lambda config, problem, tensors: group_strides(problem, _page(config, problem))[0],
    "token_groups": lambda config, problem, tensors: group_strides(problem, _page(config, problem))[1],
    "page_groups": lambda config, problem, tensors: group_strides(problem, _page(config, problem))[2],
}
"""Arguments of kernels in CUDA C++: distances between groups."""


def group_constexprs(config: Config, problem: Any) -> dict[str, Any]:
    """Return the constexprs of Triton functions: the groups of a head, and the distances between them."""
    groups = problem.head_size // GROUP
    head, token, page = group_strides(problem, _page(config, problem))
    return {
        "HEAD_SIZE": problem.head_size,
        "GROUPS": groups,
        "GROUPS_PADDED": next_power_of_2(groups),
        "HEAD_GROUPS": head,
        "TOKEN_GROUPS": token,
        "PAGE_GROUPS": page,
    }
