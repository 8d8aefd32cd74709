# mypy: allow-untyped-defs, allow-incomplete-defs
"""One program per query head, a tile of tokens at a time, online softmax: in Triton.

The steps are those of ``cuda_src/contiguous_attention_register_softmax.cu``. A row of the cache is a plain matrix
``[max_seqlen, HEAD_SIZE]``, so a tile is a block of it and needs no table. Every query head reads its keys and values
for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from workbench.attention.ops.contiguous_attention.problem import ARGUMENTS, GRID, ContiguousAttentionProblem
from workbench.attention.ops.rules import TILE_TOKENS, default_tile, shared_memory, tile_in_registers
from workbench.attention.ops.triton_types import TYPES
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, TritonStep, TritonVariant, next_power_of_2

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def contiguous_attention_online_softmax(
    out,  # [num_seqs, num_heads, HEAD_SIZE]
    query,  # [num_seqs, num_heads, HEAD_SIZE], rows query_stride apart
    kv_cache,  # [rows, 2, num_kv_heads, max_seqlen, HEAD_SIZE], rows row_stride apart
    seq_lens,  # [num_seqs]
    cache_rows,  # [num_seqs]
    scale,
    max_seqlen,
    query_stride,
    row_stride,
    GROUP: tl.constexpr,  # query heads per KV head
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,  # the next power of two
    TILE_TOKENS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Attend with the newest token of one sequence in one query head."""
    head, seq = tl.program_id(0), tl.program_id(1)
    seq_len = tl.load(seq_lens + seq)
    head_stride = max_seqlen.to(tl.int64) * HEAD_SIZE
    keys = kv_cache + tl.load(cache_rows + seq).to(tl.int64) * row_stride + (head // GROUP) * head_stride
    values = keys + (tl.num_programs(0) // GROUP) * head_stride
    elements = tl.arange(0, HEAD_PADDED)
    inside = elements < HEAD_SIZE

    # 1. Load the query once, in fp32, with the softmax scale and the change to base 2 folded in.
    row = query + seq.to(tl.int64) * query_stride + head * HEAD_SIZE
    q = tl.load(row + elements, mask=inside, other=0.0).to(tl.float32) * (scale * LOG2_E)

    max_score = float("-inf")
    total = 0.0
    acc = tl.zeros([HEAD_PADDED], dtype=tl.float32)
    for start in tl.range(0, seq_len, TILE_TOKENS, num_stages=NUM_STAGES):
        token = start + tl.arange(0, TILE_TOKENS)
        valid = token < seq_len
        offset = token.to(tl.int64)[:, None] * HEAD_SIZE + elements[None, :]
        mask = valid[:, None] & inside[None, :]

        # 2. Score: [TILE_TOKENS], minus infinity past the end.
        key = tl.load(keys + offset, mask=mask, other=0.0)
        score = tl.sum(key.to(tl.float32) * q[None, :], axis=1)
        score = tl.where(valid, score, float("-inf"))

        # 3. Rescale what was summed under the old maximum.
        new_max = tl.maximum(max_score, tl.max(score, axis=0))
        rescale = tl.exp2(max_score - new_max)
        weight = tl.exp2(score - new_max)
        total = total * rescale + tl.sum(weight, axis=0)
        max_score = new_max

        # 4. Accumulate; masked loads are zero, so that no NaN of an unused slot enters.
        value = tl.load(values + offset, mask=mask, other=0.0)
        acc = acc * rescale + tl.sum(value.to(tl.float32) * weight[:, None], axis=0)

    # 5. Reduce: divide once per row; a sequence of no tokens has a total of zero.
    acc = acc / tl.where(seq_len > 0, total, 1.0)
    place = out + (seq.to(tl.int64) * tl.num_programs(0) + head) * HEAD_SIZE
    tl.store(place + elements, acc.to(out.dtype.element_ty), mask=inside)


def _types(problem: ContiguousAttentionProblem) -> Mapping[str, str]:
    scalar = f"*{ELEMENT_TYPES[problem.dtype].triton}"
    row_stride = f"i64:{16 // problem.itemsize}"
    return TYPES | {"out": scalar, "query": f"{scalar}:1", "kv_cache": scalar, "row_stride": row_stride}


def _constexprs(config: Config, problem: ContiguousAttentionProblem) -> Mapping[str, Any]:
    return {
        "GROUP": problem.group,
        "HEAD_SIZE": problem.head_size,
        "HEAD_PADDED": next_power_of_2(problem.head_size),
        "NUM_STAGES": config["num_stages"],
    }


def default_config(problem: ContiguousAttentionProblem) -> dict:
    """Return a tile of 64 tokens, or fewer if a head is large, on four warps."""
    return {"TILE_TOKENS": default_tile(problem), "num_warps": 4, "num_stages": 2}


def _shared_bytes(config: Config, problem: ContiguousAttentionProblem) -> int:
    """Return the bytes of the tiles of keys and values in the compiler's pipeline, and of room to reduce in."""
    tile = config["TILE_TOKENS"] * next_power_of_2(problem.head_size) * problem.itemsize
    return 2 * (config["num_stages"] - 1) * tile + 8192


RESTRICTIONS = (
    TILE_TOKENS,
    tile_in_registers(128),
    shared_memory(
        _shared_bytes,
        "2 * (num_stages - 1) * TILE_TOKENS * next_power_of_2(head_size) * sizeof(cache element) + 8192",
    ),
    GRID,
)

VARIANT = TritonVariant(
    op="contiguous_attention",
    name="triton_online_softmax",
    idea="a program per query head, tiles of tokens, online softmax",
    steps=(
        TritonStep(
            function=contiguous_attention_online_softmax,
            grid=lambda config, problem: (problem.num_heads, problem.num_seqs),
            types=_types,
            constexprs=_constexprs,
            arguments=ARGUMENTS,
        ),
    ),
    space={
        "TILE_TOKENS": (16, 32, 64, 128),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 2, 3),
    },
    restrictions=RESTRICTIONS,
    layouts=("contiguous",),
    dtypes=("float32", "float16", "bfloat16"),
    defaults=default_config,
)
