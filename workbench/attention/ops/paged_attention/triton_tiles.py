"""Declarations that the Triton variants on tiles of tokens share: types, strides, rules."""

from __future__ import annotations

from typing import Any

from workbench.attention.ops.cache_problem import attributes, head_and_strides, no_scales
from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem
from workbench.attention.ops.paged_attention.rules import PARTITION_SIZES
from workbench.attention.ops.paged_attention.triton_reduction import partitions_at_once
from workbench.attention.ops.rules import is_from, shared_memory, tile_in_registers
from workbench.attention.ops.triton_types import TYPES
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, Footprint, Restriction, next_power_of_2

_CACHE_TYPES = {"fp8_e4m3": "fp8e4nv", "fp8_e5m2": "fp8e5", "int8": "i8"}


def types(problem: PagedAttentionProblem) -> dict[str, str]:
    """Return Triton's types of the functions' parameters."""
    scalar = ELEMENT_TYPES[problem.dtype].triton
    cache = f"*{_CACHE_TYPES.get(problem.kv_cache_dtype, scalar)}"
    pages = {"key_cache": cache, "value_cache": cache, "key_page_stride": "i64:16", "value_page_stride": "i64:16"}
    return TYPES | {"out": f"*{scalar}", "query": f"*{scalar}:1"} | pages


def constexprs(config: Config, problem: PagedAttentionProblem) -> dict[str, Any]:
    """Return the constexprs of the functions beside tunables and the places of elements in a page."""
    by_token = "token_scales" in problem.features
    return {
        "GROUP": problem.group,
        "QUANTIZED": problem.quantized,
        "HEAD_SCALES": problem.quantized and not by_token,
        "TOKEN_SCALES": by_token,
        "ALIBI": "alibi" in problem.features,
        "WINDOW": "sliding_window" in problem.features,
        "SOFT_CAP": "soft_cap" in problem.features,
        "SINKS": "sinks" in problem.features,
        "AT_ONCE": partitions_at_once(problem.head_size, config["num_warps"]),
        "NUM_STAGES": config["num_stages"],
    }


def in_pages(config: Config, problem: PagedAttentionProblem) -> dict[str, Any]:
    """Return `constexprs` with the places of elements in a page of any layout; a cache without scales has none."""
    return {**constexprs(config, problem), **head_and_strides(problem, config["BLOCK_SIZE"]), **no_scales(problem)}


FEATURES = attributes("alibi_slopes", "sinks")


PARTITIONS_SPACE = {
    "BLOCK_SIZE": (8, 16, 32, 64, 128),
    "TILE_TOKENS": (16, 32, 64, 128),
    "PARTITION_SIZE": PARTITION_SIZES,
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1, 2, 3),
}
"""Search space of the functions with a program for each query head, sequence and partition."""


def _tile_bytes(config: Config, problem: PagedAttentionProblem) -> int:
    return config["TILE_TOKENS"] * next_power_of_2(problem.head_size) * problem.cache_itemsize


_REGISTERS = 128
"""Largest number of registers of a thread with the default tiles."""


def tiles_footprint(config: Config, problem: PagedAttentionProblem, blocks: int) -> Footprint:
    """Return the footprint of a program that copies tiles ``num_stages - 1`` ahead, or loads one after the other."""
    ahead = max(2 * (config["num_stages"] - 1), 1)
    tile_bytes = config["TILE_TOKENS"] * problem.head_size * problem.cache_itemsize
    return Footprint(blocks, 32 * config["num_warps"], _REGISTERS, _shared_bytes(config, problem), ahead * tile_bytes)


def _shared_bytes(config: Config, problem: PagedAttentionProblem) -> int:
    """Return the bytes of the pipeline's tiles, and of room to reduce in."""
    return (config["num_stages"] - 1) * 2 * _tile_bytes(config, problem) + 2048 * config["num_warps"]


POWERS_OF_TWO = Restriction.of(
    "powers of two",
    "is_power_of_two(BLOCK_SIZE) and is_power_of_two(TILE_TOKENS) and is_power_of_two(num_warps) and num_warps <= 32",
)

TILE_IN_REGISTERS = tile_in_registers(128)

TILE_IN_SHARED_MEMORY = shared_memory(
    _shared_bytes,
    "(num_stages - 1) * 2 * TILE_TOKENS * next_power_of_2(head_size) * sizeof(cache element) + 2048 * num_warps",
)


def has_e4m3(problem: PagedAttentionProblem) -> bool:
    """Return True if the problem's architecture converts e4m3: sm_89 and newer."""
    return is_from(problem.arch, 89)


FP8_SUPPORT = Restriction(
    "fp8_e4m3",
    "arch is sm_89 or newer: Triton has no fp8_e4m3 before",
    lambda c, p: p.kv_cache_dtype != "fp8_e4m3" or has_e4m3(p),
    of_arch=True,
)
