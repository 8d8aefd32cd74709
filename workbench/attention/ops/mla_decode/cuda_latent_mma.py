"""A tile of query heads on tensor cores; each latent is copied once and used twice, as a key and as a value.

The kernel is that of ``cuda_src/mla_decode_latent_mma.cu``. A block's warps share the tile of tokens: for scores each
takes some tokens, for values some columns of the latent, so that every warp needs only its part of the output in
registers, 512 / warps columns of 16 heads or more. Weights cross from one to the other through shared memory. Rows of
"fp8_ds_mla" cross memory as they are stored, and become values in shared memory once for all heads of the tile.

A tile has up to 128 heads where latents have 256 elements or fewer. Of 512 it has 64 at most: the fp32 sums of 128
heads would be all registers of a multiprocessor.

Bytes that must move: each latent once per tile of heads, queries, output. With more than one partition also the fp32
partial results, ``2 * 4 * num_heads * (latent_size + 2)`` for each, and a counter.
"""

from __future__ import annotations

from workbench.attention.cache_formats.fp8_latents import NAME
from workbench.attention.ops.mla_decode.problem import (
    ARGUMENTS,
    PARTITION_SIZES,
    RESTRICTIONS,
    MlaDecodeProblem,
    head_tiles,
    macros,
    partials,
    with_partitions,
)
from workbench.attention.ops.paged_attention.rules import num_partitions
from workbench.attention.ops.rules import THREADS, rules, shared_limit, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant

_ACCUMULATORS = 128
"""Largest number of a thread's registers for sums of values, of 255."""


def _tile_bytes(config: Config, problem: MlaDecodeProblem) -> int:
    """Return the dynamic shared memory: queries, stages of stored tokens, and a tile of values if they are codes."""
    rows = config["HEADS_PER_BLOCK"] + (config["TILE_TOKENS"] if problem.quantized else 0)
    stages = config["NUM_STAGES"] * config["TILE_TOKENS"] * problem.row_bytes
    return rows * problem.key_size * problem.itemsize + stages


def _static_bytes(config: Config, problem: MlaDecodeProblem) -> int:
    """Return the static shared memory: scores, weights, maxima, sums and pages."""
    heads, tokens = config["HEADS_PER_BLOCK"], config["TILE_TOKENS"]
    pages = config["PARTITION_SIZE"] // config["BLOCK_SIZE"]
    return -(-(heads * (4 * (tokens + 8) + 2 * tokens + 12) + 4 * pages + 256) // 128) * 128


def _shared_bytes(config: Config, problem: MlaDecodeProblem) -> int:
    """Return all shared memory."""
    return _tile_bytes(config, problem) + _static_bytes(config, problem)


def default_config(problem: MlaDecodeProblem) -> dict:
    """Return tiles of as many heads as there are and fit, or of 16, and partitions that fill the GPU."""
    page = {"BLOCK_SIZE": problem.page}
    for heads, threads, tokens in ((128, 256, 16), (64, 256, 16), (16, 128, 32)):
        while problem.latent_size % (threads // 32 * 16):
            threads //= 2
        config = {"HEADS_PER_BLOCK": heads, **page, "TILE_TOKENS": tokens, "NUM_STAGES": 3, "NUM_THREADS": threads}
        longest = {"PARTITION_SIZE": max(PARTITION_SIZES)}
        if _shared_bytes(config | longest, problem) > shared_limit(problem):
            config["NUM_STAGES"] = 2
        fits = heads * problem.latent_size <= _ACCUMULATORS * threads
        if 2 * problem.num_heads > heads and fits and _shared_bytes(config | longest, problem) <= shared_limit(problem):
            break
    return {name: with_partitions(config, problem)[name] for name in SPACE}


SPACE = {
    "HEADS_PER_BLOCK": (16, 32, 64, 128),
    "BLOCK_SIZE": (1, 16, 32, 64, 128),
    "PARTITION_SIZE": PARTITION_SIZES,
    "TILE_TOKENS": (16, 32, 64),
    "NUM_STAGES": (2, 3, 4),
    "NUM_THREADS": (64, 128, 256),
}


VARIANT = CudaVariant(
    op="mla_decode",
    name="cuda_latent_mma",
    idea="a block per tile of heads and partition: each latent copied once, a key and, transposed, a value",
    source=cuda_sources() / "mla_decode_latent_mma.cu",
    steps=(
        CudaStep(
            kernel="mla_decode_latent",
            grid=lambda config, problem: (
                head_tiles(config, problem),
                problem.num_seqs,
                num_partitions(config, problem),
            ),
            shared_bytes=_tile_bytes,
            arguments=ARGUMENTS | {"output": lambda config, problem, tensors: tensors.out},
        ),
    ),
    space=SPACE,
    restrictions=rules(
        *RESTRICTIONS,
        ("whole steps", "key_size % 32 == 0 and latent_size % (NUM_THREADS // 2) == 0", "of 16 columns for each warp"),
        ("tiles", "HEADS_PER_BLOCK % 16 == 0 and TILE_TOKENS % 16 == 0 and HEADS_PER_BLOCK % (NUM_THREADS // 32) == 0"),
        THREADS,
        (
            "registers",
            f"HEADS_PER_BLOCK * latent_size <= {_ACCUMULATORS} * NUM_THREADS",
            f"{_ACCUMULATORS} sums a thread",
        ),
        ("stages", "NUM_STAGES >= 2", "one is copied while one is read"),
        shared_memory(
            _static_bytes,
            "HEADS_PER_BLOCK * (6 * TILE_TOKENS + 44) + 4 * PARTITION_SIZE / BLOCK_SIZE + 256",
            static=True,
        ),
        shared_memory(
            _shared_bytes,
            "HEADS_PER_BLOCK * key_size * itemsize + NUM_STAGES * TILE_TOKENS * row_bytes + scores"
            " (and TILE_TOKENS * key_size * itemsize for a quantized cache)",
        ),
    ),
    layouts=("latent",),
    dtypes=("float16", "bfloat16"),
    features=(NAME, "sinks"),
    defaults=default_config,
    macros=macros,
    workspace=partials,
)
