"""The Triton function that combines the partial results of the partitions of a sequence, as a step of a variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from workbench.ops.paged_attention.problem import Problem, Tensors
from workbench.ops.paged_attention.triton_tiles import SCALAR_TYPES
from workbench.ops.paged_attention.workspace import scale_or_one
from workbench.ops.scales import scale_strides
from workbench.ops.variant import Config, Launch, TritonStep

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def paged_attention_reduce(
    out,  # [num_seqs, num_heads, HEAD_SIZE]
    partial_out,
    partial_stats,
    seq_lens,
    v_scale,  # [num_kv_heads], or [1] with a stride of 0; per token, the partitions have used them
    sinks,  # [num_heads]
    sliding_window,
    scale_stride,
    num_partitions,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    PARTITION_SIZE: tl.constexpr,
    QUANTIZED: tl.constexpr,
    WINDOW: tl.constexpr,
    SINKS: tl.constexpr,
):
    """One pass over the partitions of a (query head, sequence), rescaling as the maximum grows."""
    head, seq = tl.program_id(0), tl.program_id(1)
    seq_len = tl.load(seq_lens + seq)
    first = 0
    if WINDOW:
        first = tl.maximum(seq_len - sliding_window, 0) // PARTITION_SIZE
    elements = tl.arange(0, HEAD_PADDED)
    inside = elements < HEAD_SIZE
    max_score = float("-inf")
    total = 0.0
    if SINKS:  # a sink takes its share of the weight and gives no value
        max_score = tl.load(sinks + head) * LOG2_E
        total = 1.0
    acc = tl.zeros([HEAD_PADDED], dtype=tl.float32)
    place = (seq.to(tl.int64) * tl.num_programs(0) + head) * num_partitions
    for partition in range(first, tl.cdiv(seq_len, PARTITION_SIZE)):
        partition_max = tl.load(partial_stats + (place + partition) * 2)
        new_max = tl.maximum(max_score, partition_max)
        rescale, weight = tl.exp2(max_score - new_max), tl.exp2(partition_max - new_max)
        total = total * rescale + tl.load(partial_stats + (place + partition) * 2 + 1) * weight
        row = tl.load(partial_out + (place + partition) * HEAD_SIZE + elements, mask=inside, other=0.0)
        acc = acc * rescale + row * weight
        max_score = new_max
    acc = acc / tl.where(seq_len > 0, total, 1.0)
    if QUANTIZED:
        acc *= tl.load(v_scale + head // GROUP * scale_stride)
    tl.store(
        out + (seq.to(tl.int64) * tl.num_programs(0) + head) * HEAD_SIZE + elements,
        acc.to(out.dtype.element_ty),
        mask=inside,
    )


def _signature(problem: Problem) -> Mapping[str, str]:
    return {
        "out": f"*{SCALAR_TYPES[problem.dtype]}",
        "partial_out": "*fp32",
        "partial_stats": "*fp32",
        "seq_lens": "*i32:1",
        "v_scale": "*fp32:1",
        "sinks": "*fp32:1",
        "sliding_window": "i32",
        "scale_stride": "i32",
        "num_partitions": "i32",
    }


def _constexprs(config: Config, problem: Problem) -> Mapping[str, Any]:
    return {
        "GROUP": problem.group,
        "HEAD_SIZE": problem.head_size,
        "HEAD_PADDED": triton.next_power_of_2(problem.head_size),
        "PARTITION_SIZE": config["PARTITION_SIZE"],
        "QUANTIZED": problem.quantized and "token_scales" not in problem.features,
        "WINDOW": "sliding_window" in problem.features,
        "SINKS": "sinks" in problem.features,
    }


def _launch(config: Config, problem: Problem, tensors: Tensors) -> Launch:
    t = tensors
    unused = t.workspace.stats
    return Launch(
        grid=(problem.num_heads, problem.num_seqs),
        block=(128,),
        arguments=(
            t.out,
            t.workspace.out,
            t.workspace.stats,
            t.seq_lens,
            scale_or_one(t.v_scale, problem, unused),
            unused if t.sinks is None else t.sinks,
            t.sliding_window or 0,
            scale_strides(t.v_scale)[1],
            t.workspace.count,
        ),
    )


REDUCTION = TritonStep(
    function=paged_attention_reduce,
    signature=_signature,
    constexprs=_constexprs,
    launcher=_launch,
)
