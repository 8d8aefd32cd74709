"""The query heads of a group packed into one tile, products on tensor cores: in Triton.

The idea is that of ``cuda_src/paged_attention_grouped_mma.cu``: a program per KV head, sequence and partition, whose
query heads, padded to 16 rows, meet each tile of keys and values once. Triton copies the tiles asynchronously and a
stage ahead of them the entries of the block table that say where they lie.

Bytes that must move are those of ``cuda_grouped_mma``. At 4096 tokens of 8 query heads on a KV head of 128 elements,
one partition (``tests/ops/test_paged_attention_grouped.py``), the machine saw 1.004 times as many distinct bytes and
1.010 times as many asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
import triton.language as tl

from workbench.ops.paged_attention.problem import Problem, Tensors
from workbench.ops.paged_attention.rules import GRID, GROUP, PAGE_SIZE, PARTITIONS, partition_size, shared_limit
from workbench.ops.paged_attention.triton_reduction import LOG2_E, REDUCTION
from workbench.ops.paged_attention.triton_tiles import (
    POWERS_OF_TWO,
    SCALAR_TYPES,
    TILE_IN_REGISTERS,
    WHOLE_TILES,
    head_and_strides,
)
from workbench.ops.paged_attention.workspace import partials
from workbench.ops.variant import Config, Launch, Restriction, TritonVariant


@triton.jit
def paged_attention_grouped(
    partial_out,  # [num_seqs, num_heads, num_partitions, HEAD_SIZE] fp32: sum of exp2(score - max) * V
    partial_stats,  # [num_seqs, num_heads, num_partitions, 2] fp32: max and sum of the weights
    query,  # [num_seqs, num_heads, HEAD_SIZE], rows query_stride apart
    key_cache,  # "nhd" or "hnd": its strides inside a page are constexprs
    value_cache,
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    alibi_slopes,  # [num_heads]
    scale,
    soft_cap,
    sliding_window,
    query_stride,
    table_stride,
    key_page_stride,
    value_page_stride,
    GROUP: tl.constexpr,  # query heads per KV head
    ROWS: tl.constexpr,  # as many as a product has
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,  # the next power of two
    KV_HEAD: tl.constexpr,  # strides inside a page, in elements
    KV_TOKEN: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    TILE_TOKENS: tl.constexpr,
    PARTITION_SIZE: tl.constexpr,
    ALIBI: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    kv_head, seq, partition = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_heads = tl.num_programs(0) * GROUP
    seq_len = tl.load(seq_lens + seq)
    begin = partition * PARTITION_SIZE
    if WINDOW:
        begin = tl.maximum(begin, seq_len - sliding_window)
    end = tl.minimum((partition + 1) * PARTITION_SIZE, seq_len)
    if begin >= end:
        return
    elements = tl.arange(0, HEAD_PADDED)
    inside = elements < HEAD_SIZE
    tokens = tl.arange(0, TILE_TOKENS)
    rows = tl.arange(0, ROWS)
    heads = kv_head * GROUP + rows

    # 1. Load the queries of the group, padded with zeros.
    q = tl.load(
        query + seq.to(tl.int64) * query_stride + heads[:, None] * HEAD_SIZE + elements[None, :],
        mask=(rows < GROUP)[:, None] & inside[None, :],
        other=0.0,
    )
    factor = scale * (1.0 / soft_cap if SOFT_CAP else LOG2_E)
    if ALIBI:
        slope = tl.load(alibi_slopes + heads, mask=rows < GROUP, other=0.0) * LOG2_E

    table = block_tables + seq.to(tl.int64) * table_stride
    max_score = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([ROWS], dtype=tl.float32)
    acc = tl.zeros([ROWS, HEAD_PADDED], dtype=tl.float32)
    for start in tl.range(begin // TILE_TOKENS * TILE_TOKENS, end, TILE_TOKENS, num_stages=NUM_STAGES):
        token = start + tokens
        valid = (token >= begin) & (token < end)
        block = tl.load(table + token // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
        slot = kv_head * KV_HEAD + token % BLOCK_SIZE * KV_TOKEN

        # 2. Score: [ROWS, TILE_TOKENS], minus infinity outside.
        key = tl.load(
            key_cache + (block * key_page_stride + slot)[:, None] + elements[None, :],
            mask=valid[:, None] & inside[None, :],
            other=0.0,
        )
        score = tl.dot(q, tl.trans(key)) * factor
        if SOFT_CAP:  # tanh by its definition
            score = soft_cap * LOG2_E * (1.0 - 2.0 / (1.0 + tl.exp2(2.0 * LOG2_E * score)))
        if ALIBI:
            score += slope[:, None] * (token - (seq_len - 1))[None, :]
        score = tl.where(valid[None, :], score, float("-inf"))

        # 3. Rescale what was summed under the old maximum.
        new_max = tl.maximum(max_score, tl.max(score, axis=1))
        rescale = tl.exp2(max_score - new_max)
        weight = tl.exp2(score - new_max[:, None])
        total = total * rescale + tl.sum(weight, axis=1)
        max_score = new_max

        # 4. Accumulate: [ROWS, HEAD_PADDED]. Zero values outside too: an unused slot may hold NaN.
        value = tl.load(
            value_cache + (block * value_page_stride + slot)[:, None] + elements[None, :],
            mask=valid[:, None] & inside[None, :],
            other=0.0,
        )
        acc = tl.dot(weight.to(value.dtype), value, acc * rescale[:, None])

    # 5. Reduce: that is the next kernel's. Leave the sums, and under which maximum they were taken.
    place = (seq.to(tl.int64) * num_heads + heads) * tl.num_programs(2) + partition
    tl.store(partial_stats + place * 2, max_score, mask=rows < GROUP)
    tl.store(partial_stats + place * 2 + 1, total, mask=rows < GROUP)
    tl.store(
        partial_out + place[:, None] * HEAD_SIZE + elements[None, :],
        acc,
        mask=(rows < GROUP)[:, None] & inside[None, :],
    )


_PARTITION_SIZES = (128, 256, 512, 1024, 2048, 4096)


def _signature(problem: Problem) -> Mapping[str, str]:
    scalar = f"*{SCALAR_TYPES[problem.dtype]}"
    return {
        "partial_out": "*fp32",
        "partial_stats": "*fp32",
        "query": f"{scalar}:1",
        "key_cache": scalar,
        "value_cache": scalar,
        "block_tables": "*i32:1",
        "seq_lens": "*i32:1",
        "alibi_slopes": "*fp32:1",
        "scale": "fp32",
        "soft_cap": "fp32",
        "sliding_window": "i32",
        "query_stride": "i64",
        "table_stride": "i64",
        "key_page_stride": "i64:16",
        "value_page_stride": "i64:16",
    }


def _constexprs(config: Config, problem: Problem) -> Mapping[str, Any]:
    strides = head_and_strides(config, problem)
    return {
        "GROUP": problem.group,
        "ROWS": 16,
        "HEAD_SIZE": strides["HEAD_SIZE"],
        "HEAD_PADDED": strides["HEAD_PADDED"],
        "KV_HEAD": strides["VALUE_HEAD"],
        "KV_TOKEN": strides["VALUE_TOKEN"],
        "BLOCK_SIZE": config["BLOCK_SIZE"],
        "TILE_TOKENS": config["TILE_TOKENS"],
        "PARTITION_SIZE": config["PARTITION_SIZE"],
        "ALIBI": "alibi" in problem.features,
        "WINDOW": "sliding_window" in problem.features,
        "SOFT_CAP": "soft_cap" in problem.features,
        "NUM_STAGES": config["num_stages"],
    }


def default_config(problem: Problem) -> dict:
    """The longest partitions that still give every multiprocessor two programs; 64-token tiles, 32 of a large head.

    A copy waits for its entry of the block table, so that a tile ahead takes two stages: of five, two tiles are ahead.
    """
    size = partition_size(problem, _PARTITION_SIZES, blocks_per_multiprocessor=2, heads=problem.num_kv_heads)
    tile = 64 if problem.head_size <= 128 else 32
    return {"BLOCK_SIZE": problem.page, "TILE_TOKENS": tile, "PARTITION_SIZE": size, "num_warps": 4, "num_stages": 5}


def _launch_partitions(config: Config, problem: Problem, tensors: Tensors) -> Launch:
    t = tensors
    return Launch(
        grid=(problem.num_kv_heads, problem.num_seqs, t.workspace.count),
        block=(32 * config["num_warps"],),
        arguments=(
            t.workspace.out,
            t.workspace.stats,
            t.query,
            t.key_cache,
            t.value_cache,
            t.block_tables,
            t.seq_lens,
            t.workspace.stats if t.alibi_slopes is None else t.alibi_slopes,  # not followed where it is not asked for
            t.scale,
            t.soft_cap or 0.0,
            t.sliding_window or 0,
            t.query.stride(0),
            t.block_tables.stride(0),
            t.key_cache.stride(0),
            t.value_cache.stride(0),
        ),
    )


def _shared_bytes(config: Config, problem: Problem) -> int:
    """At most what Triton takes: tiles of K and V, queries, and room to exchange weights between warps."""
    size = triton.next_power_of_2(problem.head_size)
    buffers = max((config["num_stages"] - 1) // 2, 1)
    return buffers * 4 * config["TILE_TOKENS"] * size + 32 * size + 4096 * config["num_warps"]


RESTRICTIONS = (
    PAGE_SIZE,
    GROUP,
    POWERS_OF_TWO,
    WHOLE_TILES,
    Restriction(
        "products",
        "TILE_TOKENS >= 16, head_size >= 16 and head_size <= 256",
        lambda c, p: c["TILE_TOKENS"] >= 16 and 16 <= p.head_size <= 256,
    ),
    Restriction("whole 16-byte steps", "head_size % 8 == 0", lambda c, p: p.head_size % 8 == 0),
    TILE_IN_REGISTERS,
    Restriction(
        "shared memory",
        "max((num_stages - 1) // 2, 1) * 4 * TILE_TOKENS * P + 32 * P + 4096 * num_warps bytes, with"
        " P = next_power_of_2(head_size), <= what a block of arch may take",
        lambda c, p: _shared_bytes(c, p) <= shared_limit(p),
    ),
    PARTITIONS,
    GRID,
)

VARIANT = TritonVariant(
    op="paged_attention",
    name="triton_grouped",
    idea="a program per KV head and partition: its query heads padded to the 16 rows of a product",
    source=Path(__file__),
    function=paged_attention_grouped,
    space={
        "BLOCK_SIZE": (8, 16, 32, 64, 128),
        "TILE_TOKENS": (16, 32, 64, 128),
        "PARTITION_SIZE": _PARTITION_SIZES,
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 3, 5, 7),
    },
    restrictions=RESTRICTIONS,
    layouts=("nhd", "hnd"),
    dtypes=("float16", "bfloat16"),
    features=("alibi", "sliding_window", "soft_cap", "sinks"),
    defaults=default_config,
    signature=_signature,
    constexprs=_constexprs,
    launcher=_launch_partitions,
    workspace=partials,
    then=(REDUCTION,),
)
