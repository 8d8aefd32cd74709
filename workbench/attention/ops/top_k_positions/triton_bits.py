# mypy: allow-untyped-defs, allow-incomplete-defs
"""Selection by the bits of the scores, a program per sequence: in Triton.

The steps are those of ``cuda_src/top_k_positions_radix.cu``, but for the digits: a bit at a time needs a count where
eight need a histogram.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.rules import rules
from workbench.attention.ops.top_k_positions.problem import ARGUMENTS, TopKProblem
from workbench.attention.ops.triton_types import TYPES
from workbench.ops import TritonStep, TritonVariant, next_power_of_2


@triton.jit
def keys_of(scores, position, seq_len):
    """Return keys that are in the order of the scores as unsigned numbers, 0 past the end of the sequence."""
    score = tl.load(scores + position, mask=position < seq_len, other=0.0)
    bits = tl.where(score == 0.0, 0.0, score).to(tl.uint32, bitcast=True)
    key = tl.where(bits >> 31 == 1, ~bits, bits | 0x80000000)
    return tl.where(position < seq_len, key, 0)


@triton.jit
def top_k_positions(
    out,  # [num_seqs, k]
    scores,  # [num_seqs, max_seq_len], rows scores_stride apart
    seq_lens,  # [num_seqs]
    k,
    scores_stride,
    TILE: tl.constexpr,  # scores that are looked at together
):
    """Choose the positions of one sequence."""
    seq = tl.program_id(0)
    seq_len = tl.load(seq_lens + seq)
    scores += seq.to(tl.int64) * scores_stride
    out += seq.to(tl.int64) * k
    tile = tl.arange(0, TILE)

    # 1. Find the k-th highest key, from its highest bit down: a bit is set if k keys or more have it, too.
    threshold = tl.zeros([], dtype=tl.uint32)
    for bit in range(32):
        candidate = threshold | (tl.full([], 0x80000000, dtype=tl.uint32) >> bit)
        count = tl.zeros([TILE], dtype=tl.int32)
        for start in range(0, seq_len, TILE):
            count += (keys_of(scores, start + tile, seq_len) >= candidate).to(tl.int32)
        threshold = tl.where(tl.sum(count) >= k, candidate, threshold)

    # 2. Count the keys above it; of those equal to it the first ones fill what is left.
    count = tl.zeros([TILE], dtype=tl.int32)
    for start in range(0, seq_len, TILE):
        count += (keys_of(scores, start + tile, seq_len) > threshold).to(tl.int32)
    wanted = k - tl.sum(count)

    # 3. Store the positions in order, then -1.
    equal_before, stored = 0, 0
    for start in range(0, seq_len, TILE):
        key = keys_of(scores, start + tile, seq_len)
        equal = ((key == threshold) & (start + tile < seq_len)).to(tl.int32)
        first = (equal == 1) & (equal_before + tl.cumsum(equal) <= wanted)
        taken = ((key > threshold) | first).to(tl.int32)
        tl.store(out + stored + tl.cumsum(taken) - 1, start + tile, mask=taken == 1)
        equal_before += tl.sum(equal)
        stored += tl.sum(taken)
    for start in range(stored, k, TILE):
        tl.store(out + start + tile, tl.full([TILE], -1, dtype=tl.int32), mask=start + tile < k)


def default_config(problem: TopKProblem) -> dict:
    """Return tiles of 1,024 scores, or of a whole row that is shorter."""
    tile = min(1024, max(128, next_power_of_2(problem.max_seq_len)))
    return {"TILE": tile, "num_warps": 4 if tile >= 512 else 1, "num_stages": 1}


VARIANT = TritonVariant(
    op="top_k_positions",
    name="triton_bits",
    idea="a program per sequence: the k-th highest score bit by bit, then a count of those above it",
    steps=(
        TritonStep(
            function=top_k_positions,
            grid=lambda config, problem: (problem.num_seqs,),
            types=lambda problem: TYPES | {"out": "*i32:4", "scores": "*fp32:4", "k": "i32", "scores_stride": "i64"},
            arguments=ARGUMENTS,
        ),
    ),
    space={"TILE": (128, 256, 512, 1024, 2048), "num_warps": (1, 2, 4, 8), "num_stages": (1,)},
    restrictions=rules(
        ("a tile fits in registers", "TILE >= 32 * num_warps and TILE <= 16 * 32 * num_warps", "16 scores per thread"),
    ),
    layouts=("any",),
    dtypes=("float32",),
    defaults=default_config,
)
