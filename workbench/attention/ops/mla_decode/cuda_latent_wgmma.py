"""Decode over latents for Hopper: tiles of pages come by TMA, and two warp groups multiply them (wgmma).

The kernel is ``cuda_src/mla_decode_latent_wgmma.cu``. A product of a warp group has 64 rows, so a tile has 64 query
heads, and a group holds their sums of one half of the value's columns: 128 registers a thread for latents of 512. Each
group scores one half of a tile's tokens and gets the other half's weights from the other group. Sums of 128 heads would
be all registers of a multiprocessor, so two blocks, a cluster, have 64 each, and what one copies reaches both.

Bytes that must move: each latent once per cluster, the rest as in ``cuda_latent_mma``.
"""

from __future__ import annotations

from typing import Any

import torch

from workbench.attention.cache_formats.fp8_latents import NAME
from workbench.attention.ops.mla_decode.problem import (
    ARGUMENTS,
    PARTITION_SIZES,
    RESTRICTIONS,
    MlaDecodeProblem,
    macros,
    partials,
    with_partitions,
)
from workbench.attention.ops.paged_attention.rules import num_partitions
from workbench.attention.ops.rules import rules, shared_limit, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, Restriction, cdiv
from workbench.ptx import TensorMap

_HEADS = 64
"""Query heads of a block: the rows of a product of a warp group."""

_COLUMNS = 64
"""Elements of a row of a tile: 128 bytes, the span of the swizzle."""


def _tile_bytes(config: Config, problem: MlaDecodeProblem) -> int:
    """Return the dynamic shared memory: queries, tiles of tokens in rows of 128 bytes, stages of codes."""
    stages, tokens = config["NUM_STAGES"], config["TILE_TOKENS"]
    rows = _HEADS + (2 if problem.quantized else stages) * tokens
    codes = stages * tokens * problem.row_bytes if problem.quantized else 0
    return rows * cdiv(problem.key_size, _COLUMNS) * _COLUMNS * problem.itemsize + codes


def _shared_bytes(config: Config, problem: MlaDecodeProblem) -> int:
    """Return all shared memory: also weights and maxima that the groups exchange, up to where tiles may begin."""
    return _tile_bytes(config, problem) + 128 * config["TILE_TOKENS"] + 3072


def _queries(config: Config, problem: MlaDecodeProblem, tensors: Any) -> TensorMap:
    return TensorMap.of(tensors.query, (1, _HEADS, _COLUMNS), swizzle=128)


def _tokens(config: Config, problem: MlaDecodeProblem, tensors: Any) -> TensorMap:
    tokens = min(config["BLOCK_SIZE"], config["TILE_TOKENS"] // config["CLUSTER_BLOCKS"])
    if problem.quantized:  # a box has at most 256 elements in a row
        return TensorMap.of(tensors.latent_cache.view(torch.int32), (1, tokens, problem.row_bytes // 4))
    return TensorMap.of(tensors.latent_cache, (1, tokens, _COLUMNS), swizzle=128)


def default_config(problem: MlaDecodeProblem) -> dict:
    """Return a cluster for each 128 heads, the largest tiles of which two fit, and partitions that fill the GPU."""
    tiles = cdiv(problem.num_heads, _HEADS)
    stages = 3 if problem.quantized else 2
    config = {"CLUSTER_BLOCKS": 2 - tiles % 2, "BLOCK_SIZE": problem.page, "TILE_TOKENS": 64, "NUM_STAGES": stages}
    if _shared_bytes(config, problem) > shared_limit(problem):
        config["TILE_TOKENS"] = 32
    return {name: with_partitions(config, problem, heads=_HEADS)[name] for name in SPACE}


SPACE = {
    "CLUSTER_BLOCKS": (1, 2),
    "BLOCK_SIZE": (16, 32, 64, 128),
    "PARTITION_SIZE": PARTITION_SIZES,
    "TILE_TOKENS": (32, 64),
    "NUM_STAGES": (2, 3, 4),
}

VARIANT = CudaVariant(
    op="mla_decode",
    name="cuda_latent_wgmma",
    idea="TMA and wgmma: two warp groups, a half of the tokens' scores and of the values' columns each",
    source=cuda_sources() / "mla_decode_latent_wgmma.cu",
    steps=(
        CudaStep(
            kernel="mla_decode_wgmma",
            grid=lambda config, problem: (
                cdiv(problem.num_heads, _HEADS),
                problem.num_seqs,
                num_partitions(config, problem),
            ),
            block=lambda config, problem: (256,),
            shared_bytes=_tile_bytes,
            arguments=ARGUMENTS
            | {"output": lambda config, problem, tensors: tensors.out, "query": _queries, "latent_cache": _tokens},
        ),
    ),
    space=SPACE,
    restrictions=rules(
        Restriction.on("sm_90", "wgmma"),
        *RESTRICTIONS,
        ("whole steps", "latent_size in (128, 256, 512) and key_size % 16 == 0", "columns of a product for each group"),
        (
            "cluster",
            "CLUSTER_BLOCKS in (1, 2) and cdiv(num_heads, 64) % CLUSTER_BLOCKS == 0",
            "of blocks of 64 heads each",
        ),
        ("tiles", "TILE_TOKENS in (32, 64)", "a product has a half of them as columns"),
        (
            "boxes",
            "BLOCK_SIZE % 8 == 0 and (BLOCK_SIZE % TILE_TOKENS == 0 or TILE_TOKENS % BLOCK_SIZE == 0)",
            "of tokens of one page",
        ),
        ("stages", "NUM_STAGES >= 2", "one is copied while one is read"),
        shared_memory(
            _shared_bytes,
            "128 * cdiv(key_size, 64) * (64 + NUM_STAGES * TILE_TOKENS) + 128 * TILE_TOKENS + 3072"
            " (of a quantized cache two tiles, and NUM_STAGES * TILE_TOKENS * row_bytes)",
        ),
    ),
    layouts=("latent",),
    dtypes=("float16", "bfloat16"),
    features=(NAME, "sinks"),
    defaults=default_config,
    macros=macros,
    workspace=partials,
)
