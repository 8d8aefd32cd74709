# mypy: allow-untyped-defs, allow-incomplete-defs
"""A program per query head, sequence and partition of the sequence; the last one combines the partitions: in Triton.

The idea is that of ``cuda_src/paged_attention_partitioned.cu``: PARTITION_SIZE *tokens* per program, so that one long
sequence fills the GPU; fp32 partial results with their maximum; a reduction. Inside a program the steps are those of
``triton_online_softmax``, repeated here so that each kernel can be read from its first step to its last beside the CUDA
kernel. Bytes that must move are those of ``cuda_partitioned``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.cache_problem import SCALES_OR_ONE, never_none
from workbench.attention.ops.paged_attention.problem import ARGUMENTS, PagedAttentionProblem
from workbench.attention.ops.paged_attention.rules import (
    GRID,
    PAGE_SIZE,
    PARTITIONS,
    WHOLE_TILES,
    longest_partitions,
    num_partitions,
    partition_blocks,
)
from workbench.attention.ops.paged_attention.triton_reduction import (
    LOG2_E,
    finish_partition,
    tokens_of,
)
from workbench.attention.ops.paged_attention.triton_tiles import (
    FEATURES,
    FP8_SUPPORT,
    PARTITIONS_SPACE,
    POWERS_OF_TWO,
    TILE_IN_REGISTERS,
    TILE_IN_SHARED_MEMORY,
    in_pages,
    tiles_footprint,
    types,
)
from workbench.attention.ops.paged_attention.workspace import partials
from workbench.attention.ops.rules import default_tile
from workbench.ops import Config, Footprint, TritonStep, TritonVariant


@triton.jit
def paged_attention_partition(
    out,  # [num_seqs, num_heads, HEAD_SIZE]
    partial_out,  # [num_seqs, num_heads, num_partitions, HEAD_SIZE] fp32: sum of exp2(score - max) * V
    partial_stats,  # [num_seqs, num_heads, num_partitions, 2] fp32: max and sum of the weights
    counters,  # [num_seqs, num_heads] int32: zeros, before and after
    query,  # [num_seqs, num_heads, HEAD_SIZE], rows query_stride apart
    key_cache,  # any layout: its strides inside a page are constexprs
    value_cache,
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    alibi_slopes,  # [num_heads]
    sinks,  # [num_heads]
    scale,
    soft_cap,
    sliding_window,
    table_stride,
    query_stride,
    key_page_stride,
    value_page_stride,
    k_scale,  # of a quantized cache; that of (slot, KV head) stands at slot * slot_stride + head * head_stride
    v_scale,
    k_slot_stride,
    k_head_stride,
    v_slot_stride,
    v_head_stride,
    GROUP: tl.constexpr,  # query heads per KV head
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,  # the next power of two
    X: tl.constexpr,  # elements of a key that lie side by side
    KEY_HEAD: tl.constexpr,  # strides inside a page, in elements
    KEY_TOKEN: tl.constexpr,
    KEY_X: tl.constexpr,  # from one group of X elements to the next
    VALUE_HEAD: tl.constexpr,
    VALUE_TOKEN: tl.constexpr,
    VALUE_ELEMENT: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    TILE_TOKENS: tl.constexpr,
    PARTITION_SIZE: tl.constexpr,
    QUANTIZED: tl.constexpr,
    TOKEN_SCALES: tl.constexpr,  # True if a slot stride may be other than 0
    ALIBI: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    SINKS: tl.constexpr,
    AT_ONCE: tl.constexpr,  # partitions of a head that are combined at once
    NUM_STAGES: tl.constexpr,
):
    """Attend with one query head over one partition of one sequence."""
    head, seq, partition = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = head // GROUP
    seq_len = tl.load(seq_lens + seq)
    begin, end = tokens_of(partition, seq_len, sliding_window, PARTITION_SIZE, WINDOW)
    elements = tl.arange(0, HEAD_PADDED)
    inside = elements < HEAD_SIZE
    row_of_all = seq.to(tl.int64) * tl.num_programs(0) + head
    if begin >= end:
        none = tl.zeros([HEAD_PADDED], dtype=out.dtype.element_ty)
        tl.store(out + row_of_all * HEAD_SIZE + elements, none, mask=inside & (seq_len == 0) & (partition == 0))
        return
    PAGES: tl.constexpr = TILE_TOKENS // BLOCK_SIZE if TILE_TOKENS > BLOCK_SIZE else 1
    SLOTS: tl.constexpr = TILE_TOKENS // PAGES
    pages = tl.arange(0, PAGES)
    slots = tl.arange(0, SLOTS)

    # 1. Load the query once, in fp32, with every factor of a score folded in.
    factor = scale * (1.0 / soft_cap if SOFT_CAP else LOG2_E)
    if QUANTIZED and not TOKEN_SCALES:
        factor *= tl.load(k_scale + kv_head * k_head_stride)
    row = query + seq.to(tl.int64) * query_stride + head * HEAD_SIZE
    q = tl.load(row + elements, mask=inside, other=0.0).to(tl.float32) * factor
    sink = tl.load(sinks + head) * LOG2_E if SINKS else float("-inf")
    value_scale = tl.load(v_scale + kv_head * v_head_stride) if QUANTIZED and not TOKEN_SCALES else 1.0

    table = block_tables + seq.to(tl.int64) * table_stride
    max_score = float("-inf")
    total = 0.0
    acc = tl.zeros([HEAD_PADDED], dtype=tl.float32)
    for start in tl.range(begin // TILE_TOKENS * TILE_TOKENS, end, TILE_TOKENS, num_stages=NUM_STAGES):
        first = start + pages * BLOCK_SIZE
        needed = (first < end) & (first + BLOCK_SIZE > begin)
        block = tl.load(table + first // BLOCK_SIZE, mask=needed, other=0).to(tl.int64)
        slot = slots if TILE_TOKENS >= BLOCK_SIZE else tl.multiple_of(start % BLOCK_SIZE, TILE_TOKENS) + slots
        token = start + (pages * BLOCK_SIZE)[:, None] + slots[None, :]
        valid = (token >= begin) & (token < end)

        # 2. Score: [PAGES, SLOTS], minus infinity outside.
        offset = block[:, None] * key_page_stride + kv_head * KEY_HEAD + slot[None, :] * KEY_TOKEN
        element = elements // X * KEY_X + elements % X
        key = tl.load(
            key_cache + offset[:, :, None] + element[None, None, :],
            mask=valid[:, :, None] & inside[None, None, :],
            other=0.0,
        )
        score = tl.sum(key.to(tl.float32) * q[None, None, :], axis=2)
        if TOKEN_SCALES:
            place = block[:, None] * BLOCK_SIZE + slot[None, :]
            score *= tl.load(k_scale + place * k_slot_stride + kv_head * k_head_stride, mask=valid, other=1.0)
        if SOFT_CAP:  # tanh by its definition
            score = soft_cap * LOG2_E * (1.0 - 2.0 / (1.0 + tl.exp2(2.0 * LOG2_E * score)))
        if ALIBI:
            score += tl.load(alibi_slopes + head) * LOG2_E * (token - (seq_len - 1))
        score = tl.where(valid, score, float("-inf"))

        # 3. Rescale what was summed under the old maximum.
        new_max = tl.maximum(max_score, tl.max(tl.max(score, axis=1), axis=0))
        rescale = tl.exp2(max_score - new_max)
        weight = tl.exp2(score - new_max)
        total = total * rescale + tl.sum(tl.sum(weight, axis=1), axis=0)
        max_score = new_max

        # 4. Accumulate: [PAGES, HEAD_PADDED, SLOTS]. Zero values outside too: an unused slot may hold NaN.
        offset = block[:, None] * value_page_stride + kv_head * VALUE_HEAD + elements[None, :] * VALUE_ELEMENT
        value = tl.load(
            value_cache + offset[:, :, None] + (slot * VALUE_TOKEN)[None, None, :],
            mask=needed[:, None, None] & inside[None, :, None],
            other=0.0,
        )
        value = tl.where(valid[:, None, :], value.to(tl.float32), 0.0)
        if TOKEN_SCALES:
            weight *= tl.load(v_scale + place * v_slot_stride + kv_head * v_head_stride, mask=valid, other=1.0)
        acc = acc * rescale + tl.sum(tl.sum(value * weight[:, None, :], axis=0), axis=1)

    # 5. Reduce: with one partition that is the answer; else the program that is done last combines all of them.
    acc *= value_scale
    finish_partition(
        acc, elements, inside, total, max_score, sink, out, partial_out, partial_stats, counters, row_of_all,
        partition, seq_len, sliding_window, HEAD_SIZE, HEAD_PADDED, PARTITION_SIZE, WINDOW, AT_ONCE,
    )  # fmt: skip


def default_config(problem: PagedAttentionProblem) -> dict:
    """Return the longest partitions that still give every multiprocessor its programs, and tiles as without a split."""
    return {
        "BLOCK_SIZE": problem.page,
        "TILE_TOKENS": default_tile(problem),
        "PARTITION_SIZE": longest_partitions(problem),
        "num_warps": 4,
        "num_stages": 2,
    }


def _footprint(config: Config, problem: PagedAttentionProblem) -> Footprint:
    return tiles_footprint(config, problem, partition_blocks(config, problem, problem.num_heads))


RESTRICTIONS = (
    PAGE_SIZE,
    POWERS_OF_TWO,
    WHOLE_TILES,
    TILE_IN_REGISTERS,
    TILE_IN_SHARED_MEMORY,
    FP8_SUPPORT,
    PARTITIONS,
    GRID,
)

VARIANT = TritonVariant(
    op="paged_attention",
    name="triton_partitioned",
    idea="a program per partition of the sequence, online softmax over tiles; the last program combines them",
    steps=(
        TritonStep(
            function=paged_attention_partition,
            grid=lambda config, problem: (problem.num_heads, problem.num_seqs, num_partitions(config, problem)),
            types=types,
            constexprs=in_pages,
            arguments=ARGUMENTS | SCALES_OR_ONE | never_none(FEATURES),
        ),
    ),
    space=PARTITIONS_SPACE,
    restrictions=RESTRICTIONS,
    layouts=("x", "nhd", "hnd"),
    dtypes=("float32", "float16", "bfloat16"),
    features=("alibi", "sliding_window", "soft_cap", "sinks", "fp8_e4m3", "fp8_e5m2", "int8", "token_scales"),
    defaults=default_config,
    footprint=_footprint,
    workspace=partials,
)
