# mypy: allow-untyped-defs, allow-incomplete-defs
"""One program per query head, a tile of tokens at a time, softmax kept up to date on the way: in Triton.

The steps are those of ``cuda_src/paged_attention_thread_group.cu`` (load, score, rescale, accumulate, reduce), but
scores never leave the program: the *online softmax* (Milakov and Gimelshein, 2018; FlashAttention) rescales its sums
whenever a tile brings a new maximum, so that no memory is needed per token and one pass is enough. A tile covers
several pages or a part of one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.cache_problem import SCALES_OR_ONE
from workbench.attention.ops.paged_attention.problem import ARGUMENTS, PagedAttentionProblem
from workbench.attention.ops.paged_attention.rules import GRID, PAGE_SIZE
from workbench.attention.ops.paged_attention.triton_reduction import LOG2_E
from workbench.attention.ops.paged_attention.triton_tiles import (
    FP8_SUPPORT,
    POWERS_OF_TWO,
    TILE_IN_REGISTERS,
    TILE_IN_SHARED_MEMORY,
    in_pages,
    tiles_footprint,
    types,
)
from workbench.attention.ops.rules import default_tile
from workbench.ops import Config, Footprint, TritonStep, TritonVariant


@triton.jit
def paged_attention_online_softmax(
    out,  # [num_seqs, num_heads, HEAD_SIZE]
    query,  # [num_seqs, num_heads, HEAD_SIZE], rows query_stride apart
    key_cache,  # any layout: its strides inside a page are constexprs
    value_cache,
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    scale,
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
    HEAD_SCALES: tl.constexpr,  # one scale for all tokens of a KV head
    TOKEN_SCALES: tl.constexpr,  # one for each token
    NUM_STAGES: tl.constexpr,
):
    """Attend with the newest token of one sequence in one query head."""
    head, seq = tl.program_id(0), tl.program_id(1)
    kv_head = head // GROUP
    seq_len = tl.load(seq_lens + seq)
    PAGES: tl.constexpr = TILE_TOKENS // BLOCK_SIZE if TILE_TOKENS > BLOCK_SIZE else 1
    SLOTS: tl.constexpr = TILE_TOKENS // PAGES
    pages = tl.arange(0, PAGES)
    slots = tl.arange(0, SLOTS)
    elements = tl.arange(0, HEAD_PADDED)
    inside = elements < HEAD_SIZE

    # 1. Load the query once, in fp32, with all common factors of the scores and the change to base 2 folded in.
    row = query + seq.to(tl.int64) * query_stride + head * HEAD_SIZE
    q = tl.load(row + elements, mask=inside, other=0.0).to(tl.float32) * (scale * LOG2_E)
    if HEAD_SCALES:
        q *= tl.load(k_scale + kv_head * k_head_stride)

    table = block_tables + seq.to(tl.int64) * table_stride
    max_score = float("-inf")
    total = 0.0
    acc = tl.zeros([HEAD_PADDED], dtype=tl.float32)
    for start in tl.range(0, seq_len, TILE_TOKENS, num_stages=NUM_STAGES):
        first = start + pages * BLOCK_SIZE
        block = tl.load(table + first // BLOCK_SIZE, mask=first < seq_len, other=0).to(tl.int64)
        slot = slots if TILE_TOKENS >= BLOCK_SIZE else tl.multiple_of(start % BLOCK_SIZE, TILE_TOKENS) + slots
        token = start + (pages * BLOCK_SIZE)[:, None] + slots[None, :]
        valid = token < seq_len

        # 2. Score: [PAGES, SLOTS], minus infinity past the end.
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
        score = tl.where(valid, score, float("-inf"))

        # 3. Rescale what was summed under the old maximum.
        new_max = tl.maximum(max_score, tl.max(tl.max(score, axis=1), axis=0))
        rescale = tl.exp2(max_score - new_max)
        weight = tl.exp2(score - new_max)
        total = total * rescale + tl.sum(tl.sum(weight, axis=1), axis=0)
        max_score = new_max

        # 4. Accumulate: [PAGES, HEAD_PADDED, SLOTS]. Zero values past the end too: an unused slot may hold NaN.
        offset = block[:, None] * value_page_stride + kv_head * VALUE_HEAD + elements[None, :] * VALUE_ELEMENT
        value = tl.load(
            value_cache + offset[:, :, None] + (slot * VALUE_TOKEN)[None, None, :],
            mask=(first < seq_len)[:, None, None] & inside[None, :, None],
            other=0.0,
        )
        value = tl.where(valid[:, None, :], value.to(tl.float32), 0.0)
        if TOKEN_SCALES:  # in the weight, but not in the sum of the weights
            weight *= tl.load(v_scale + place * v_slot_stride + kv_head * v_head_stride, mask=valid, other=1.0)
        acc = acc * rescale + tl.sum(tl.sum(value * weight[:, None, :], axis=0), axis=1)

    # 5. Reduce: divide once per row; a sequence without tokens has a total of zero.
    acc = acc / tl.where(seq_len > 0, total, 1.0)
    if HEAD_SCALES:
        acc *= tl.load(v_scale + kv_head * v_head_stride)
    place = out + (seq.to(tl.int64) * tl.num_programs(0) + head) * HEAD_SIZE
    tl.store(place + elements, acc.to(out.dtype.element_ty), mask=inside)


def default_config(problem: PagedAttentionProblem) -> dict:
    """Return a tile of 64 tokens, or fewer if a head is large, on four warps."""
    return {"BLOCK_SIZE": problem.page, "TILE_TOKENS": default_tile(problem), "num_warps": 4, "num_stages": 2}


def _footprint(config: Config, problem: PagedAttentionProblem) -> Footprint:
    return tiles_footprint(config, problem, problem.num_heads * problem.num_seqs)


RESTRICTIONS = (PAGE_SIZE, POWERS_OF_TWO, TILE_IN_REGISTERS, TILE_IN_SHARED_MEMORY, FP8_SUPPORT, GRID)

VARIANT = TritonVariant(
    op="paged_attention",
    name="triton_online_softmax",
    idea="a program per query head, tiles of tokens, online softmax: one pass, nothing kept per token",
    steps=(
        TritonStep(
            function=paged_attention_online_softmax,
            grid=lambda config, problem: (problem.num_heads, problem.num_seqs),
            types=types,
            constexprs=in_pages,
            arguments=ARGUMENTS | SCALES_OR_ONE,
        ),
    ),
    space={
        "BLOCK_SIZE": (8, 16, 32, 64, 128),
        "TILE_TOKENS": (16, 32, 64, 128),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 2, 3),
    },
    restrictions=RESTRICTIONS,
    layouts=("x", "nhd", "hnd"),
    dtypes=("float32", "float16", "bfloat16"),
    features=("fp8_e4m3", "fp8_e5m2", "int8", "token_scales"),
    defaults=default_config,
    footprint=_footprint,
)
