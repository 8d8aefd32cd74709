"""Refusing input that a kernel would silently misread, before anything is written."""

from __future__ import annotations

import torch

from workbench.errors import ArgumentError
from workbench.ops.arguments import (
    check_dtype,
    check_groups,
    check_out,
    check_pages,
    check_query,
    check_vector,
    check_within,
    dtype_name,
    look_at_values,
)
from workbench.ops.contiguous_attention.problem import Problem, Tensors
from workbench.ops.dispatch import arch_of
from workbench.ops.element_types import DTYPES


def problem_of(t: Tensors) -> Problem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, values; describe the problem.

    On a GPU the longest length is taken to be what a row has room for, because reading ``seq_lens`` would wait.

    Raises:
        ArgumentError: for the first argument that cannot be used.
    """
    check_query(t.query, t.scale, DTYPES.values())
    _check_cache(t)
    for name in ("seq_lens", "cache_rows"):
        check_vector(name, getattr(t, name), t.query.shape[0], torch.int32, "One entry per query.")
    check_out(t.out, t.query)
    num_seqs, num_heads, head_size = t.query.shape
    _, _, num_kv_heads, max_seqlen, _ = t.kv_cache.shape
    longest, total = max_seqlen, max_seqlen * num_seqs
    if not t.query.is_cuda:
        longest, total = (int(t.seq_lens.max()), int(t.seq_lens.sum())) if num_seqs else (0, 0)
    _check_values(t)
    return Problem(
        num_seqs=num_seqs,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        max_seqlen=max_seqlen,
        max_seq_len=longest,
        total_tokens=total,
        dtype=dtype_name(t.query.dtype),
        arch=arch_of(t.query),
    )


def _check_values(t: Tensors) -> None:
    """Lengths and rows, which a kernel would follow out of the cache."""
    if not look_at_values(t.seq_lens):
        return
    rows, room = t.kv_cache.shape[0], t.kv_cache.shape[3]
    remedy = "A length counts the tokens in the cache, the newest included."
    check_within("seq_lens", t.seq_lens, 0, room, "", remedy)
    check_within("cache_rows", t.cache_rows, 0, rows - 1, "", f"The cache has {rows} rows.")


def _check_cache(t: Tensors) -> None:
    cache = t.kv_cache
    check_dtype("kv_cache", cache, [t.query.dtype], f"query is {t.query.dtype}.")
    if cache.dim() != 5 or cache.shape[1] != 2 or cache.shape[4] != t.query.shape[2] or 0 in cache.shape[2:4]:
        raise ArgumentError(
            "kv_cache",
            f"shape {tuple(cache.shape)}",
            f"[max_batch_size * max_beam_width, 2, num_kv_heads, max_seqlen, {t.query.shape[2]}]",
            "Keys are [:, 0], values [:, 1].",
        )
    check_groups(t.query.shape[1], cache.shape[2])
    check_pages("kv_cache", cache)
