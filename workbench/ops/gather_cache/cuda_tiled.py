"""A tile of tokens per block; where the layout turned them, the tile turns back in shared memory.

The kernel is ``cuda_src/gather_cache_tiled.cu``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.home import cuda_sources
from workbench.ops.gather_cache.problem import Problem, Tensors
from workbench.ops.gather_cache.rules import GRID, WHOLE_X_GROUPS
from workbench.ops.paged_attention.cuda_types import CPP_NAMES
from workbench.ops.paged_attention.problem import DTYPES
from workbench.ops.scales import scale_strides
from workbench.ops.variant import Config, CudaVariant, Launch, Restriction

_STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a block may declare."""


def _tile_bytes(config: Config, problem: Problem) -> int:
    """Shared memory: slots and scales, and in layout "x" both tiles."""
    row = problem.head_size * problem.cache_dtype.itemsize + 16 if problem.layout == "x" else 0
    return config["TILE_TOKENS"] * (16 + 2 * row)


RESTRICTIONS = (
    Restriction(
        "whole vectors",
        "head_size % VEC_SIZE == 0",
        lambda c, p: p.head_size % c["VEC_SIZE"] == 0,
    ),
    Restriction(
        "16-byte stores",
        "VEC_SIZE * sizeof(element) <= 16",
        lambda c, p: c["VEC_SIZE"] * p.itemsize <= 16,
    ),
    Restriction(
        "16-byte value loads",
        "V_VEC_SIZE * sizeof(cache element) <= 16",
        lambda c, p: c["V_VEC_SIZE"] * p.cache_dtype.itemsize <= 16,
    ),
    Restriction(
        "a run of tokens stays in its page",
        "TILE_TOKENS % V_VEC_SIZE == 0 and block_size % V_VEC_SIZE == 0",
        lambda c, p: c["TILE_TOKENS"] % c["V_VEC_SIZE"] == 0 and p.block_size % c["V_VEC_SIZE"] == 0,
    ),
    Restriction(
        "value rows are those of layout x",
        "V_VEC_SIZE == 1 unless layout is 'x'",
        lambda c, p: p.layout == "x" or c["V_VEC_SIZE"] == 1,
    ),
    WHOLE_X_GROUPS,
    Restriction(
        "threads per block",
        "NUM_THREADS % 32 == 0 and NUM_THREADS <= 1024",
        lambda c, p: c["NUM_THREADS"] % 32 == 0 and 32 <= c["NUM_THREADS"] <= 1024,
    ),
    Restriction(
        "shared memory",
        "TILE_TOKENS * (16 + 2 * (head_size * sizeof(cache element) + 16) in layout 'x') <= 48 KiB",
        lambda c, p: _tile_bytes(c, p) <= _STATIC_SHARED,
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
    while _tile_bytes(config, problem) > _STATIC_SHARED:
        config["TILE_TOKENS"] //= 2
        config["V_VEC_SIZE"] = min(wide, config["TILE_TOKENS"])
    return config


def _macros(config: Config, problem: Problem) -> Mapping[str, Any]:
    size, page = problem.head_size, problem.block_size
    head, token = (size, problem.num_kv_heads * size) if problem.layout == "nhd" else (page * size, size)
    if problem.kv_cache_dtype == "auto":  # words of that size: the same code for float16 and bfloat16
        scalar = cache = {2: "unsigned short", 4: "unsigned int"}[problem.itemsize]
    else:
        scalar, cache = CPP_NAMES[DTYPES[problem.dtype]], CPP_NAMES[problem.cache_dtype]
    return {
        "SCALAR": scalar,
        "CACHE": cache,
        **({} if problem.kv_cache_dtype == "auto" else {"QUANTIZED": 1}),
        "HEAD_SIZE": size,
        "BLOCK_SIZE": page,
        "LAYOUT_X": int(problem.layout == "x"),
        "HEAD_STRIDE": head,
        "TOKEN_STRIDE": token,
        **config,
    }


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
    space={
        "NUM_THREADS": (32, 64, 128, 256),
        "TILE_TOKENS": (1, 4, 8, 16, 32),
        "VEC_SIZE": (1, 2, 4, 8),
        "V_VEC_SIZE": (1, 2, 4, 8, 16),
    },
    restrictions=RESTRICTIONS,
    layouts=("x", "nhd", "hnd"),
    dtypes=("float32", "float16", "bfloat16"),
    features=("int8", "fp8_e4m3", "fp8_e5m2"),
    defaults=default_config,
    macros=_macros,
    resources=lambda config, problem: (config["NUM_THREADS"], 0),
    launcher=_launch,
)
