# mypy: allow-untyped-defs, allow-incomplete-defs
"""FlashAttention-2 backward in Triton: scores again from lse, tile by tile, no atomic operation.

Three kernels. A program of the second has a tile of keys and values. It iterates over the queries that see the tile, of
every query head of the group, and adds up their gradients in registers. A program of the third has a tile of queries
and iterates over the tokens that they see.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl

from workbench.attention.ops.causal_attention.problem import GRID, ROWS, STRIDES, WHOLE_STEPS, CausalAttentionProblem
from workbench.attention.ops.causal_attention.triton_rows import (
    LENGTHS,
    LOG2_E,
    PRODUCTS,
    WARPS,
    constexprs,
    lengths_of,
    load_rows,
    store_rows,
    types,
)
from workbench.attention.ops.causal_attention_backward.tensors import CausalAttentionBackwardTensors
from workbench.attention.ops.rules import rules, shared_limit, shared_memory
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, Size, TritonStep, TritonVariant, cdiv, next_power_of_2


@triton.jit
def causal_attention_delta(
    delta,  # [num_seqs, num_heads, num_queries] fp32: sum of output * d_output, less d_lse
    output,  # [num_seqs, num_heads, num_queries, HEAD_SIZE]
    d_output,  # as output
    d_lse,  # [num_seqs, num_heads, num_queries]
    query_lens,
    seq_lens,
    num_queries,
    num_tokens,
    LENGTHS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """Compute delta, one number for each query: the sum of output * d_output, less d_lse."""
    head, seq = tl.program_id(1), tl.program_id(2)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    query_len, _ = lengths_of(seq, query_lens, seq_lens, num_queries, num_tokens, LENGTHS)
    place = (seq.to(tl.int64) * tl.num_programs(1) + head) * num_queries
    o = load_rows(output + place * HEAD_SIZE, row, HEAD_SIZE, query_len, False, HEAD_SIZE, HEAD_PADDED)
    d_o = load_rows(d_output + place * HEAD_SIZE, row, HEAD_SIZE, query_len, False, HEAD_SIZE, HEAD_PADDED)
    found = tl.sum(o.to(tl.float32) * d_o.to(tl.float32), axis=1)
    found -= tl.load(d_lse + place + row, mask=row < query_len, other=0.0)
    tl.store(delta + place + row, found, mask=row < query_len)


@triton.jit
def causal_attention_d_key_value(
    d_key,  # [num_seqs, num_heads / group, num_tokens, HEAD_SIZE]
    d_value,  # as d_key
    query,  # [num_seqs, num_heads, num_queries, HEAD_SIZE], by its strides
    key,  # [num_seqs, num_heads / group, num_tokens, HEAD_SIZE], by its strides
    value,  # as key
    d_output,  # [num_seqs, num_heads, num_queries, HEAD_SIZE]
    lse,  # [num_seqs, num_heads, num_queries]
    delta,  # as lse
    query_lens,  # [num_seqs]
    seq_lens,  # [num_seqs]
    scale,
    num_queries,
    num_tokens,
    group,  # query heads per KV head
    query_seq_stride,
    query_head_stride,
    query_token_stride,
    key_seq_stride,
    key_head_stride,
    key_token_stride,
    value_seq_stride,
    value_head_stride,
    value_token_stride,
    LENGTHS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,  # the next power of two
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Compute the gradients of BLOCK_N keys and values of one KV head of one sequence."""
    kv_head, seq = tl.program_id(1), tl.program_id(2)
    start = tl.program_id(0) * BLOCK_N
    query_len, seq_len = lengths_of(seq, query_lens, seq_lens, num_queries, num_tokens, LENGTHS)
    token = start + tl.arange(0, BLOCK_N)
    past = seq_len - query_len  # tokens before the first query

    # 1. Load keys and values, zeros past the end.
    keys = key + seq * key_seq_stride + kv_head * key_head_stride
    values = value + seq * value_seq_stride + kv_head * value_head_stride
    k = load_rows(keys, token, key_token_stride, seq_len, False, HEAD_SIZE, HEAD_PADDED)
    v = load_rows(values, token, value_token_stride, seq_len, False, HEAD_SIZE, HEAD_PADDED)

    d_k = tl.zeros([BLOCK_N, HEAD_PADDED], dtype=tl.float32)
    d_v = tl.zeros([BLOCK_N, HEAD_PADDED], dtype=tl.float32)
    first = tl.maximum(start - past, 0) // BLOCK_M * BLOCK_M  # the first tile with a query that sees one of the tokens
    last = tl.where(start < seq_len, query_len, 0)
    for head in range(kv_head * group, kv_head * group + group):
        queries = query + seq * query_seq_stride + head * query_head_stride
        place = (seq.to(tl.int64) * tl.num_programs(1) * group + head) * num_queries
        for first_row in tl.range(first, last, BLOCK_M, num_stages=NUM_STAGES):
            row = first_row + tl.arange(0, BLOCK_M)
            valid = row < query_len

            # 2. Weights again: [BLOCK_N, BLOCK_M], exactly zero for later tokens and padding.
            q = load_rows(queries, row, query_token_stride, query_len, False, HEAD_SIZE, HEAD_PADDED)
            log_sum = tl.load(lse + place + row, mask=valid, other=0.0) * LOG2_E
            weight = tl.exp2(tl.dot(k, tl.trans(q)) * (scale * LOG2_E) - log_sum[None, :])
            weight = tl.where((token[:, None] <= (past + row)[None, :]) & valid[None, :], weight, 0.0)

            # 3. Accumulate.
            d_o = load_rows(d_output + place * HEAD_SIZE, row, HEAD_SIZE, query_len, False, HEAD_SIZE, HEAD_PADDED)
            d_v = tl.dot(weight.to(d_o.dtype), d_o, d_v)
            d_weight = tl.dot(v, tl.trans(d_o))
            d_score = weight * (d_weight - tl.load(delta + place + row, mask=valid, other=0.0)[None, :])
            d_k = tl.dot(d_score.to(q.dtype), q, d_k)

    place = (seq.to(tl.int64) * tl.num_programs(1) + kv_head) * num_tokens * HEAD_SIZE
    store_rows(d_key + place, token, num_tokens, d_k * scale, HEAD_SIZE, HEAD_PADDED)
    store_rows(d_value + place, token, num_tokens, d_v, HEAD_SIZE, HEAD_PADDED)


