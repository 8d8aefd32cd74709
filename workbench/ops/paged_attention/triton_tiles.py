"""What the Triton variants that work on tiles of tokens declare alike: types, strides, rules."""

from __future__ import annotations

from workbench.ops.page_strides import padded
from workbench.ops.paged_attention.problem import Problem
from workbench.ops.paged_attention.rules import shared_limit
from workbench.ops.variant import Config, Footprint, Restriction

SCALAR_TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_CACHE_TYPES = {"fp8_e4m3": "fp8e4nv", "fp8_e5m2": "fp8e5", "int8": "i8"}


def cache_type(problem: Problem) -> str:
    """Triton's name of a cache element."""
    return _CACHE_TYPES.get(problem.kv_cache_dtype, SCALAR_TYPES[problem.dtype])


def default_tile(problem: Problem) -> int:
    """64 tokens, or fewer where a head is large."""
    return max(16, min(64, 8192 // padded(problem.head_size)))


def _tile_bytes(config: Config, problem: Problem) -> int:
    return config["TILE_TOKENS"] * padded(problem.head_size) * problem.cache_dtype.itemsize


_REGISTERS = 128
"""Of a thread with the tiles of the defaults, at most."""


def tiles_footprint(config: Config, problem: Problem, blocks: int) -> Footprint:
    """Of a program that copies tiles of keys and values ``num_stages - 1`` ahead, or loads one after the other."""
    ahead = max(2 * (config["num_stages"] - 1), 1)
    tile_bytes = config["TILE_TOKENS"] * problem.head_size * problem.cache_dtype.itemsize
    return Footprint(blocks, 32 * config["num_warps"], _REGISTERS, _shared_bytes(config, problem), ahead * tile_bytes)


def _shared_bytes(config: Config, problem: Problem) -> int:
    """Tiles of the pipeline, and room to reduce in."""
    return (config["num_stages"] - 1) * 2 * _tile_bytes(config, problem) + 2048 * config["num_warps"]


POWERS_OF_TWO = Restriction(
    "powers of two",
    "BLOCK_SIZE, TILE_TOKENS and num_warps are powers of two, num_warps <= 32",
    lambda c, p: (
        c["num_warps"] <= 32 and all(c[name].bit_count() == 1 for name in ("BLOCK_SIZE", "TILE_TOKENS", "num_warps"))
    ),
)

WHOLE_TILES = Restriction(
    "whole tiles",
    "PARTITION_SIZE is a multiple of BLOCK_SIZE and of TILE_TOKENS",
    lambda c, p: not (c["PARTITION_SIZE"] % c["BLOCK_SIZE"] or c["PARTITION_SIZE"] % c["TILE_TOKENS"]),
)

TILE_IN_REGISTERS = Restriction(
    "a tile fits in registers",
    "TILE_TOKENS * next_power_of_2(head_size) / (32 * num_warps) <= 128 elements per thread",
    lambda c, p: c["TILE_TOKENS"] * padded(p.head_size) <= 128 * 32 * c["num_warps"],
)

TILE_IN_SHARED_MEMORY = Restriction(
    "shared memory",
    "(num_stages - 1) * 2 * TILE_TOKENS * next_power_of_2(head_size) * sizeof(cache element) + 2048 * num_warps"
    " bytes <= what a block of arch may take",
    lambda c, p: _shared_bytes(c, p) <= shared_limit(p),
)


def has_e4m3(problem: Problem) -> bool:
    """Whether the problem's architecture converts e4m3: sm_89 and newer."""
    return int(problem.arch.removeprefix("sm_").rstrip("af")) >= 89


FP8_SUPPORT = Restriction(
    "fp8_e4m3",
    "arch is sm_89 or newer: Triton has no fp8_e4m3 before",
    lambda c, p: p.kv_cache_dtype != "fp8_e4m3" or has_e4m3(p),
)
