# mypy: allow-untyped-defs, allow-incomplete-defs
"""The query heads of a group packed into one tile, products on tensor cores: in Triton.

The idea is that of ``cuda_src/paged_attention_grouped_mma.cu``: a program per KV head, sequence and partition, whose
query heads, padded to 16 rows, meet each tile of keys and values once. Triton copies the tiles asynchronously, and one
stage ahead of them the block table's entries with their places.

Bytes that must move are those of ``cuda_grouped_mma``. At 4096 tokens of 8 query heads on a KV head of 128 elements,
one partition (``tests/attention/ops/test_paged_attention_grouped.py``), the machine counted 1.0000 times as many
distinct bytes and 1.008 times as many requested; for an 8-bit cache 1.0001 and 1.007, with a scale per token 1.0000 and
1.029.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from workbench.attention.ops.cache_problem import SCALES_OR_ONE, head_and_strides, never_none
from workbench.attention.ops.paged_attention.problem import ARGUMENTS, SCALE_PLACES, PagedAttentionProblem
from workbench.attention.ops.paged_attention.rules import (
    GRID,
    GROUP,
    PAGE_SIZE,
    PARTITIONS,
    WHOLE_TILES,
    balanced_partition_size,
    num_partitions,
    partition_blocks,
)
from workbench.attention.ops.paged_attention.triton_eight_bits import unit_of, widen
from workbench.attention.ops.paged_attention.triton_reduction import (
    LOG2_E,
    average,
    combine_partitions,
    last_to_arrive,
    partitions_of,
    tokens_of,
)
from workbench.attention.ops.paged_attention.triton_tiles import (
    FEATURES,
    POWERS_OF_TWO,
    TILE_IN_REGISTERS,
    has_e4m3,
    types,
)
from workbench.attention.ops.paged_attention.triton_tiles import constexprs as of_tiles
from workbench.attention.ops.paged_attention.workspace import partials
from workbench.attention.ops.rules import rules, shared_memory
from workbench.ops import Arguments, Config, Footprint, TritonStep, TritonVariant, next_power_of_2


@triton.jit
def pages_of(
    cache,  # address of the KV head's first token
    num_pages,
    page_stride,
    token_stride,
    BLOCK_SIZE: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
):
    """Return a descriptor of a KV head's part of the cache, with a box for each page."""
    return tl.make_tensor_descriptor(
        cache, [num_pages, BLOCK_SIZE, HEAD_SIZE], [page_stride, token_stride, 1], [1, BLOCK_SIZE, HEAD_PADDED]
    )