@triton.jit
def causal_attention_d_query(
    d_query,  # [num_seqs, num_heads, num_queries, HEAD_SIZE]
    query,  # as d_query, by its strides
    key,  # [num_seqs, num_heads / group, num_tokens, HEAD_SIZE], by its strides
    value,  # as key
    d_output,  # [num_seqs, num_heads, num_queries, HEAD_SIZE]
    lse,  # [num_seqs, num_heads, num_queries]
    delta,  # as lse
    query_lens,  # [num_seqs]
    seq_lens,  # [num_seqs]
    scale,
    num_queries,
    num_tokens,
    group,  # query heads per KV head
    query_seq_stride,
    query_head_stride,
    query_token_stride,
    key_seq_stride,
    key_head_stride,
    key_token_stride,
    value_seq_stride,
    value_head_stride,
    value_token_stride,
    LENGTHS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,  # the next power of two
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Compute the gradients of BLOCK_M queries of one head of one sequence."""
    head, seq = tl.program_id(1), tl.program_id(2)
    first_row = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M  # the programs with most to do come first
    query_len, seq_len = lengths_of(seq, query_lens, seq_lens, num_queries, num_tokens, LENGTHS)
    row = first_row + tl.arange(0, BLOCK_M)
    valid = row < query_len
    position = seq_len - query_len + row
    place = (seq.to(tl.int64) * tl.num_programs(1) + head) * num_queries

    # 1. Load queries with their gradients and row statistics, zeros for padding.
    queries = query + seq * query_seq_stride + head * query_head_stride
    q = load_rows(queries, row, query_token_stride, query_len, False, HEAD_SIZE, HEAD_PADDED)
    d_o = load_rows(d_output + place * HEAD_SIZE, row, HEAD_SIZE, query_len, False, HEAD_SIZE, HEAD_PADDED)
    log_sum = tl.load(lse + place + row, mask=valid, other=0.0) * LOG2_E
    of_row = tl.load(delta + place + row, mask=valid, other=0.0)
    keys = key + seq * key_seq_stride + head // group * key_head_stride
    values = value + seq * value_seq_stride + head // group * value_head_stride

    d_q = tl.zeros([BLOCK_M, HEAD_PADDED], dtype=tl.float32)
    end = tl.minimum(seq_len - query_len + first_row + BLOCK_M, seq_len)
    end = tl.where(first_row < query_len, end, 0)
    for start in tl.range(0, end, BLOCK_N, num_stages=NUM_STAGES):
        token = start + tl.arange(0, BLOCK_N)

        # 2. Weights again: [BLOCK_M, BLOCK_N], exactly zero for later tokens and padding.
        k = load_rows(keys, token, key_token_stride, end, False, HEAD_SIZE, HEAD_PADDED)
        weight = tl.exp2(tl.dot(q, tl.trans(k)) * (scale * LOG2_E) - log_sum[:, None])
        weight = tl.where((token[None, :] <= position[:, None]) & valid[:, None], weight, 0.0)

        # 3. Accumulate.
        v = load_rows(values, token, value_token_stride, end, False, HEAD_SIZE, HEAD_PADDED)
        d_score = weight * (tl.dot(d_o, tl.trans(v)) - of_row[:, None])
        d_q = tl.dot(d_score.to(k.dtype), k, d_q)

    store_rows(d_query + place * HEAD_SIZE, row, num_queries, d_q * scale, HEAD_SIZE, HEAD_PADDED)


def _types(problem: CausalAttentionProblem) -> dict[str, str]:
    scalar = f"*{ELEMENT_TYPES[problem.dtype].triton}"
    return {**types(problem), **dict.fromkeys(("d_output", "d_query", "d_key", "d_value"), scalar)}


def _delta(config: Config, problem: CausalAttentionProblem, tensors: CausalAttentionBackwardTensors) -> SimpleNamespace:
    return SimpleNamespace(delta=torch.empty_like(tensors.lse))


def _shared_bytes(config: Config, problem: CausalAttentionProblem) -> int:
    """Return the bytes of tiles that stay, of tiles in the compiler's pipeline, and of weights that change form."""
    longer = max(config["BLOCK_M"], config["BLOCK_N"])
    rows = 2 * longer * (config["num_stages"] + 1)
    return rows * next_power_of_2(problem.head_size) * 2 + config["BLOCK_M"] * config["BLOCK_N"] * 2


RESTRICTIONS = rules(
    PRODUCTS,
    ROWS,
    WHOLE_STEPS,
    WARPS,
    (
        "tiles fit in registers",
        "2 * BLOCK_N * next_power_of_2(head_size) + 2 * BLOCK_M * BLOCK_N <= 192 * 32 * num_warps",
        "192 sums and scores per thread",
    ),
    shared_memory(
        _shared_bytes,
        "4 * max(BLOCK_M, BLOCK_N) * (num_stages + 1) * next_power_of_2(head_size) + 2 * BLOCK_M * BLOCK_N",
    ),
    GRID,
)


def default_config(problem: CausalAttentionProblem) -> dict:
    """Return tiles whose sums fit in the registers of eight warps, copied ahead if shared memory has room."""
    size = next_power_of_2(problem.head_size)
    config = {"BLOCK_M": 64 if size <= 64 else 32, "BLOCK_N": 64 if size <= 128 else 32, "num_warps": 8}
    for stages in (2, 1):
        config["num_stages"] = stages
        if _shared_bytes(config, problem) <= shared_limit(problem):
            break
    return config


def _over(tile: str, rows: str, heads: str) -> Size:
    """Return a grid of one program per tile of rows, head and sequence."""
    return lambda config, problem: (
        cdiv(getattr(problem, rows), config[tile]),
        getattr(problem, heads),
        problem.num_seqs,
    )


def _step(function: Any, grid: Size) -> TritonStep:
    return TritonStep(function=function, grid=grid, types=_types, constexprs=constexprs, arguments=STRIDES | LENGTHS)


VARIANT = TritonVariant(
    op="causal_attention_backward",
    name="triton_flash",
    idea="FlashAttention-2: scores again tile by tile; gradients of keys and values by one program for a group's heads",
    steps=(
        _step(causal_attention_delta, _over("BLOCK_M", "num_queries", "num_heads")),
        _step(causal_attention_d_key_value, _over("BLOCK_N", "num_tokens", "num_kv_heads")),
        _step(causal_attention_d_query, _over("BLOCK_M", "num_queries", "num_heads")),
    ),
    space={
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3),
    },
    restrictions=RESTRICTIONS,
    layouts=("heads first",),
    dtypes=("float16", "bfloat16"),
    features=("lengths",),
    defaults=default_config,
    workspace=_delta,
)
