"""Declarations that kernels on caches of NVFP4 share: the places of its groups in a page.

A page has the elements of all groups, 8 bytes each, and then their scales, a byte each, both in the order of the layout
(`workbench.attention.cache_formats.nvfp4`). So one number places both.
"""

from __future__ import annotations

from typing import Any

from workbench.attention.cache_formats.nvfp4 import GROUP
from workbench.ops.expressions import next_power_of_2
from workbench.ops.steps import Arguments
from workbench.ops.values import Config


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