@triton.jit
def paged_attention_grouped(
    out,  # [num_seqs, num_heads, HEAD_SIZE]
    partial_out,  # [num_seqs, num_heads, num_partitions, HEAD_SIZE] fp32: sum of exp2(score - max) * V
    partial_stats,  # [num_seqs, num_heads, num_partitions, 2] fp32: max and sum of the weights
    counters,  # [num_seqs, num_kv_heads] int32: zeros, before and after
    query,  # [num_seqs, num_heads, HEAD_SIZE], rows query_stride apart
    key_cache,  # "nhd" or "hnd": its strides inside a page are constexprs; 8-bit elements come in pairs, as int16
    value_cache,
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    k_scale,  # [1], [num_kv_heads] or [num_blocks, BLOCK_SIZE, num_kv_heads]: by its strides
    v_scale,
    alibi_slopes,  # [num_heads]
    sinks,  # [num_heads]
    scale,
    soft_cap,
    sliding_window,
    num_pages,
    table_stride,
    query_stride,
    key_page_stride,
    value_page_stride,
    k_scale_page,
    k_scale_token,
    k_scale_head,
    v_scale_page,
    v_scale_token,
    v_scale_head,
    GROUP: tl.constexpr,  # query heads per KV head
    ROWS: tl.constexpr,  # rows of a product
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,  # the next power of two
    KV_HEAD: tl.constexpr,  # strides inside a page, in elements of key_cache
    KV_TOKEN: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    TILE_TOKENS: tl.constexpr,
    PARTITION_SIZE: tl.constexpr,
    KIND: tl.constexpr,  # kv_cache_dtype
    HAS_E4M3: tl.constexpr,  # the architecture converts it
    UNIT: tl.constexpr,  # factor of the numbers that quantized elements become
    TOKEN_SCALES: tl.constexpr,
    ALIBI: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    SINKS: tl.constexpr,
    AT_ONCE: tl.constexpr,  # partitions of a head that are combined at once
    NUM_STAGES: tl.constexpr,
    DESCRIPTORS: tl.constexpr,  # a tile is a page, copied by a tensor descriptor
):
    """Attend with the query heads of one KV head over one partition of one sequence."""
    kv_head, seq, partition = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_heads = tl.num_programs(0) * GROUP
    seq_len = tl.load(seq_lens + seq)
    begin, end = tokens_of(partition, seq_len, sliding_window, PARTITION_SIZE, WINDOW)
    rows = tl.arange(0, ROWS)
    heads = kv_head * GROUP + rows
    elements = tl.arange(0, HEAD_PADDED)
    out_row = out + (seq.to(tl.int64) * num_heads + kv_head * GROUP) * HEAD_SIZE  # the first of the group
    if (begin >= end) & (seq_len + partition > 0):  # the first program of a sequence without tokens gives zeros
        return
    PAIR: tl.constexpr = 1 if KIND == "auto" else 2  # elements per column of a tile
    columns = tl.arange(0, HEAD_PADDED // PAIR)
    inside = columns < HEAD_SIZE // PAIR
    tokens = tl.arange(0, TILE_TOKENS)

    # 1. Load the queries of the group, padded with zeros.
    in_query = query + seq.to(tl.int64) * query_stride + heads[:, None] * HEAD_SIZE + columns[None, :] * PAIR
    in_group = (rows < GROUP)[:, None] & inside[None, :]
    q = tl.load(in_query, mask=in_group, other=0.0)
    factor = scale * (1.0 / soft_cap if SOFT_CAP else LOG2_E)
    if KIND != "auto":  # products are in fp16: bring the query to numbers below 2 by a power of two
        q_odd = tl.load(in_query + 1, mask=in_group, other=0.0).to(tl.float32)
        largest = tl.max(tl.maximum(tl.maximum(tl.abs(q.to(tl.float32)), tl.abs(q_odd)), 1e-37), axis=1)
        unit = (largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)[:, None]
        q = (q.to(tl.float32) / unit).to(tl.float16)
        q_odd = (q_odd / unit).to(tl.float16)
        if not TOKEN_SCALES:
            factor *= tl.load(k_scale + kv_head * k_scale_head)
        factor *= UNIT * unit
    if ALIBI:
        slope = tl.load(alibi_slopes + heads, mask=rows < GROUP, other=0.0) * LOG2_E

    table = block_tables + seq.to(tl.int64) * table_stride
    max_score = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([ROWS], dtype=tl.float32)
    value_unit = 1e-37  # the largest scale of a value so far
    acc = tl.zeros([ROWS, HEAD_PADDED // PAIR], dtype=tl.float32)
    acc_odd = acc
    if DESCRIPTORS:
        keys, values = key_cache + kv_head * KV_HEAD, value_cache + kv_head * KV_HEAD
        key_pages = pages_of(keys, num_pages, key_page_stride, KV_TOKEN, BLOCK_SIZE, HEAD_SIZE, HEAD_PADDED)
        value_pages = pages_of(values, num_pages, value_page_stride, KV_TOKEN, BLOCK_SIZE, HEAD_SIZE, HEAD_PADDED)
    for start in tl.range(begin // TILE_TOKENS * TILE_TOKENS, end, TILE_TOKENS, num_stages=NUM_STAGES):
        token = start + tokens
        valid = token < end
        if WINDOW:  # else a partition begins where a tile does
            valid &= token >= begin
        if DESCRIPTORS:
            page = tl.load(table + start // BLOCK_SIZE)
        else:
            block = tl.load(table + token // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
            slot = kv_head * KV_HEAD + token % BLOCK_SIZE * KV_TOKEN

        # 2. Score: [ROWS, TILE_TOKENS], minus infinity outside.
        if DESCRIPTORS:
            key = key_pages.load([page, 0, 0]).reshape(BLOCK_SIZE, HEAD_PADDED)
        else:
            key = tl.load(
                key_cache + (block * key_page_stride + slot)[:, None] + columns[None, :],
                mask=valid[:, None] & inside[None, :],
                other=0,
            )
        if KIND == "auto":
            score = tl.dot(q, tl.trans(key)) * factor
        else:
            even, odd = widen(key, KIND, HAS_E4M3)
            score = tl.dot(q_odd, tl.trans(odd), tl.dot(q, tl.trans(even))) * factor
        if TOKEN_SCALES:
            of_key = block * k_scale_page + token % BLOCK_SIZE * k_scale_token + kv_head * k_scale_head
            score *= tl.load(k_scale + of_key, mask=valid, other=0.0)[None, :]
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

        # 4. Accumulate: [ROWS, HEAD_PADDED // PAIR]. Zero values outside too: an unused slot may hold NaN.
        if DESCRIPTORS:
            value = value_pages.load([page, 0, 0]).reshape(BLOCK_SIZE, HEAD_PADDED)
            value = tl.where(valid[:, None], value, 0.0)
        else:
            value = tl.load(
                value_cache + (block * value_page_stride + slot)[:, None] + columns[None, :],
                mask=valid[:, None] & inside[None, :],
                other=0,
            )
        if TOKEN_SCALES:  # relative to the largest one so far, because a weight becomes a 16-bit number
            of_value = block * v_scale_page + token % BLOCK_SIZE * v_scale_token + kv_head * v_scale_head
            value_scale = tl.load(v_scale + of_value, mask=valid, other=0.0)
            new_unit = tl.maximum(value_unit, tl.max(value_scale, axis=0))
            weight *= (value_scale / new_unit)[None, :]
            rescale *= value_unit / new_unit
            value_unit = new_unit
        if KIND == "auto":
            acc = tl.dot(weight.to(value.dtype), value, acc * rescale[:, None])
        else:
            even, odd = widen(value, KIND, HAS_E4M3)
            acc = tl.dot(weight.to(tl.float16), even, acc * rescale[:, None])
            acc_odd = tl.dot(weight.to(tl.float16), odd, acc_odd * rescale[:, None])

    # 5. With one partition that is the answer; else leave the sums, and the maximum that they were taken under, for the
    #    program that is done last.
    scale_of_values = 1.0
    if KIND != "auto" and not TOKEN_SCALES:
        scale_of_values = tl.load(v_scale + kv_head * v_scale_head)
    unit_of_sums = (UNIT * value_unit if TOKEN_SCALES else UNIT) * scale_of_values
    acc *= unit_of_sums
    acc_odd *= unit_of_sums
    first, last = partitions_of(seq_len, sliding_window, PARTITION_SIZE, WINDOW)
    if last - first <= 1:
        sink = tl.full([ROWS], float("-inf"), dtype=tl.float32)
        if SINKS:
            sink = tl.load(sinks + heads, mask=rows < GROUP, other=0.0) * LOG2_E
        in_out = out_row + rows[:, None] * HEAD_SIZE + columns[None, :] * PAIR
        per_value = tl.where(seq_len > 0, average(1.0, total, max_score, sink), 0.0)[:, None]
        tl.store(in_out, (acc * per_value).to(out.dtype.element_ty), mask=in_group)
        if KIND != "auto":
            tl.store(in_out + 1, (acc_odd * per_value).to(out.dtype.element_ty), mask=in_group)
    else:
        first_place = (seq.to(tl.int64) * num_heads + kv_head * GROUP) * tl.num_programs(2)
        place = first_place + rows * tl.num_programs(2) + partition
        tl.store(partial_stats + place * 2, max_score, mask=rows < GROUP)
        tl.store(partial_stats + place * 2 + 1, total, mask=rows < GROUP)
        in_partial = partial_out + place[:, None] * HEAD_SIZE + columns[None, :] * PAIR
        tl.store(in_partial, acc, mask=in_group)
        if KIND != "auto":
            tl.store(in_partial + 1, acc_odd, mask=in_group)

        # 6. Reduce over the partitions, a head at a time.
        if last_to_arrive(counters + seq * tl.num_programs(0) + kv_head, last - first):
            for row in tl.range(0, GROUP, num_stages=1):
                place_of_head = first_place + row * tl.num_programs(2)
                sums, stats = partial_out + place_of_head * HEAD_SIZE, partial_stats + place_of_head * 2
                head_sink = tl.load(sinks + kv_head * GROUP + row) * LOG2_E if SINKS else float("-inf")
                answer = combine_partitions(sums, stats, first, last, head_sink, HEAD_SIZE, HEAD_PADDED, AT_ONCE)
                in_row = out_row + row * HEAD_SIZE + elements
                tl.store(in_row, answer.to(out.dtype.element_ty), mask=elements < HEAD_SIZE)


_PARTITION_SIZES = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
_REGISTERS = 168  # registers of a thread with the default tiles


def _types(problem: PagedAttentionProblem) -> dict[str, str]:
    found = types(problem)
    if problem.quantized:
        found |= dict.fromkeys(("key_cache", "value_cache"), "*i16")
        found |= dict.fromkeys(("key_page_stride", "value_page_stride"), "i64:8")
    return found


def constexprs(config: Config, problem: PagedAttentionProblem) -> dict[str, Any]:
    """Return the constexprs of the kernel beside its tunables."""
    strides = head_and_strides(problem, config["BLOCK_SIZE"])
    pair = 2 if problem.quantized else 1
    return of_tiles(config, problem) | {
        "ROWS": 16,
        "HEAD_SIZE": strides["HEAD_SIZE"],
        "HEAD_PADDED": strides["HEAD_PADDED"],
        "KV_HEAD": strides["VALUE_HEAD"] // pair,
        "KV_TOKEN": strides["VALUE_TOKEN"] // pair,
        "KIND": problem.kv_cache_dtype,
        "HAS_E4M3": has_e4m3(problem),
        "UNIT": unit_of(problem),
        "DESCRIPTORS": False,
    }


def _paired(cache: torch.Tensor, problem: PagedAttentionProblem) -> torch.Tensor:
    """Return 8-bit elements as pairs of int16, other elements unchanged."""
    return cache.view(torch.int16) if problem.quantized else cache


_IN_PAIRS: Arguments = {
    "num_pages": lambda config, problem, tensors: tensors.key_cache.shape[0],
    "key_cache": lambda config, problem, tensors: _paired(tensors.key_cache, problem),
    "value_cache": lambda config, problem, tensors: _paired(tensors.value_cache, problem),
    "key_page_stride": lambda config, problem, tensors: _paired(tensors.key_cache, problem).stride(0),
    "value_page_stride": lambda config, problem, tensors: _paired(tensors.value_cache, problem).stride(0),
}


def default_config(problem: PagedAttentionProblem) -> dict:
    """Return 64-token tiles, or 32-token ones for a large head, and partitions that end together.

    A copy waits for its entry of the block table, so a tile ahead takes two stages: with five stages two tiles are
    ahead.
    """
    tile = 64 if problem.head_size <= 128 else 32
    config = {"BLOCK_SIZE": problem.page, "TILE_TOKENS": tile, "num_warps": 4, "num_stages": 5}
    config |= {"PARTITION_SIZE": max(_PARTITION_SIZES)}
    resident = footprint(config, problem).resident(problem.arch)
    return config | {"PARTITION_SIZE": balanced_partition_size(problem, _PARTITION_SIZES, resident=resident)}


def footprint(config: Config, problem: PagedAttentionProblem) -> Footprint:
    """Return the footprint of a program; in flight are the tiles ahead of the one that is computed, keys and values."""
    row_bytes = problem.head_size * problem.cache_itemsize
    ahead = max((config["num_stages"] - 1) // 2, 1)
    return Footprint(
        blocks=partition_blocks(config, problem, problem.num_kv_heads),
        threads=32 * config["num_warps"],
        registers=_REGISTERS,
        shared_bytes=shared_bytes(config, problem),
        bytes_in_flight=2 * row_bytes * min(ahead * config["TILE_TOKENS"], config["PARTITION_SIZE"]),
    )


def shared_bytes(config: Config, problem: PagedAttentionProblem) -> int:
    """Return an upper bound of Triton's shared memory: tiles of K and V, queries, and room to exchange weights."""
    size = next_power_of_2(problem.head_size)
    buffers = max((config["num_stages"] - 1) // 2, 1)
    tiles = 2 * config["TILE_TOKENS"] * size * problem.cache_itemsize
    return buffers * tiles + 32 * size + 4096 * config["num_warps"]


RESTRICTIONS = rules(
    PAGE_SIZE,
    GROUP,
    POWERS_OF_TWO,
    WHOLE_TILES,
    (
        "products",
        "TILE_TOKENS >= 16 and 32 // cache_itemsize <= head_size <= 256",
        "head_size >= 16, of a quantized cache 32",
    ),
    ("whole 16-byte steps", "head_size % 8 == 0"),
    TILE_IN_REGISTERS,
    shared_memory(
        shared_bytes,
        "max((num_stages - 1) // 2, 1) * 2 * TILE_TOKENS * P * sizeof(cache element) + 32 * P + 4096 * num_warps,"
        " with P = next_power_of_2(head_size),",
    ),
    PARTITIONS,
    GRID,
)

VARIANT = TritonVariant(
    op="paged_attention",
    name="triton_grouped",
    idea="a program per KV head and partition: its query heads padded to the 16 rows of a product",
    steps=(
        TritonStep(
            function=paged_attention_grouped,
            grid=lambda config, problem: (problem.num_kv_heads, problem.num_seqs, num_partitions(config, problem)),
            types=_types,
            constexprs=constexprs,
            arguments=ARGUMENTS | never_none(FEATURES | SCALES_OR_ONE) | SCALE_PLACES | _IN_PAIRS,
        ),
    ),
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
    features=("alibi", "sliding_window", "soft_cap", "sinks", "fp8_e4m3", "fp8_e5m2", "int8", "token_scales"),
    defaults=default_config,
    footprint=footprint,
    workspace=partials,
)
