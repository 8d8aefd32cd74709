"""Tiles that tensor maps copy to shared memory: declarations that the kernels for Hopper and Blackwell share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.attention.ops.causal_attention.problem import CausalAttentionProblem
from workbench.attention.ops.rules import shared_memory
from workbench.ops import Arguments, Config, Restriction
from workbench.ptx import TensorMap

_COLUMNS = 64
"""Elements of a row of a tile: 128 bytes, the span of the swizzle."""

HEAD_SIZE = Restriction.of("head size", "head_size in (64, 128, 256)", "whole rows of 128 bytes, as wide as a product")


def tile_bytes(config: Config, problem: CausalAttentionProblem) -> int:
    """Return the bytes of queries, and of all stages of keys and values."""
    return (config["BLOCK_M"] + 2 * config["NUM_STAGES"] * config["BLOCK_N"]) * problem.head_size * 2


def tiles_in_shared_memory(static_bytes: int) -> Restriction:
    """Return the rule that the tiles fit behind so many bytes of other shared memory."""
    return shared_memory(
        lambda config, problem: tile_bytes(config, problem) + static_bytes,
        f"2 * head_size * (BLOCK_M + 2 * NUM_STAGES * BLOCK_N) + {static_bytes}",
    )


def tensor_maps(group_rows: int) -> Arguments:
    """Return the tensor maps of query, key and value, with boxes of rows of one head: ``group_rows`` of the query."""
    return {
        "query": _map("query", lambda config: group_rows),
        "key": _map("key", lambda config: config["BLOCK_N"]),
        "value": _map("value", lambda config: config["BLOCK_N"]),
    }


def _map(name: str, rows: Callable[[Config], int]) -> Callable[[Config, CausalAttentionProblem, Any], TensorMap]:
    def made(config: Config, problem: CausalAttentionProblem, tensors: Any) -> TensorMap:
        return TensorMap.of(getattr(tensors, name), (1, 1, rows(config), _COLUMNS), swizzle=128)

    return made
