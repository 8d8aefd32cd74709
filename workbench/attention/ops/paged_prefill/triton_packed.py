# mypy: allow-untyped-defs, allow-incomplete-defs
"""Rows of query heads and tokens packed into one tile, keys and values loaded from their pages: in Triton.

The steps are those of ``cuda_src/paged_prefill_packed_mma.cu``.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from workbench.attention.ops.cache_problem import attributes, head_and_token_stride, never_none
from workbench.attention.ops.paged_prefill.problem import (
    ARGUMENTS,
    BLOCK_SIZES,
    FEATURES,
    MOST_DRAFTS,
    RESTRICTIONS,
    PagedPrefillProblem,
    flags,
    rows_of_average,
    tiles,
)
from workbench.attention.ops.rules import rules, shared_memory
from workbench.attention.ops.triton_types import TYPES
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, TritonStep, TritonVariant, next_power_of_2

LOG2_E = tl.constexpr(1.4426950408889634)
DRAFTS = tl.constexpr(MOST_DRAFTS)


@triton.jit
def sequence_of(cu_seqlens_q, num_seqs, tile, BLOCK_Q: tl.constexpr):
    """Return the sequence of a tile: those of sequence i begin with number ``cu_seqlens_q[i] // BLOCK_Q + i``."""
    low, high = 0, num_seqs
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(cu_seqlens_q + middle) // BLOCK_Q + middle <= tile:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def tanh_of(x):
    """Return tanh(x) by its definition."""
    return 1.0 - 2.0 / (1.0 + tl.exp2(2.0 * LOG2_E * x))


@triton.jit
def count(bits):
    """Return the number of bits that are set, of uint64."""
    return tl.extra.cuda.libdevice.popc(bits.to(tl.int64, bitcast=True))


