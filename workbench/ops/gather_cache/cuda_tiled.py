"""A tile of tokens per block; where the layout turned them, the tile turns back in shared memory.

The kernel is ``cuda_src/gather_cache_tiled.cu``.
"""

from __future__ import annotations

from workbench.home import cuda_sources
from workbench.ops.gather_cache.problem import Problem, Tensors
from workbench.ops.gather_cache.rules import GRID
from workbench.ops.page_tiles import CUDA_RESTRICTIONS, CUDA_SPACE, STATIC_SHARED, macros
from workbench.ops.scales import scale_strides
from workbench.ops.variant import Config, CudaVariant, Launch, Restriction


def _tile_bytes(config: Config, problem: Problem) -> int:
    """Shared memory: slots and scales, and in layout "x" both tiles."""
    row = problem.head_size * problem.cache_dtype.itemsize + 16 if problem.layout == "x" else 0
    return config["TILE_TOKENS"] * (16 + 2 * row)


RESTRICTIONS = (
    *CUDA_RESTRICTIONS,
    Restriction(
        "16-byte stores",
        "VEC_SIZE * sizeof(element) <= 16",
        lambda c, p: c["VEC_SIZE"] * p.itemsize <= 16,
    ),
    Restriction(
        "shared memory",
        "TILE_TOKENS * (16 + 2 * (head_size * sizeof(cache element) + 16) in layout 'x') <= 48 KiB",
        lambda c, p: _tile_bytes(c, p) <= STATIC_SHARED,
    ),
    GRID,
)


def default_config(problem: Problem) -> dict:
    """16-byte accesses where the head allows; tiles of 16 tokens, or of fewer where they are large."""
    vec = 16 // problem.itemsize
    while problem.head_size % vec:
        vec //= 2
    wide = 1
    if problem.layout == "x":
        wide = problem.x
        while problem.block_size % wide:
            wide //= 2
    config = {"NUM_THREADS": 128, "TILE_TOKENS": 16, "VEC_SIZE": vec, "V_VEC_SIZE": wide}
    while _tile_bytes(config, problem) > STATIC_SHARED:
        config["TILE_TOKENS"] //= 2
        config["V_VEC_SIZE"] = min(wide, config["TILE_TOKENS"])
    return config


def _launch(config: Config, problem: Problem, tensors: Tensors) -> Launch:
    t = tensors
    return Launch(
        grid=(-(-problem.max_seq_len // config["TILE_TOKENS"]), problem.num_kv_heads, problem.num_seqs),
        block=(config["NUM_THREADS"],),
        arguments=(
            t.keys,
            t.values,
            t.key_cache,
            t.value_cache,
            t.block_tables,
            t.seq_lens,
            t.starts,
            t.k_scale,
            t.v_scale,
            *scale_strides(t.k_scale),
            *scale_strides(t.v_scale),
            t.block_tables.stride(0),
            problem.num_tokens,
            t.key_cache.stride(0),
            t.value_cache.stride(0),
        ),
    )


VARIANT = CudaVariant(
    op="gather_cache",
    name="cuda_tiled",
    idea="a block per tile of tokens, KV head and sequence; layout x is turned back in shared memory",
    source=cuda_sources() / "gather_cache_tiled.cu",
    kernel="gather_cache_tiled",
    space=CUDA_SPACE,
    restrictions=RESTRICTIONS,
    layouts=("x", "nhd", "hnd"),
    dtypes=("float32", "float16", "bfloat16"),
    features=("int8", "fp8_e4m3", "fp8_e5m2"),
    defaults=default_config,
    macros=macros,
    resources=lambda config, problem: (config["NUM_THREADS"], 0),
    launcher=_launch,
)
