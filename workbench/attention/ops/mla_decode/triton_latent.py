# mypy: allow-untyped-defs, allow-incomplete-defs
"""A tile of query heads, each latent loaded once and used twice: in Triton.

The steps are those of ``cuda_src/mla_decode_latent_mma.cu``. The two parts of a row are two tiles, since a tile's sides
are powers of two: the latents, whose products with the queries make scores and whose products with the weights make the
output, and the rotated parts, which only add to the scores.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from workbench.attention.cache_formats.fp8_latents import NAME
from workbench.attention.ops.cache_problem import attributes, never_none
from workbench.attention.ops.mla_decode.problem import (
    ARGUMENTS,
    PARTITION_SIZES,
    RESTRICTIONS,
    MlaDecodeProblem,
    head_tiles,
    partials,
    with_partitions,
)
from workbench.attention.ops.paged_attention.rules import num_partitions
from workbench.attention.ops.paged_attention.triton_reduction import (
    LOG2_E,
    combine_partitions,
    last_to_arrive,
    partitions_at_once,
)
from workbench.attention.ops.rules import rules, shared_limit, shared_memory
from workbench.attention.ops.triton_codes import UNIT, halves_of
from workbench.attention.ops.triton_types import TYPES
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, TritonStep, TritonVariant


@triton.jit
def values_of(codes, scales, SHAPE: tl.constexpr, GROUPED: tl.constexpr):
    """Return ``[tokens, LATENT_SIZE] fp32`` values of e4m3 codes, with a scale for every group of each token."""
    exact = halves_of(codes).to(tl.float32).reshape(GROUPED)
    return (exact * (scales * UNIT)[:, :, None]).reshape(SHAPE)


@triton.jit
def mla_decode_latent(
    out,  # [num_seqs, num_heads, LATENT_SIZE]
    partial_out,  # [num_seqs, num_heads, num_partitions, LATENT_SIZE] fp32: sum of exp2(score - max) * latent
    partial_stats,  # [num_seqs, num_heads, num_partitions, 2] fp32: max and sum of the weights
    counters,  # [num_seqs, tiles of heads] int32: zeros, before and after
    query,  # [num_seqs, num_heads, LATENT_SIZE + ROPE_SIZE], rows query_stride apart
    latent_cache,  # [num_blocks, BLOCK_SIZE, ROW], pages page_stride apart: elements, or bytes where QUANTIZED
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    sinks,  # [num_heads] fp32, where SINKS
    scale,
    num_heads,
    table_stride,
    query_stride,
    page_stride,
    HEADS_PER_BLOCK: tl.constexpr,
    LATENT_SIZE: tl.constexpr,
    ROPE_SIZE: tl.constexpr,
    ROW: tl.constexpr,  # elements of latent_cache for a token
    QUANTIZED: tl.constexpr,
    SINKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    TILE_TOKENS: tl.constexpr,
    PARTITION_SIZE: tl.constexpr,
    AT_ONCE: tl.constexpr,  # partitions of a head that are combined at once
    NUM_STAGES: tl.constexpr,
):
    """Attend with a tile of query heads over one partition of one sequence."""
    tile, seq, partition = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    seq_len = tl.load(seq_lens + seq)
    begin, end = partition * PARTITION_SIZE, tl.minimum((partition + 1) * PARTITION_SIZE, seq_len)
    if (begin >= end) & (seq_len + partition > 0):  # the first program of a sequence without tokens gives zeros
        return
    KEY_SIZE: tl.constexpr = LATENT_SIZE + ROPE_SIZE
    heads = tile * HEADS_PER_BLOCK + tl.arange(0, HEADS_PER_BLOCK)
    exists = heads < num_heads
    elements = tl.arange(0, LATENT_SIZE)
    tokens = tl.arange(0, TILE_TOKENS)

    # 1. Load the queries of the tile, zeros for heads that do not exist.
    in_query = query + seq.to(tl.int64) * query_stride + heads[:, None] * KEY_SIZE
    q = tl.load(in_query + elements[None, :], mask=exists[:, None], other=0.0)
    if ROPE_SIZE > 0:
        rope_elements = LATENT_SIZE + tl.arange(0, ROPE_SIZE)
        q_rope = tl.load(in_query + rope_elements[None, :], mask=exists[:, None], other=0.0)

    table = block_tables + seq.to(tl.int64) * table_stride
    max_score = tl.full([HEADS_PER_BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([HEADS_PER_BLOCK], dtype=tl.float32)
    acc = tl.zeros([HEADS_PER_BLOCK, LATENT_SIZE], dtype=tl.float32)
    for start in tl.range(begin, end, TILE_TOKENS, num_stages=NUM_STAGES):
        token = start + tokens
        valid = token < end
        if TILE_TOKENS <= BLOCK_SIZE:  # a tile lies in one page
            page = tl.load(table + start // BLOCK_SIZE).to(tl.int64)
        else:
            page = tl.load(table + token // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
        row = latent_cache + (page * page_stride + token % BLOCK_SIZE * ROW)[:, None]

        # 2. Score: [HEADS_PER_BLOCK, TILE_TOKENS], minus infinity past the end. Masked loads are zero, so that no NaN
        #    of an unused slot enters the values.
        latent = tl.load(row + elements[None, :], mask=valid[:, None], other=0)
        if QUANTIZED:
            GROUPS: tl.constexpr = LATENT_SIZE // 128
            in_scales = (row + LATENT_SIZE).to(tl.pointer_type(tl.float32), bitcast=True) + tl.arange(0, GROUPS)[
                None, :
            ]
            scales = tl.load(in_scales, mask=valid[:, None], other=0.0)
            values = values_of(latent, scales, [TILE_TOKENS, LATENT_SIZE], [TILE_TOKENS, GROUPS, 128])
            latent = values.to(query.dtype.element_ty)
        score = tl.dot(q, tl.trans(latent))
        if ROPE_SIZE > 0:
            if QUANTIZED:
                in_rope = (row + (LATENT_SIZE + 4 * GROUPS)).to(tl.pointer_type(query.dtype.element_ty), bitcast=True)
                rope = tl.load(in_rope + tl.arange(0, ROPE_SIZE)[None, :], mask=valid[:, None], other=0.0)
            else:
                rope = tl.load(row + rope_elements[None, :], mask=valid[:, None], other=0.0)
            score = tl.dot(q_rope, tl.trans(rope), score)
        score = tl.where(valid[None, :], score * (scale * LOG2_E), float("-inf"))

        # 3. Rescale what was summed under the old maximum.
        new_max = tl.maximum(max_score, tl.max(score, axis=1))
        rescale = tl.exp2(max_score - new_max)
        weight = tl.exp2(score - new_max[:, None])
        total = total * rescale + tl.sum(weight, axis=1)
        max_score = new_max

        # 4. Accumulate: the latents again, now as values.
        acc = tl.dot(weight.to(latent.dtype), latent, acc * rescale[:, None])

    # 5. Store: with one partition that is the answer; else leave the sums for the program that is done last.
    partitions = tl.cdiv(seq_len, PARTITION_SIZE)
    first_row = seq.to(tl.int64) * num_heads + tile * HEADS_PER_BLOCK
    rows = tl.arange(0, HEADS_PER_BLOCK)
    if partitions <= 1:
        if SINKS:
            total += tl.exp2(tl.load(sinks + heads, mask=exists, other=0.0) * LOG2_E - max_score)
        answer = acc / tl.where(seq_len > 0, total, 1.0)[:, None]
        in_out = out + (first_row + rows)[:, None] * LATENT_SIZE + elements[None, :]
        tl.store(in_out, answer.to(out.dtype.element_ty), mask=exists[:, None])
    else:
        first_place = first_row * tl.num_programs(2)
        place = first_place + rows * tl.num_programs(2) + partition
        tl.store(partial_stats + place * 2, max_score, mask=exists)
        tl.store(partial_stats + place * 2 + 1, total, mask=exists)
        tl.store(partial_out + place[:, None] * LATENT_SIZE + elements[None, :], acc, mask=exists[:, None])

        # 6. Reduce over the partitions, a head at a time.
        if last_to_arrive(counters + seq * tl.num_programs(0) + tile, partitions):
            for row in tl.range(0, tl.minimum(HEADS_PER_BLOCK, num_heads - tile * HEADS_PER_BLOCK), num_stages=1):
                of_head = first_place + row * tl.num_programs(2)
                sums, stats = partial_out + of_head * LATENT_SIZE, partial_stats + of_head * 2
                sink = tl.load(sinks + tile * HEADS_PER_BLOCK + row) * LOG2_E if SINKS else float("-inf")
                answer = combine_partitions(sums, stats, 0, partitions, sink, LATENT_SIZE, LATENT_SIZE, AT_ONCE)
                in_row = out + (first_row + row) * LATENT_SIZE + elements
                tl.store(in_row, answer.to(out.dtype.element_ty))


def _types(problem: MlaDecodeProblem) -> dict[str, str]:
    scalar, multiple = f"*{ELEMENT_TYPES[problem.dtype].triton}", f"i64:{16 // problem.itemsize}"
    cache = {"latent_cache": "*u8", "page_stride": "i64:16"} if problem.quantized else {"latent_cache": scalar}
    own = {"out": scalar, "query": scalar, "num_heads": "i32", "query_stride": multiple, "page_stride": multiple}
    return TYPES | own | cache


def _constexprs(config: Config, problem: MlaDecodeProblem) -> dict[str, Any]:
    return {
        "LATENT_SIZE": problem.latent_size,
        "ROPE_SIZE": problem.rope_size,
        "ROW": problem.row_bytes // (1 if problem.quantized else problem.itemsize),
        "QUANTIZED": problem.quantized,
        "SINKS": "sinks" in problem.features,
        "AT_ONCE": partitions_at_once(problem.latent_size, config["num_warps"]),
        "NUM_STAGES": config["num_stages"],
    }


def _shared_bytes(config: Config, problem: MlaDecodeProblem) -> int:
    """Return an upper bound of Triton's shared memory: tiles of the pipeline, queries, and room to exchange weights."""
    rows = config["HEADS_PER_BLOCK"] + max(config["num_stages"] - 1, 1) * config["TILE_TOKENS"]
    values = 4 * config["TILE_TOKENS"] * problem.latent_size if problem.quantized else 0
    return rows * problem.key_size * problem.itemsize + values + 4096 * config["num_warps"]


