# mypy: allow-untyped-defs, allow-incomplete-defs
"""FlashAttention-2 in Triton: a program per (BLOCK_M queries, head, sequence), an online softmax over tiles of tokens.

The steps are those of ``cuda_src/causal_attention_mma.cu``. Tiles that every query of the program sees come first and
take no mask; then those on the diagonal.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.cache_problem import attributes, never_none
from workbench.attention.ops.causal_attention.problem import (
    GRID,
    ROWS,
    STRIDES,
    WHOLE_STEPS,
    CausalAttentionProblem,
    blocks,
)
from workbench.attention.ops.causal_attention.triton_rows import (
    LENGTHS,
    LN_2,
    LOG2_E,
    PRODUCTS,
    WARPS,
    constexprs,
    lengths_of,
    load_rows,
    store_rows,
    types,
)
from workbench.attention.ops.rules import shared_memory
from workbench.ops import Arguments, Config, Restriction, TritonStep, TritonVariant, next_power_of_2


@triton.jit
def attend_to_tiles(
    acc,
    max_score,
    total,
    q,
    keys,
    values,
    position,  # index of each query among the tokens
    first,  # token of the first tile
    last,
    factor,
    key_stride,
    value_stride,
    DIAGONAL: tl.constexpr,  # some query does not see all of a tile
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):
    """Add the tiles from ``first`` to ``last`` to the sums, weights and maxima of a program's queries."""
    for start in tl.range(first, last, BLOCK_N, num_stages=NUM_STAGES):
        token = start + tl.arange(0, BLOCK_N)

        # 2. Score: [BLOCK_M, BLOCK_N], minus infinity for later tokens.
        if DESCRIPTORS:
            k = keys.load([start, 0])
        else:
            k = load_rows(keys, token, key_stride, last, not DIAGONAL, HEAD_SIZE, HEAD_PADDED)
        score = tl.dot(q, tl.trans(k)) * factor
        if DIAGONAL:
            score = tl.where(token[None, :] <= position[:, None], score, float("-inf"))

        # 3. Rescale what was summed under the old maximum. Every query sees token 0, so that the new one is finite.
        new_max = tl.maximum(max_score, tl.max(score, axis=1))
        rescale = tl.exp2(max_score - new_max)
        weight = tl.exp2(score - new_max[:, None])
        total = total * rescale + tl.sum(weight, axis=1)
        max_score = new_max

        # 4. Accumulate: [BLOCK_M, HEAD_PADDED].
        if DESCRIPTORS:
            v = values.load([start, 0])
        else:
            v = load_rows(values, token, value_stride, last, not DIAGONAL, HEAD_SIZE, HEAD_PADDED)
        acc = tl.dot(weight.to(v.dtype), v, acc * rescale[:, None])
    return acc, max_score, total


@triton.jit
def attend(
    q,  # [BLOCK_M, HEAD_PADDED], those from first_row on
    keys,  # where token 0 of the KV head is, or with DESCRIPTORS a descriptor of its seq_len rows in tiles of BLOCK_N
    values,  # as keys
    first_row,
    query_len,
    seq_len,
    scale,
    key_stride,
    value_stride,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):
    """Return the output [BLOCK_M, HEAD_PADDED] and its logarithms [BLOCK_M]; zeros and minus infinity for padding."""
    row = first_row + tl.arange(0, BLOCK_M)
    first_position = seq_len - query_len + first_row
    acc = tl.zeros([BLOCK_M, HEAD_PADDED], dtype=tl.float32)
    max_score = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    if first_row < query_len:
        end = tl.minimum(first_position + BLOCK_M, seq_len)
        diagonal = (first_position + 1) // BLOCK_N * BLOCK_N  # the first tile that not every query sees all of
        position = seq_len - query_len + row
        factor = scale * LOG2_E
        acc, max_score, total = attend_to_tiles(
            acc, max_score, total, q, keys, values, position, 0, diagonal, factor, key_stride, value_stride,
            False, HEAD_SIZE, HEAD_PADDED, BLOCK_N, NUM_STAGES, DESCRIPTORS,
        )  # fmt: skip
        acc, max_score, total = attend_to_tiles(
            acc, max_score, total, q, keys, values, position, diagonal, end, factor, key_stride, value_stride,
            True, HEAD_SIZE, HEAD_PADDED, BLOCK_N, NUM_STAGES, DESCRIPTORS,
        )  # fmt: skip

    # 5. Reduce: divide once per row.
    valid = row < query_len
    out = tl.where(valid[:, None], acc / tl.where(valid, total, 1.0)[:, None], 0.0)
    return out, tl.where(valid, (max_score + tl.log2(total)) * LN_2, float("-inf"))


