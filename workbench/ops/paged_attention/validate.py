"""Refusing input that a kernel would silently misread, before anything is written.

Every refusal is an `ArgumentError` that names the argument, what came, what is allowed and the remedy.
"""

from __future__ import annotations

import math

import torch

from workbench.cache_formats.layouts import PagedGeometry
from workbench.errors import ArgumentError
from workbench.ops.arguments import ALIGNMENT, check_groups, check_out, check_query, check_vector, dtype_name
from workbench.ops.cache_arguments import check_caches, check_entries, check_tables
from workbench.ops.dispatch import arch_of, multiprocessors_of
from workbench.ops.element_types import DTYPES
from workbench.ops.paged_attention.problem import Problem, Tensors
from workbench.ops.scales import check_scale


def problem_of(t: Tensors, *, layout: str | None, kv_cache_dtype: str) -> Problem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, values; describe the problem.

    On a GPU the longest length is taken to be all that the block table can hold, because reading ``seq_lens`` would
    wait for the GPU and could not be captured in a CUDA graph.

    Raises:
        ArgumentError: for the first argument that cannot be used.
    """
    check_query(t.query, t.scale, DTYPES.values())
    geometry = _check_cache(t, layout, kv_cache_dtype)
    check_tables(t, len(t.query))
    _check_features(t, geometry, kv_cache_dtype)
    check_out(t.out, t.query)
    num_seqs, num_heads, head_size = t.query.shape
    if t.query.is_cuda:
        longest = t.block_tables.shape[1] * geometry.block_size
        total = longest * num_seqs
    else:
        longest, total = (int(t.seq_lens.max()), int(t.seq_lens.sum())) if num_seqs else (0, 0)
    check_entries(t, geometry.block_size)
    return Problem(
        num_seqs=num_seqs,
        num_heads=num_heads,
        num_kv_heads=geometry.num_kv_heads,
        head_size=head_size,
        max_seq_len=longest,
        total_tokens=total,
        dtype=dtype_name(t.query.dtype),
        layout=geometry.layout,
        block_size=geometry.block_size,
        kv_cache_dtype=kv_cache_dtype,
        features=_features(t, kv_cache_dtype),
        arch=arch_of(t.query),
        multiprocessors=multiprocessors_of(t.query),
    )


def _check_cache(t: Tensors, layout: str | None, kv_cache_dtype: str) -> PagedGeometry:
    geometry = check_caches(t, layout, kv_cache_dtype, [t.query.dtype], f"the query's dtype, {t.query.dtype}")
    if geometry.head_size != t.query.shape[2]:
        raise ArgumentError(
            "key_cache",
            f"head_size {geometry.head_size}",
            f"{t.query.shape[2]}, that of query",
            f"Check layout={geometry.layout!r}.",
        )
    remedy = f"Check layout={geometry.layout!r}, or pass every head of a group."
    check_groups(t.query.shape[1], geometry.num_kv_heads, remedy)
    # Kernels count on pages that are multiples of so many elements apart, whatever their size.
    for name, cache in (("key_cache", t.key_cache), ("value_cache", t.value_cache)):
        if cache.shape[0] > 1 and cache.stride(0) % ALIGNMENT:
            raise ArgumentError(
                name,
                f"pages {cache.stride(0)} elements apart",
                f"a multiple of {ALIGNMENT}",
                f"Call {name}.contiguous(); pages of at least 16 elements per head keep the rule.",
            )
    return geometry


def _check_features(t: Tensors, geometry: PagedGeometry, kv_cache_dtype: str) -> None:
    for name in ("alibi_slopes", "sinks"):
        if getattr(t, name) is not None:
            check_vector(name, getattr(t, name), t.query.shape[1], torch.float32, "Pass one per head.")
    if t.sliding_window is not None and t.sliding_window < 1:
        raise ArgumentError(
            "sliding_window", t.sliding_window, "1 or more tokens, the newest included", "Pass None for no window."
        )
    if t.soft_cap is not None and not 0 < t.soft_cap < math.inf:
        raise ArgumentError("soft_cap", t.soft_cap, "a positive finite number", "Pass None for no cap.")
    for name in ("k_scale", "v_scale"):
        check_scale(name, getattr(t, name), geometry, kv_cache_dtype)


def _features(t: Tensors, kv_cache_dtype: str) -> tuple[str, ...]:
    given = {
        "alibi": t.alibi_slopes is not None,
        "sliding_window": t.sliding_window is not None,
        "soft_cap": t.soft_cap is not None,
        "sinks": t.sinks is not None,
        kv_cache_dtype: kv_cache_dtype != "auto",
        "token_scales": any(scale is not None and scale.dim() == 3 for scale in (t.k_scale, t.v_scale)),
    }
    return tuple(name for name, wanted in given.items() if wanted)