@triton.jit
def paged_prefill_packed(
    out,  # [num_tokens, num_heads, HEAD_SIZE]
    query,  # [num_tokens, num_heads, HEAD_SIZE], rows query_stride apart
    key_cache,  # "nhd" or "hnd": its strides inside a page are constexprs
    value_cache,
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    cu_seqlens_q,  # [num_seqs + 1]
    sinks,  # [num_heads]
    tree_mask,  # [num_tokens] int64
    scale,
    soft_cap,
    sliding_window,
    num_seqs,
    table_stride,
    query_stride,
    key_page_stride,
    value_page_stride,
    GROUP: tl.constexpr,  # query heads per KV head
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,  # the next power of two
    KV_HEAD: tl.constexpr,  # strides inside a page, in elements
    KV_TOKEN: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    BLOCK_M: tl.constexpr,  # rows
    BLOCK_N: tl.constexpr,  # tokens per tile
    WINDOW: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    SINKS: tl.constexpr,
    TREE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Attend with a tile of rows, query heads of a group and tokens of one sequence."""
    BLOCK_Q: tl.constexpr = BLOCK_M // GROUP
    tile, kv_head, num_heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1) * GROUP
    seq = sequence_of(cu_seqlens_q, num_seqs, tile, BLOCK_Q)
    start_of_seq = tl.load(cu_seqlens_q + seq)
    query_len = tl.load(cu_seqlens_q + seq + 1) - start_of_seq
    first_new = (tile - start_of_seq // BLOCK_Q - seq) * BLOCK_Q  # of the tile, among the new tokens
    num_new = tl.minimum(query_len - first_new, BLOCK_Q)
    if num_new <= 0:
        return
    context = tl.load(seq_lens + seq) - query_len
    rows, elements = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_PADDED)
    new, head = first_new + rows // GROUP, kv_head * GROUP + rows % GROUP
    exists = rows < num_new * GROUP
    inside = exists[:, None] & (elements < HEAD_SIZE)[None, :]

    # 1. Load the queries, padded with zeros, and what their tokens see: [BLOCK_M].
    token_of_row = (start_of_seq + new).to(tl.int64)
    places = token_of_row[:, None] * query_stride + (head * HEAD_SIZE)[:, None] + elements[None, :]
    q = tl.load(query + places, mask=inside, other=0.0)
    position = context + tl.minimum(new, first_new + num_new - 1)  # padding sees what the last token does
    begin = context + first_new
    drafts = tl.zeros([BLOCK_M], dtype=tl.uint64)
    first_draft = context + query_len  # none: all tokens are seen by position
    if TREE:
        own = (tl.full([BLOCK_M], 2, dtype=tl.uint64) << tl.minimum(new, DRAFTS - 1).to(tl.uint64)) - 1
        drafts = tl.load(tree_mask + token_of_row, mask=exists, other=1).to(tl.uint64, bitcast=True) & own
        if query_len <= DRAFTS:
            position, begin, first_draft = context + count(drafts) - 1, context, context
    begin = tl.maximum(begin - sliding_window + 1, 0) if WINDOW else 0
    end = context + first_new + num_new

    table = block_tables + seq.to(tl.int64) * table_stride
    keys, values = key_cache + kv_head * KV_HEAD, value_cache + kv_head * KV_HEAD
    max_score = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_PADDED], dtype=tl.float32)
    for start in tl.range(begin // BLOCK_N * BLOCK_N, end, BLOCK_N, num_stages=NUM_STAGES):
        token = start + tl.arange(0, BLOCK_N)
        valid = (token >= begin) & (token < end)
        page = tl.load(table + token // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
        in_page = (token % BLOCK_SIZE * KV_TOKEN)[:, None] + elements[None, :]
        wanted = valid[:, None] & (elements < HEAD_SIZE)[None, :]

        # 2. Score: [BLOCK_M, BLOCK_N], minus infinity for tokens that a row does not see. Masked loads are zero, so
        #    that no NaN of an unused slot enters the values.
        k = tl.load(keys + page[:, None] * key_page_stride + in_page, mask=wanted, other=0.0)
        score = tl.dot(q, tl.trans(k))
        score *= (scale / soft_cap) if SOFT_CAP else scale * LOG2_E
        if SOFT_CAP:
            score = soft_cap * LOG2_E * tanh_of(score)
        sees = token[None, :] <= position[:, None]
        if WINDOW:
            sees = sees & (token[None, :] > position[:, None] - sliding_window)
        if TREE:
            draft = token - first_draft
            bits = drafts[:, None] >> tl.minimum(tl.maximum(draft, 0), DRAFTS - 1).to(tl.uint64)[None, :]
            of_tree = ((bits & 1) == 1) & (draft < DRAFTS)[None, :]
            if WINDOW:
                of_tree = of_tree & (count(bits) <= sliding_window)
            sees = tl.where((draft < 0)[None, :], sees, of_tree)
        score = tl.where(sees & valid[None, :], score, float("-inf"))

        # 3. Rescale what was summed under the old maximum. A row may have seen nothing yet: in a window that begins
        #    later, or of drafts alone.
        new_max = tl.maximum(max_score, tl.max(score, axis=1))
        under = tl.where(new_max == float("-inf"), 0.0, new_max)
        rescale = tl.exp2(max_score - under)
        weight = tl.exp2(score - under[:, None])
        total = total * rescale + tl.sum(weight, axis=1)
        max_score = new_max

        # 4. Accumulate: [BLOCK_M, HEAD_PADDED].
        v = tl.load(values + page[:, None] * value_page_stride + in_page, mask=wanted, other=0.0)
        acc = tl.dot(weight.to(v.dtype), v, acc * rescale[:, None])

    # 5. Reduce: divide once per row.
    if SINKS:
        total += tl.exp2(tl.load(sinks + head) * LOG2_E - max_score)
    in_out = out + (token_of_row * num_heads + head)[:, None] * HEAD_SIZE + elements[None, :]
    tl.store(in_out, (acc / tl.where(exists, total, 1.0)[:, None]).to(out.dtype.element_ty), mask=inside)


def _types(problem: PagedPrefillProblem) -> dict[str, str]:
    scalar, multiple = f"*{ELEMENT_TYPES[problem.dtype].triton}", f"i64:{16 // problem.itemsize}"
    pages = {"key_page_stride": "i64:16", "value_page_stride": "i64:16", "query_stride": multiple}
    own = {"cu_seqlens_q": "*i32:1", "tree_mask": "*i64:8", "num_seqs": "i32"}
    return TYPES | dict.fromkeys(("out", "query", "key_cache", "value_cache"), scalar) | pages | own


def _constexprs(config: Config, problem: PagedPrefillProblem) -> dict[str, Any]:
    head, token = head_and_token_stride(problem, config["BLOCK_SIZE"])
    return {
        "GROUP": problem.group,
        "HEAD_SIZE": problem.head_size,
        "HEAD_PADDED": next_power_of_2(problem.head_size),
        "KV_HEAD": head,
        "KV_TOKEN": token,
        "NUM_STAGES": config["num_stages"],
        **flags(problem),
    }


def _shared_bytes(config: Config, problem: PagedPrefillProblem) -> int:
    """Return an upper bound of Triton's shared memory: queries, tiles of its pipeline, and room to exchange weights."""
    rows = config["BLOCK_M"] + 2 * max(config["num_stages"] - 1, 1) * config["BLOCK_N"]
    weights = config["BLOCK_M"] * config["BLOCK_N"] * 4
    return rows * next_power_of_2(problem.head_size) * problem.itemsize + weights + 1024 * config["num_warps"]


def default_config(problem: PagedPrefillProblem) -> dict:
    """Return tiles of as many rows as an average sequence has, at most 64, or of drafts 128, and of 32 tokens."""
    rows = rows_of_average(problem, 128 if "tree" in problem.features else 64)
    warps = 8 if rows * next_power_of_2(problem.head_size) > 64 * 128 else 4
    return {"BLOCK_M": rows, "BLOCK_N": 32, "BLOCK_SIZE": problem.page, "num_warps": warps, "num_stages": 2}


VARIANT = TritonVariant(
    op="paged_prefill",
    name="triton_packed",
    idea="a program per tile of tokens and heads of a group, keys and values from their pages",
    steps=(
        TritonStep(
            function=paged_prefill_packed,
            grid=lambda config, problem: tiles(config, problem),
            types=_types,
            constexprs=_constexprs,
            arguments=ARGUMENTS | never_none(attributes("sinks", "tree_mask")),
        ),
    ),
    space={
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "BLOCK_SIZE": BLOCK_SIZES,
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 2, 3),
    },
    restrictions=rules(
        *RESTRICTIONS,
        (
            "products",
            "BLOCK_M >= 16 and BLOCK_N >= 16 and is_power_of_two(BLOCK_M) and is_power_of_two(BLOCK_N)"
            " and 16 <= head_size <= 256",
        ),
        ("whole 16-byte steps", "head_size % 8 == 0", "8 elements each"),
        ("warps", "is_power_of_two(num_warps) and num_warps <= 32"),
        (
            "tiles fit in registers",
            "BLOCK_M * (next_power_of_2(head_size) + BLOCK_N) <= 192 * 32 * num_warps",
            "192 sums and scores per thread",
        ),
        shared_memory(
            _shared_bytes,
            "(BLOCK_M + 2 * max(num_stages - 1, 1) * BLOCK_N) * next_power_of_2(head_size) * itemsize"
            " + 4 * BLOCK_M * BLOCK_N + 1024 * num_warps",
        ),
    ),
    layouts=("nhd", "hnd"),
    dtypes=("float16", "bfloat16"),
    features=FEATURES,
    defaults=default_config,
)
