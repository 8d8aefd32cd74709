"""FlashAttention-2 in Triton with tensor descriptors: on sm_90 TMA copies every tile, and wgmma multiplies it.

A program builds a descriptor of the rows that it reads, for each of queries, keys and values, and one of those that it
writes; a descriptor knows where its tensor ends, so that tiles take no mask: past a sequence's tokens are zeros. The
steps are those of ``triton_flash``.

``warp_specialize`` is no tunable: for sm_90 Triton 3.7 refuses this loop of two products on four warps and ignores the
word on others.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.ops.causal_attention.problem import STRIDES
from workbench.ops.causal_attention.triton_flash import LSE, RESTRICTIONS, attend, default_config
from workbench.ops.causal_attention.triton_rows import LENGTHS, constexprs, lengths_of, types
from workbench.ops.expressions import cdiv
from workbench.ops.steps import TritonStep
from workbench.ops.values import Restriction
from workbench.ops.variant import TritonVariant


@triton.jit
def causal_attention_descriptors(
    output,  # [num_seqs, num_heads, num_queries, HEAD_SIZE]
    lse,  # [num_seqs, num_heads, num_queries], if it is wanted
    query,  # [num_seqs, num_heads, num_queries, HEAD_SIZE], by its strides
    key,  # [num_seqs, num_heads / group, num_tokens, HEAD_SIZE], by its strides
    value,  # likewise
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
):
    head, seq = tl.program_id(1), tl.program_id(2)
    first_row = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M  # the programs with most to do come first
    query_len, seq_len = lengths_of(seq, query_lens, seq_lens, num_queries, num_tokens, LENGTHS)
    place = (seq.to(tl.int64) * tl.num_programs(1) + head) * num_queries

    # 1. Describe the rows, and load the queries. A descriptor has at least one row; where there is none, none is read.
    queries = query + seq * query_seq_stride + head * query_head_stride
    keys = key + seq * key_seq_stride + head // group * key_head_stride
    values = value + seq * value_seq_stride + head // group * value_head_stride
    tokens = tl.maximum(seq_len, 1)
    q = tl.make_tensor_descriptor(
        queries, [tl.maximum(query_len, 1), HEAD_SIZE], [query_token_stride, 1], [BLOCK_M, HEAD_PADDED]
    ).load([first_row, 0])
    keys = tl.make_tensor_descriptor(keys, [tokens, HEAD_SIZE], [key_token_stride, 1], [BLOCK_N, HEAD_PADDED])
    values = tl.make_tensor_descriptor(values, [tokens, HEAD_SIZE], [value_token_stride, 1], [BLOCK_N, HEAD_PADDED])
    outputs = tl.make_tensor_descriptor(
        output + place * HEAD_SIZE, [num_queries, HEAD_SIZE], [HEAD_SIZE, 1], [BLOCK_M, HEAD_PADDED]
    )

    out, logarithm = attend(
        q, keys, values, first_row, query_len, seq_len, scale, key_token_stride, value_token_stride,
        HEAD_SIZE, HEAD_PADDED, BLOCK_M, BLOCK_N, NUM_STAGES, True,
    )  # fmt: skip
    outputs.store([first_row, 0], out.to(output.dtype.element_ty))
    row = first_row + tl.arange(0, BLOCK_M)
    tl.store(lse + place + row, logarithm, mask=(row < num_queries) & (wants_lse != 0))


_TMA = Restriction(
    "TMA",
    "arch is sm_90 or newer: before, Triton makes pointers of descriptors, and triton_flash is the better kernel",
    lambda config, problem: int(problem.arch.removeprefix("sm_").rstrip("af")) >= 90,
    of_arch=True,
)

VARIANT = TritonVariant(
    op="causal_attention",
    name="triton_descriptors",
    idea="FlashAttention-2 in Triton with tensor descriptors: TMA copies tiles and fills what lies past the end",
    steps=(
        TritonStep(
            function=causal_attention_descriptors,
            grid=lambda config, problem: (
                cdiv(problem.num_queries, config["BLOCK_M"]),
                problem.num_heads,
                problem.num_seqs,
            ),
            types=types,
            constexprs=constexprs,
            arguments=STRIDES | LENGTHS | LSE,
        ),
    ),
    space={
        "BLOCK_M": (64, 128),
        "BLOCK_N": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 3),
    },
    restrictions=(_TMA, *RESTRICTIONS),
    layouts=("heads first",),
    dtypes=("float16", "bfloat16"),
    features=("lengths",),
    defaults=default_config,
)