def default_config(problem: MlaDecodeProblem) -> dict:
    """Return tiles of as many heads as there are and fit, or of 16, and partitions that fill the GPU."""
    config = {"BLOCK_SIZE": problem.page, "num_stages": 2}
    for heads, tokens in ((128, 32), (128, 16), (64, 32), (64, 16), (16, 32)):
        config |= {"HEADS_PER_BLOCK": heads, "TILE_TOKENS": tokens}
        config["num_warps"] = 8 if problem.quantized or heads > 16 else 4
        fits = heads * problem.latent_size <= 4096 * config["num_warps"]
        if 2 * problem.num_heads > heads and fits and _shared_bytes(config, problem) <= shared_limit(problem):
            break
    return {name: with_partitions(config, problem)[name] for name in SPACE}


SPACE = {
    "HEADS_PER_BLOCK": (16, 32, 64, 128),
    "BLOCK_SIZE": (1, 16, 32, 64, 128),
    "PARTITION_SIZE": PARTITION_SIZES,
    "TILE_TOKENS": (16, 32, 64),
    "num_warps": (4, 8),
    "num_stages": (1, 2, 3),
}

VARIANT = TritonVariant(
    op="mla_decode",
    name="triton_latent",
    idea="a program per tile of heads and partition: each latent loaded once, a key and a value",
    steps=(
        TritonStep(
            function=mla_decode_latent,
            grid=lambda config, problem: (
                head_tiles(config, problem),
                problem.num_seqs,
                num_partitions(config, problem),
            ),
            types=_types,
            constexprs=_constexprs,
            arguments=ARGUMENTS | never_none(attributes("sinks")),
        ),
    ),
    space=SPACE,
    restrictions=rules(
        *RESTRICTIONS,
        (
            "products",
            "is_power_of_two(latent_size) and (rope_size == 0 or is_power_of_two(rope_size) and rope_size >= 16)",
        ),
        (
            "powers of two",
            "is_power_of_two(TILE_TOKENS) and is_power_of_two(HEADS_PER_BLOCK) and is_power_of_two(BLOCK_SIZE)",
        ),
        ("registers", "HEADS_PER_BLOCK * latent_size <= 128 * 32 * num_warps", "128 sums a thread"),
        shared_memory(
            _shared_bytes,
            "(HEADS_PER_BLOCK + max(num_stages - 1, 1) * TILE_TOKENS) * key_size * itemsize + 4096 * num_warps"
            " (and 4 * TILE_TOKENS * latent_size for a quantized cache)",
        ),
    ),
    layouts=("latent",),
    dtypes=("float16", "bfloat16"),
    features=(NAME, "sinks"),
    defaults=default_config,
    workspace=partials,
)
