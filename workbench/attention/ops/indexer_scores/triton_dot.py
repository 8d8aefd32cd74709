# mypy: allow-untyped-defs, allow-incomplete-defs
"""Scores on tensor cores, tokens by heads: in Triton.

The steps are those of ``cuda_src/indexer_scores_mma.cu``.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from workbench.attention.ops.indexer_scores.problem import ARGUMENTS, DTYPES, RESTRICTIONS, IndexerProblem, tiles
from workbench.attention.ops.rules import rules
from workbench.attention.ops.triton_codes import UNIT, halves_of
from workbench.attention.ops.triton_types import TYPES
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, TritonStep, TritonVariant, next_power_of_2


@triton.jit
def indexer_scores(
    out,  # [num_seqs, max_seq_len] fp32
    query,  # [num_seqs, NUM_HEADS, HEAD_SIZE]
    weights,  # [num_seqs, NUM_HEADS] fp32
    index_cache,  # [num_blocks, BLOCK_SIZE, HEAD_SIZE], pages page_stride apart; QUANTIZED: codes, then scales
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    max_seq_len,
    table_stride,
    page_stride,
    NUM_HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    QUANTIZED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    TILE_TOKENS: tl.constexpr,
):
    """Score one tile of tokens of one sequence."""
    tile, seq = tl.program_id(0), tl.program_id(1).to(tl.int64)
    seq_len = tl.load(seq_lens + seq)
    token = tile * TILE_TOKENS + tl.arange(0, TILE_TOKENS)
    in_out = out + seq * max_seq_len + token
    if tile * TILE_TOKENS >= seq_len:
        tl.store(in_out, tl.full([TILE_TOKENS], float("-inf"), dtype=tl.float32), mask=token < max_seq_len)
        return
    valid = token < seq_len
    heads, elements = tl.arange(0, HEADS_PADDED), tl.arange(0, HEAD_SIZE)

    # 1. Load the queries of all heads, zeros for heads that do not exist, and the keys of the tile.
    in_query = query + (seq * NUM_HEADS + heads[:, None]) * HEAD_SIZE + elements[None, :]
    q = tl.load(in_query, mask=heads[:, None] < NUM_HEADS, other=0)
    weight = tl.load(weights + seq * NUM_HEADS + heads, mask=heads < NUM_HEADS, other=0.0)
    table = block_tables + seq * table_stride
    if BLOCK_SIZE % TILE_TOKENS == 0:  # a tile lies in one page
        page = tl.load(table + tile * TILE_TOKENS // BLOCK_SIZE).to(tl.int64)
    else:
        page = tl.load(table + token // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
    in_page = index_cache + page * page_stride
    in_key = (in_page + token % BLOCK_SIZE * HEAD_SIZE)[:, None] + elements[None, :]
    key = tl.load(in_key, mask=valid[:, None], other=0)
    if QUANTIZED:
        q, key = halves_of(q), halves_of(key)

    # 2. Score: products [TILE_TOKENS, HEADS_PADDED], the positive ones weighted and summed.
    products = tl.dot(key, tl.trans(q))
    score = tl.sum(tl.maximum(products, 0.0) * weight[None, :], axis=1)
    if QUANTIZED:
        in_scales = (in_page + BLOCK_SIZE * HEAD_SIZE).to(tl.pointer_type(tl.float32), bitcast=True)
        score *= tl.load(in_scales + token % BLOCK_SIZE, mask=valid, other=0.0) * (UNIT * UNIT)

    # 3. Store, minus infinity past the end.
    tl.store(in_out, tl.where(valid, score, float("-inf")), mask=token < max_seq_len)


def _types(problem: IndexerProblem) -> dict[str, str]:
    element = "u8" if problem.quantized else ELEMENT_TYPES[problem.dtype].triton
    stride = f"i64:{16 if problem.quantized else 8}"
    own = {"out": "*fp32:4", "weights": "*fp32:4", "query": f"*{element}", "index_cache": f"*{element}"}
    return TYPES | own | {"max_seq_len": "i32", "page_stride": stride}


def _constexprs(config: Config, problem: IndexerProblem) -> dict[str, Any]:
    return {
        "NUM_HEADS": problem.num_heads,
        "HEADS_PADDED": max(16, next_power_of_2(problem.num_heads)),
        "HEAD_SIZE": problem.head_size,
        "QUANTIZED": problem.quantized,
    }


def default_config(problem: IndexerProblem) -> dict:
    """Return tiles of 64 tokens on four warps."""
    return {"BLOCK_SIZE": problem.page, "TILE_TOKENS": 64, "num_warps": 4, "num_stages": 1}


VARIANT = TritonVariant(
    op="indexer_scores",
    name="triton_dot",
    idea="a program per tile of tokens: keys times the queries of all heads, and the heads summed",
    steps=(TritonStep(function=indexer_scores, grid=tiles, types=_types, constexprs=_constexprs, arguments=ARGUMENTS),),
    space={
        "BLOCK_SIZE": (16, 32, 64, 128),
        "TILE_TOKENS": (16, 32, 64, 128),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1,),
    },
    restrictions=rules(
        *RESTRICTIONS,
        ("products", "is_power_of_two(head_size) and 16 <= head_size <= 256"),
        ("registers", "TILE_TOKENS * next_power_of_2(num_heads) <= 64 * 32 * num_warps", "64 sums a thread"),
    ),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    defaults=default_config,
)
