# mypy: allow-untyped-defs, allow-incomplete-defs
"""Triton functions on the partitions of a sequence, whose results the program that is done last combines."""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


def partitions_at_once(head_size: int, num_warps: int) -> int:
    """Return the number of a head's partitions that are loaded together: 32 values per thread."""
    return max(1, min(1024 * num_warps // triton.next_power_of_2(head_size), 64))


@triton.jit
def last_to_arrive(counter, count):
    """Return True if this program is the last of ``count`` to arrive; then it sees all that the others wrote before.

    The int32 counter is then back at 0. Method: threadFenceReduction of NVIDIA's CUDA samples.
    """
    tl.debug_barrier()  # every thread has written
    last = tl.atomic_add(counter, 1, sem="acq_rel") == count - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def partitions_of(seq_len, sliding_window, PARTITION_SIZE: tl.constexpr, WINDOW: tl.constexpr):
    """Return (first, last + 1) of the partitions with tokens that a sequence sees."""
    first = 0
    if WINDOW:
        first = tl.maximum(seq_len - sliding_window, 0) // PARTITION_SIZE
    return first, tl.cdiv(seq_len, PARTITION_SIZE)


@triton.jit
def tokens_of(partition, seq_len, sliding_window, PARTITION_SIZE: tl.constexpr, WINDOW: tl.constexpr):
    """Return (first, last + 1) of the tokens of a partition that a sequence sees."""
    begin = partition * PARTITION_SIZE
    if WINDOW:
        begin = tl.maximum(begin, seq_len - sliding_window)
    return begin, tl.minimum((partition + 1) * PARTITION_SIZE, seq_len)


@triton.jit
def average(values, total, max_score, sink):
    """Divide sums of weighted values by the sum of their weights, which were taken under a maximum.

    A sink, a score in base 2, takes its share of the weight and gives no value; minus infinity is no sink.
    """
    return values / (total + tl.exp2(sink - max_score))


@triton.jit
def combine_partitions(
    partial_out,  # [partitions, HEAD_SIZE] fp32 of one head: sum of exp2(score - max) * V
    partial_stats,  # [partitions, 2] fp32: max and sum of the weights
    first,
    last,
    sink,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    AT_ONCE: tl.constexpr,  # partitions that are loaded together
):
    """Return ``[HEAD_PADDED] fp32``, the average over partitions ``[first, last)``, rescaled as the maximum grows."""
    elements = tl.arange(0, HEAD_PADDED)
    max_score = float("-inf")
    total = 0.0
    acc = tl.zeros([HEAD_PADDED], dtype=tl.float32)
    for start in tl.range(first, last, AT_ONCE, num_stages=1):
        partition = start + tl.arange(0, AT_ONCE)
        valid = partition < last
        partition_max = tl.load(partial_stats + partition * 2, mask=valid, other=float("-inf"))
        partition_sum = tl.load(partial_stats + partition * 2 + 1, mask=valid, other=0.0)
        rows = tl.load(
            partial_out + partition[:, None].to(tl.int64) * HEAD_SIZE + elements[None, :],
            mask=valid[:, None] & (elements < HEAD_SIZE)[None, :],
            other=0.0,
        )
        new_max = tl.maximum(max_score, tl.max(partition_max, axis=0))
        rescale, weight = tl.exp2(max_score - new_max), tl.exp2(partition_max - new_max)
        total = total * rescale + tl.sum(partition_sum * weight, axis=0)
        acc = acc * rescale + tl.sum(rows * weight[:, None], axis=0)
        max_score = new_max
    return average(acc, total, max_score, sink)


@triton.jit
def finish_partition(
    acc,  # [HEAD_PADDED] fp32: sum of exp2(score - max) * V of this partition
    elements,  # [HEAD_PADDED], those of the head where ``inside``
    inside,
    total,
    max_score,
    sink,
    out,  # [rows, HEAD_SIZE], a row for each sequence and query head
    partial_out,  # [rows, partitions, HEAD_SIZE] fp32
    partial_stats,  # [rows, partitions, 2] fp32
    counters,  # [rows] int32
    row,
    partition,
    seq_len,
    sliding_window,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    PARTITION_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Store the answer if a row has one partition; else leave the sums, which the program done last combines."""
    first, last = partitions_of(seq_len, sliding_window, PARTITION_SIZE, WINDOW)
    if last - first == 1:
        answer = average(acc, total, max_score, sink)
        tl.store(out + row * HEAD_SIZE + elements, answer.to(out.dtype.element_ty), mask=inside)
    else:
        first_place = row * tl.num_programs(2)
        place = first_place + partition
        tl.store(partial_stats + place * 2, max_score)
        tl.store(partial_stats + place * 2 + 1, total)
        tl.store(partial_out + place * HEAD_SIZE + elements, acc, mask=inside)
        if last_to_arrive(counters + row, last - first):
            sums, stats = partial_out + first_place * HEAD_SIZE, partial_stats + first_place * 2
            answer = combine_partitions(sums, stats, first, last, sink, HEAD_SIZE, HEAD_PADDED, AT_ONCE)
            tl.store(out + row * HEAD_SIZE + elements, answer.to(out.dtype.element_ty), mask=inside)
