"""A tile of tokens per block; a tile of a transposed layout is transposed back in shared memory.

The kernel is ``cuda_src/gather_cache_tiled.cu``.
"""

from __future__ import annotations

import math

from workbench.attention.ops.cache_problem import STRIDES
from workbench.attention.ops.gather_cache.problem import GRID, GatherCacheProblem, blocks
from workbench.attention.ops.page_tiles import CUDA_RESTRICTIONS, CUDA_SPACE, macros
from workbench.attention.ops.rules import STATIC_SHARED, rules, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant


def _tile_bytes(config: Config, problem: GatherCacheProblem) -> int:
    """Return the shared memory of slots and scales, and in layout "x" of both tiles, in bytes."""
    row = problem.head_size * problem.cache_dtype.itemsize + 16 if problem.layout == "x" else 0
    return config["TILE_TOKENS"] * (16 + 2 * row)


RESTRICTIONS = rules(
    *CUDA_RESTRICTIONS,
    ("16-byte stores", "VEC_SIZE * itemsize <= 16"),
    shared_memory(
        _tile_bytes, "TILE_TOKENS * (16 + 2 * (head_size * sizeof(cache element) + 16) in layout 'x')", static=True
    ),
    GRID,
)


def default_config(problem: GatherCacheProblem) -> dict:
    """Return 16-byte accesses if the head allows them, and tiles of 16 tokens, or fewer if they are large."""
    vec = math.gcd(problem.head_size, 16 // problem.itemsize)
    wide = math.gcd(problem.block_size, problem.x) if problem.layout == "x" else 1
    config = {"NUM_THREADS": 128, "TILE_TOKENS": 16, "VEC_SIZE": vec, "V_VEC_SIZE": wide}
    while _tile_bytes(config, problem) > STATIC_SHARED:
        config["TILE_TOKENS"] //= 2
        config["V_VEC_SIZE"] = min(wide, config["TILE_TOKENS"])
    return config


VARIANT = CudaVariant(
    op="gather_cache",
    name="cuda_tiled",
    idea="a block per tile of tokens, KV head and sequence; layout x is turned back in shared memory",
    source=cuda_sources() / "gather_cache_tiled.cu",
    steps=(
        CudaStep(kernel="gather_cache_tiled", grid=lambda config, problem: blocks(config, problem), arguments=STRIDES),
    ),
    space=CUDA_SPACE,
    restrictions=RESTRICTIONS,
    layouts=("x", "nhd", "hnd"),
    dtypes=("float32", "float16", "bfloat16"),
    features=("int8", "fp8_e4m3", "fp8_e5m2"),
    defaults=default_config,
    macros=macros,
)
