"""FlashAttention-2 on tensor cores: tiles of keys and values copied ahead, an online softmax in registers.

The kernel is ``cuda_src/causal_attention_mma.cu``. A tile of scores never leaves the registers of its warp, so only
queries, keys, values and output cross memory. Keys and values cross it once per BLOCK_M queries of a head, from the L2
cache if other heads of the group, or other blocks, have read them.
"""

from __future__ import annotations

from workbench.attention.ops.cache_problem import head_macros
from workbench.attention.ops.causal_attention.problem import (
    GRID,
    ROWS,
    STRIDES,
    WHOLE_STEPS,
    CausalAttentionProblem,
    blocks,
)
from workbench.attention.ops.rules import rules, shared_limit, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, Restriction, cdiv

_OTHER_REGISTERS = 48
"""Registers beside queries, scores and output: pieces of tiles, addresses, maxima and sums."""


def _row_tiles(config: Config) -> int:
    """Return the number of 16-row tiles of a warp."""
    return config["BLOCK_M"] // (config["NUM_THREADS"] // 2)


def _steps(problem: CausalAttentionProblem) -> int:
    """Return the number of steps of a product along the head, 16 elements each."""
    return cdiv(problem.head_size, 16)


def _registers(config: Config, problem: CausalAttentionProblem) -> int:
    """Return the registers of one thread: sums of the output, scores, and queries that stay."""
    tiles, steps = _row_tiles(config), _steps(problem)
    queries = 4 * min(tiles * steps, 8)
    return tiles * (8 * steps + config["BLOCK_N"] // 2) + queries + _OTHER_REGISTERS


def _shared_bytes(config: Config, problem: CausalAttentionProblem) -> int:
    """Return the bytes of queries, and of all stages of keys and values."""
    rows = config["BLOCK_M"] + 2 * config["NUM_STAGES"] * config["BLOCK_N"]
    return rows * _steps(problem) * 32


RESTRICTIONS = rules(
    ROWS,
    WHOLE_STEPS,
    ("threads per block", "NUM_THREADS % 32 == 0 and 32 <= NUM_THREADS <= 256", "up to 255 registers each"),
    ("whole rows of a warp", "BLOCK_M % (NUM_THREADS // 2) == 0", "16 rows of a product, once or more"),
    ("whole tiles", "BLOCK_N >= 16 and BLOCK_N % 16 == 0"),
    ("stages", "NUM_STAGES >= 2", "one is copied while one is read"),
    Restriction(
        "registers",
        "BLOCK_M / (NUM_THREADS / 2) * (head_size / 2 + BLOCK_N / 2) + queries, at most 32, "
        f"+ {_OTHER_REGISTERS} <= 255",
        lambda config, problem: _registers(config, problem) <= 255,
    ),
    shared_memory(_shared_bytes, "2 * head_size * (BLOCK_M + 2 * NUM_STAGES * BLOCK_N)"),
    GRID,
)


def default_config(problem: CausalAttentionProblem) -> dict:
    """Return four warps of 16 rows, tiles of as many tokens as fit in registers and shared memory, and two stages."""
    config = {"BLOCK_M": 64, "BLOCK_N": 64, "NUM_STAGES": 2, "NUM_THREADS": 128}
    for tokens in (64, 32, 16):
        config["BLOCK_N"] = tokens
        if _registers(config, problem) <= 255 and _shared_bytes(config, problem) <= shared_limit(problem):
            break
    return config


VARIANT = CudaVariant(
    op="causal_attention",
    name="cuda_mma",
    idea="FlashAttention-2: a block per 64 queries, products on tensor cores, copies a tile ahead, scores in registers",
    source=cuda_sources() / "causal_attention_mma.cu",
    steps=(
        CudaStep(
            kernel="causal_attention_mma",
            grid=lambda config, problem: blocks(config, problem),
            shared_bytes=_shared_bytes,
            arguments=STRIDES,
        ),
    ),
    space={
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "NUM_STAGES": (2, 3),
        "NUM_THREADS": (64, 128, 256),
    },
    restrictions=RESTRICTIONS,
    layouts=("heads first",),
    dtypes=("float16", "bfloat16"),
    features=("lengths",),
    defaults=default_config,
    macros=head_macros,
)
