"""A tile of tokens per block; a layout that transposes tokens is written through shared memory.

The kernel is ``cuda_src/reshape_and_cache_tiled.cu``.
"""

from __future__ import annotations

import math

from workbench.attention.ops.page_tiles import CUDA_RESTRICTIONS, CUDA_SPACE, macros
from workbench.attention.ops.reshape_and_cache.problem import ARGUMENTS, GRID, ReshapeAndCacheProblem
from workbench.attention.ops.rules import rules, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, cdiv


def _tile_bytes(config: Config, problem: ReshapeAndCacheProblem) -> int:
    """Return the bytes of shared memory: slots and scales, and in layout "x" both tiles and the starts of runs."""
    tokens = config["TILE_TOKENS"]
    if problem.layout != "x":
        return 16 * tokens
    row = problem.head_size * problem.cache_dtype.itemsize + 16
    return tokens * (16 + 2 * row) + 8 * tokens // config["V_VEC_SIZE"]


RESTRICTIONS = rules(
    *CUDA_RESTRICTIONS,
    ("aligned vectors", "VEC_SIZE * itemsize <= alignment", "the alignment of rows of key and value"),
    shared_memory(
        _tile_bytes,
        "layout 'x' only: TILE_TOKENS * (2 * (head_size * sizeof(cache element) + 16) + slots)",
        static=True,
    ),
    GRID,
)


def default_config(problem: ReshapeAndCacheProblem) -> dict:
    """Return the widest accesses that alignment and head allow; in layout "x" tiles of a page, up to 16 tokens."""
    vec = math.gcd(problem.head_size, max(problem.alignment // problem.itemsize, 1))
    tile, wide = 4, 1
    if problem.layout == "x":
        tile = 16 if problem.head_size * problem.cache_dtype.itemsize <= 1024 else 4
        wide = math.gcd(problem.block_size, min(problem.x, tile))
    return {"NUM_THREADS": 128, "TILE_TOKENS": tile, "VEC_SIZE": vec, "V_VEC_SIZE": wide}


VARIANT = CudaVariant(
    op="reshape_and_cache",
    name="cuda_tiled",
    idea="a block per tile of tokens and KV head; layout x is turned in shared memory, so that sectors fill",
    source=cuda_sources() / "reshape_and_cache_tiled.cu",
    steps=(
        CudaStep(
            kernel="reshape_and_cache_tiled",
            grid=lambda config, problem: (cdiv(problem.num_tokens, config["TILE_TOKENS"]), problem.num_kv_heads),
            arguments=ARGUMENTS,
        ),
    ),
    space=CUDA_SPACE,
    restrictions=RESTRICTIONS,
    layouts=("x", "nhd", "hnd"),
    dtypes=("float32", "float16", "bfloat16"),
    features=("int8", "fp8_e4m3", "fp8_e5m2"),
    defaults=default_config,
    macros=macros,
)
