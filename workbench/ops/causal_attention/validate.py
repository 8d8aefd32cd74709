"""Refusing input that would be misread, before anything is computed."""

from __future__ import annotations

import math

import torch

from workbench.errors import ArgumentError
from workbench.ops.arguments import (
    ALIGNMENT,
    alignment_of,
    check_devices,
    check_dtype,
    check_groups,
    check_vector,
    check_within,
    dtype_name,
    look_at_values,
)
from workbench.ops.causal_attention.problem import DTYPES, Problem, Tensors
from workbench.ops.dispatch import arch_of


def problem_of(t: Tensors, *, block_size: int = 16, alignment: int = ALIGNMENT, arch: str = "sm_80") -> Problem:
    """Check shapes, dtypes and devices of what is read, and describe the problem.

    ``alignment`` is in bytes, at most `ALIGNMENT`: every row ``[head_size]`` starts on a multiple of it.

    Raises:
        ArgumentError: for the first argument that cannot be used.
    """
    query, key, value = t.query, t.key, t.value
    check_devices("query", query, key=key, value=value, query_lens=t.query_lens, seq_lens=t.seq_lens)
    check_dtype("query", query, DTYPES.values())
    for name, tensor in (("query", query), ("key", key)):
        if tensor.dim() != 4 or 0 in tensor.shape[1:2] + tensor.shape[3:]:
            shape = "[num_seqs, num_heads, num_queries or num_tokens, head_size]"
            raise ArgumentError(name, f"shape {tuple(tensor.shape)}", shape, "Heads come before tokens.")
    num_seqs, num_heads, num_queries, head_size = query.shape
    if (key.shape[0], key.shape[3]) != (num_seqs, head_size):
        raise ArgumentError(
            "key",
            f"shape {tuple(key.shape)}",
            f"({num_seqs}, num_kv_heads, num_tokens, {head_size}), as query",
            "Same sequences and head size.",
        )
    check_groups(num_heads, key.shape[1])
    if num_queries > key.shape[2]:
        raise ArgumentError(
            "query",
            f"{num_queries} tokens",
            f"at most the {key.shape[2]} of key",
            "The queries are the last of the tokens, so their keys are among key.",
        )
    if value.shape != key.shape:
        raise ArgumentError("value", f"shape {tuple(value.shape)}", f"{tuple(key.shape)}, as key", "Reshape it.")
    for name, tensor in (("key", key), ("value", value)):
        check_dtype(name, tensor, [query.dtype])
    for name in ("query_lens", "seq_lens"):
        if getattr(t, name) is not None:
            check_vector(name, getattr(t, name), num_seqs, torch.int32, "One entry per sequence.")
    if not isinstance(block_size, int) or block_size < 1:
        raise ArgumentError("block_size", block_size, "1 or more tokens", "16 is usual.")
    if t.scale is not None and not math.isfinite(t.scale):
        raise ArgumentError("scale", t.scale, "a finite number", "The default is head_size ** -0.5.")
    return Problem(
        num_seqs=num_seqs,
        num_heads=num_heads,
        num_kv_heads=key.shape[1],
        num_queries=num_queries,
        num_tokens=key.shape[2],
        head_size=head_size,
        dtype=dtype_name(query.dtype),
        block_size=block_size,
        alignment=alignment,
        features=() if t.seq_lens is None and t.query_lens is None else ("lengths",),
        arch=arch,
    )


def kernel_problem_of(t: Tensors) -> Problem:
    """`problem_of` a run of a kernel, with what that depends on: where rows start, the GPU, lengths that are legal."""
    sides = t.query, t.key, t.value
    rows_apart = any(side.stride(-1) != 1 for side in sides)  # or their elements are
    problem = problem_of(t, alignment=1 if rows_apart else alignment_of(*sides), arch=arch_of(t.query))
    check_lengths(t)
    return problem


def check_lengths(t: Tensors) -> None:
    """Check the lengths of sequences: always on a CPU, on a GPU only with ``WORKBENCH_CHECK_INDICES=1``.

    Raises:
        ArgumentError: names the first that is outside.
    """
    if t.seq_lens is None or not look_at_values(t.seq_lens):
        return
    num_queries, num_tokens = t.query.shape[2], t.key.shape[2]
    check_within("seq_lens", t.seq_lens, 0, num_tokens, ", the tokens of key", "The rest of a row is padding.")
    check_within("query_lens", t.query_lens, 0, num_queries, ", the tokens of query", "The rest of a row is padding.")
    for seq, (queries, tokens) in enumerate(zip(t.query_lens.tolist(), t.seq_lens.tolist(), strict=True)):
        if queries > tokens:
            remedy = "The queries are the last of the tokens, so their keys are among key."
            raise ArgumentError(f"query_lens[{seq}]", queries, f"at most seq_lens[{seq}] = {tokens}", remedy)
