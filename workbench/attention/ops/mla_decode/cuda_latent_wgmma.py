"""Decode over latents for Hopper: tiles of pages come by TMA, and two warp groups multiply them (wgmma).

The kernel is ``cuda_src/mla_decode_latent_wgmma.cu``. A product of a warp group has 64 rows, so a tile has 64 query
heads, and a group holds their sums of one half of the value's columns: 128 registers a thread for latents of 512. Each
group scores one half of a tile's tokens and gets the other half's weights from the other group.

Bytes that must move: those of ``cuda_latent_mma`` with tiles of 64 heads.
"""

from __future__ import annotations

from typing import Any

from workbench.attention.ops.mla_decode.problem import (
    ARGUMENTS,
    PARTITION_SIZES,
    RESTRICTIONS,
    MlaDecodeProblem,
    partials,
    with_partitions,
)
from workbench.attention.ops.paged_attention.rules import num_partitions
from workbench.attention.ops.rules import rules, shared_limit, shared_memory
from workbench.base.packages import ELEMENT_TYPES, cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, Restriction, cdiv
from workbench.ptx import TensorMap

_HEADS = 64
"""Query heads of a block: the rows of a product of a warp group."""

_COLUMNS = 64
"""Elements of a row of a tile: 128 bytes, the span of the swizzle."""


def _tile_bytes(config: Config, problem: MlaDecodeProblem) -> int:
    """Return the dynamic shared memory: queries and stages of tokens, in whole rows of 128 bytes."""
    rows = _HEADS + config["NUM_STAGES"] * config["TILE_TOKENS"]
    return rows * cdiv(problem.key_size, _COLUMNS) * _COLUMNS * problem.itemsize


def _shared_bytes(config: Config, problem: MlaDecodeProblem) -> int:
    """Return all shared memory: also weights and maxima that the groups exchange, up to where tiles may begin."""
    return _tile_bytes(config, problem) + 128 * config["TILE_TOKENS"] + 3072


def _queries(config: Config, problem: MlaDecodeProblem, tensors: Any) -> TensorMap:
    return TensorMap.of(tensors.query, (1, _HEADS, _COLUMNS), swizzle=128)


def _tokens(config: Config, problem: MlaDecodeProblem, tensors: Any) -> TensorMap:
    tokens = min(config["BLOCK_SIZE"], config["TILE_TOKENS"])
    return TensorMap.of(tensors.latent_cache, (1, tokens, _COLUMNS), swizzle=128)


def default_config(problem: MlaDecodeProblem) -> dict:
    """Return the largest tiles of which two fit, and partitions that fill the GPU."""
    config = {"BLOCK_SIZE": problem.page, "TILE_TOKENS": 64, "NUM_STAGES": 2}
    if _shared_bytes(config, problem) > shared_limit(problem):
        config["TILE_TOKENS"] = 32
    return {name: with_partitions(config, problem, heads=_HEADS)[name] for name in SPACE}


SPACE = {
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
        ("tiles", "TILE_TOKENS in (32, 64)", "a product has a half of them as columns"),
        ("boxes", "BLOCK_SIZE % 8 == 0 and (BLOCK_SIZE % TILE_TOKENS == 0 or TILE_TOKENS % BLOCK_SIZE == 0)"),
        ("stages", "NUM_STAGES >= 2", "one is copied while one is read"),
        shared_memory(
            _shared_bytes,
            "128 * cdiv(key_size, 64) * (64 + NUM_STAGES * TILE_TOKENS) + 128 * TILE_TOKENS + 3072",
        ),
    ),
    layouts=("latent",),
    dtypes=("float16", "bfloat16"),
    features=("sinks",),
    defaults=default_config,
    macros=lambda config, problem: {
        "SCALAR": ELEMENT_TYPES[problem.dtype].cpp,
        "LATENT_SIZE": problem.latent_size,
        "KEY_SIZE": problem.key_size,
        **config,
    },
    workspace=partials,
)