@triton.jit
def causal_attention_flash(
    output,  # [num_seqs, num_heads, num_queries, HEAD_SIZE]
    lse,  # [num_seqs, num_heads, num_queries], if it is wanted
    query,  # [num_seqs, num_heads, num_queries, HEAD_SIZE], by its strides
    key,  # [num_seqs, num_heads / group, num_tokens, HEAD_SIZE], by its strides
    value,  # as key
    query_lens,  # [num_seqs]
    seq_lens,  # [num_seqs]
    scale,
    wants_lse,
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
    DESCRIPTORS: tl.constexpr,  # copy tiles, and the output, by tensor descriptors
):
    """Attend with BLOCK_M queries of one head of one sequence."""
    head, seq = tl.program_id(1), tl.program_id(2)
    first_row = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M  # the programs with most to do come first
    query_len, seq_len = lengths_of(seq, query_lens, seq_lens, num_queries, num_tokens, LENGTHS)
    row = first_row + tl.arange(0, BLOCK_M)
    place = (seq.to(tl.int64) * tl.num_programs(1) + head) * num_queries

    queries = query + seq * query_seq_stride + head * query_head_stride
    keys = key + seq * key_seq_stride + head // group * key_head_stride
    values = value + seq * value_seq_stride + head // group * value_head_stride

    # 1. Load the queries, padded with zeros. A descriptor has at least one row; where there is none, none is read.
    if DESCRIPTORS:
        tokens = tl.maximum(seq_len, 1)
        q = tl.make_tensor_descriptor(
            queries, [tl.maximum(query_len, 1), HEAD_SIZE], [query_token_stride, 1], [BLOCK_M, HEAD_PADDED]
        ).load([first_row, 0])
        keys = tl.make_tensor_descriptor(keys, [tokens, HEAD_SIZE], [key_token_stride, 1], [BLOCK_N, HEAD_PADDED])
        values = tl.make_tensor_descriptor(values, [tokens, HEAD_SIZE], [value_token_stride, 1], [BLOCK_N, HEAD_PADDED])
        outputs = tl.make_tensor_descriptor(
            output + place * HEAD_SIZE, [num_queries, HEAD_SIZE], [HEAD_SIZE, 1], [BLOCK_M, HEAD_PADDED]
        )
    else:
        q = load_rows(queries, row, query_token_stride, query_len, False, HEAD_SIZE, HEAD_PADDED)
    out, logarithm = attend(
        q, keys, values, first_row, query_len, seq_len, scale, key_token_stride, value_token_stride,
        HEAD_SIZE, HEAD_PADDED, BLOCK_M, BLOCK_N, NUM_STAGES, DESCRIPTORS,
    )  # fmt: skip
    if DESCRIPTORS:
        outputs.store([first_row, 0], out.to(output.dtype.element_ty))
    else:
        store_rows(output + place * HEAD_SIZE, row, num_queries, out, HEAD_SIZE, HEAD_PADDED)
    tl.store(lse + place + row, logarithm, mask=(row < num_queries) & (wants_lse != 0))


def shared_bytes(config: Config, problem: CausalAttentionProblem) -> int:
    """Return the bytes of queries, and of tiles of keys and values that the compiler's pipeline keeps in flight."""
    stages = max(config["num_stages"], 1)
    return (config["BLOCK_M"] + 2 * stages * config["BLOCK_N"]) * next_power_of_2(problem.head_size) * problem.itemsize


_IN_REGISTERS = Restriction.of(
    "tiles fit in registers",
    "BLOCK_M * (next_power_of_2(head_size) + BLOCK_N) <= 192 * 32 * num_warps",
    "192 sums and scores per thread",
)

RESTRICTIONS = (
    PRODUCTS,
    ROWS,
    WHOLE_STEPS,
    WARPS,
    _IN_REGISTERS,
    shared_memory(shared_bytes, "(BLOCK_M + 2 * num_stages * BLOCK_N) * next_power_of_2(head_size) * 2"),
    GRID,
)


def default_config(problem: CausalAttentionProblem) -> dict:
    """Return 64 queries on four warps with tiles of 64 tokens; for a large head eight warps, with tiles of 32."""
    tokens, warps = (64, 4) if problem.head_size <= 128 else (32, 8)
    return {"BLOCK_M": 64, "BLOCK_N": tokens, "num_warps": warps, "num_stages": 2}


_LSE: Arguments = never_none(attributes("lse")) | {
    "wants_lse": lambda config, problem, tensors: int(tensors.lse is not None)
}

VARIANT = TritonVariant(
    op="causal_attention",
    name="triton_flash",
    idea="FlashAttention-2 in Triton: a program per 64 queries, tiles below the diagonal without a mask",
    steps=(
        TritonStep(
            function=causal_attention_flash,
            grid=lambda config, problem: blocks(config, problem),
            types=types,
            constexprs=lambda config, problem: {**constexprs(config, problem), "DESCRIPTORS": False},
            arguments=STRIDES | LENGTHS | _LSE,
        ),
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
)
