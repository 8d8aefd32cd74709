# mypy: allow-untyped-defs, allow-incomplete-defs
"""A program per query head, sequence and partition over NVFP4, a tile of groups at a time: in Triton.

The idea is that of ``cuda_src/paged_attention_scaled_groups.cu``: the scale of a key's group multiplies the sum of its
16 products, that of a value's group the weight. Elements come two in a byte; even and odd ones have a product and a sum
each, with the even and the odd part of the query.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from workbench.attention.cache_formats.nvfp4 import GROUP, LAYOUTS
from workbench.attention.ops.cache_problem import SCALES_OR_ONE, never_none
from workbench.attention.ops.paged_attention.problem import ARGUMENTS, PagedAttentionProblem
from workbench.attention.ops.paged_attention.rules import (
    GRID,
    PAGE_SIZE,
    PARTITIONS,
    num_partitions,
    partition_blocks,
)
from workbench.attention.ops.paged_attention.triton_partitioned import default_config
from workbench.attention.ops.paged_attention.triton_reduction import (
    LOG2_E,
    finish_partition,
    partitions_at_once,
    tokens_of,
)
from workbench.attention.ops.paged_attention.triton_tiles import FEATURES, PARTITIONS_SPACE
from workbench.attention.ops.paged_attention.workspace import partials
from workbench.attention.ops.reshape_and_cache.triton_four_bits import has_e2m1, scale_of, unit_of, widen
from workbench.attention.ops.rules import rules, tile_in_registers
from workbench.attention.ops.scaled_groups import BYTES_OF_A_GROUP, TRITON_TYPES, WHOLE_GROUPS, group_constexprs
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, Footprint, TritonStep, TritonVariant, next_power_of_2


@triton.jit
def paged_attention_scaled_groups(
    out,  # [num_seqs, num_heads, HEAD_SIZE]
    partial_out,  # [num_seqs, num_heads, num_partitions, HEAD_SIZE] fp32: sum of exp2(score - max) * V
    partial_stats,  # [num_seqs, num_heads, num_partitions, 2] fp32: max and sum of the weights
    counters,  # [num_seqs, num_heads] int32: zeros, before and after
    query,  # [num_seqs, num_heads, HEAD_SIZE], rows query_stride apart
    key_cache,  # bytes; the groups of a page, then their scales
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
    k_scale,  # that of a KV head stands at head * head_stride
    v_scale,
    k_head_stride,
    v_head_stride,
    GROUP: tl.constexpr,  # query heads per KV head
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,  # the next power of two
    GROUPS: tl.constexpr,  # of a head
    GROUPS_PADDED: tl.constexpr,
    HEAD_GROUPS: tl.constexpr,  # groups from one KV head to the next, from one token to the next, and of a page
    TOKEN_GROUPS: tl.constexpr,
    PAGE_GROUPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    TILE_TOKENS: tl.constexpr,
    PARTITION_SIZE: tl.constexpr,
    ALIBI: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    SINKS: tl.constexpr,
    AT_ONCE: tl.constexpr,  # partitions of a head that are combined at once
    UNIT: tl.constexpr,  # of the elements
    HAS_E2M1: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Attend with one query head over one partition of one sequence."""
    head, seq, partition = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = head // GROUP
    seq_len = tl.load(seq_lens + seq)
    begin, end = tokens_of(partition, seq_len, sliding_window, PARTITION_SIZE, WINDOW)
    elements = tl.arange(0, HEAD_PADDED)
    row_of_all = seq.to(tl.int64) * tl.num_programs(0) + head
    if begin >= end:
        none = tl.zeros([HEAD_PADDED], dtype=out.dtype.element_ty)
        empty = (elements < HEAD_SIZE) & (seq_len == 0) & (partition == 0)
        tl.store(out + row_of_all * HEAD_SIZE + elements, none, mask=empty)
        return
    groups = tl.arange(0, GROUPS_PADDED)
    pair = tl.arange(0, 8)
    inside = elements < HEAD_SIZE

    # 1. Load the query once, in fp32, with every factor of a score folded in; take even and odd elements apart.
    factor = scale * UNIT * tl.load(k_scale + kv_head * k_head_stride) * (1.0 / soft_cap if SOFT_CAP else LOG2_E)
    row = query + seq.to(tl.int64) * query_stride + head * HEAD_SIZE
    q = tl.load(row + elements, mask=inside, other=0.0).to(tl.float32) * factor
    q_even, q_odd = tl.split(tl.reshape(q, [GROUPS_PADDED, 8, 2]))
    sink = tl.load(sinks + head) * LOG2_E if SINKS else float("-inf")
    value_scale = tl.load(v_scale + kv_head * v_head_stride) * UNIT

    table = block_tables + seq.to(tl.int64) * table_stride
    max_score = float("-inf")
    total = 0.0
    acc_even = tl.zeros([GROUPS_PADDED, 8], dtype=tl.float32)
    acc_odd = tl.zeros([GROUPS_PADDED, 8], dtype=tl.float32)
    for start in tl.range(begin, end, TILE_TOKENS, num_stages=NUM_STAGES):
        token = start + tl.arange(0, TILE_TOKENS)
        valid = token < end
        block = tl.load(table + token // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
        index = kv_head * HEAD_GROUPS + (token % BLOCK_SIZE * TOKEN_GROUPS)[:, None] + groups[None, :]
        mask = valid[:, None] & (groups < GROUPS)[None, :]
        place = index[:, :, None] * 8 + pair[None, None, :]

        # 2. Score: [TILE_TOKENS], minus infinity past the end.
        page = (block * key_page_stride)[:, None]
        codes = tl.load(key_cache + page[:, :, None] + place, mask=mask[:, :, None], other=0)
        group_scale = scale_of(tl.load(key_cache + page + 8 * PAGE_GROUPS + index, mask=mask, other=0))
        key_even, key_odd = widen(codes, HAS_E2M1)
        products = tl.sum(key_even * q_even[None, :, :] + key_odd * q_odd[None, :, :], axis=2)
        score = tl.sum(products * group_scale, axis=1)
        if SOFT_CAP:  # tanh by its definition
            score = soft_cap * LOG2_E * (1.0 - 2.0 / (1.0 + tl.exp2(2.0 * LOG2_E * score)))
        if ALIBI:
            score += tl.load(alibi_slopes + head) * LOG2_E * (token - (seq_len - 1))
        score = tl.where(valid, score, float("-inf"))

        # 3. Rescale what was summed under the old maximum.
        new_max = tl.maximum(max_score, tl.max(score, axis=0))
        rescale = tl.exp2(max_score - new_max)
        weight = tl.exp2(score - new_max)
        total = total * rescale + tl.sum(weight, axis=0)
        max_score = new_max

        # 4. Accumulate: [GROUPS_PADDED, 8] twice. Past the end elements and scales are 0: an unused slot may hold NaN.
        page = (block * value_page_stride)[:, None]
        codes = tl.load(value_cache + page[:, :, None] + place, mask=mask[:, :, None], other=0)
        group_scale = scale_of(tl.load(value_cache + page + 8 * PAGE_GROUPS + index, mask=mask, other=0))
        value_even, value_odd = widen(codes, HAS_E2M1)
        scaled_weight = (weight[:, None] * group_scale)[:, :, None]
        acc_even = acc_even * rescale + tl.sum(value_even * scaled_weight, axis=0)
        acc_odd = acc_odd * rescale + tl.sum(value_odd * scaled_weight, axis=0)

    # 5. Reduce: with one partition that is the answer; else the program that is done last combines all of them.
    acc = tl.reshape(tl.join(acc_even, acc_odd), [HEAD_PADDED]) * value_scale
    finish_partition(
        acc, elements, inside, total, max_score, sink, out, partial_out, partial_stats, counters, row_of_all,
        partition, seq_len, sliding_window, HEAD_SIZE, HEAD_PADDED, PARTITION_SIZE, WINDOW, AT_ONCE,
    )  # fmt: skip


_REGISTERS = 128
"""Largest number of registers of a thread with the default tiles."""


def _types(problem: PagedAttentionProblem) -> dict[str, str]:
    scalar = ELEMENT_TYPES[problem.dtype].triton
    return TRITON_TYPES | {"out": f"*{scalar}", "query": f"*{scalar}:1"}


def _constexprs(config: Config, problem: PagedAttentionProblem) -> dict[str, Any]:
    return {
        **group_constexprs(config, problem),
        "GROUP": problem.group,
        "HEAD_PADDED": next_power_of_2(problem.head_size),
        "ALIBI": "alibi" in problem.features,
        "WINDOW": "sliding_window" in problem.features,
        "SOFT_CAP": "soft_cap" in problem.features,
        "SINKS": "sinks" in problem.features,
        "AT_ONCE": partitions_at_once(problem.head_size, config["num_warps"]),
        "UNIT": unit_of(problem.arch),
        "HAS_E2M1": has_e2m1(problem.arch),
        "NUM_STAGES": config["num_stages"],
    }


RESTRICTIONS = rules(
    PAGE_SIZE,
    WHOLE_GROUPS,
    ("powers of two", "is_power_of_two(TILE_TOKENS) and is_power_of_two(num_warps) and num_warps <= 32"),
    ("offsets inside a page", "BLOCK_SIZE * num_kv_heads * head_size < 2**31", "elements, as 32-bit numbers"),
    tile_in_registers(128),
    PARTITIONS,
    GRID,
)


def _footprint(config: Config, problem: PagedAttentionProblem) -> Footprint:
    """Return the footprint of a program; in flight are the tiles that are copied ahead, or the one that is loaded."""
    ahead = max(2 * (config["num_stages"] - 1), 1)
    tile = config["TILE_TOKENS"] * problem.head_size // GROUP * BYTES_OF_A_GROUP
    blocks = partition_blocks(config, problem, problem.num_heads)
    return Footprint(
        blocks, 32 * config["num_warps"], _REGISTERS, ahead * tile + 2048 * config["num_warps"], ahead * tile
    )


VARIANT = TritonVariant(
    op="paged_attention",
    name="triton_scaled_groups",
    idea="nvfp4: a program per partition of the sequence, tiles of groups, even and odd elements apart",
    steps=(
        TritonStep(
            function=paged_attention_scaled_groups,
            grid=lambda config, problem: (problem.num_heads, problem.num_seqs, num_partitions(config, problem)),
            types=_types,
            constexprs=_constexprs,
            arguments=ARGUMENTS | SCALES_OR_ONE | never_none(FEATURES),
        ),
    ),
    space=PARTITIONS_SPACE,
    restrictions=RESTRICTIONS,
    layouts=LAYOUTS,
    dtypes=("float32", "float16", "bfloat16"),
    needs=("nvfp4",),
    features=("alibi", "sliding_window", "soft_cap", "sinks"),
    defaults=default_config,
    footprint=_footprint,
    workspace=partials,
)
