"""Checks of a paged cache, its scales and what says where its tokens are, before anything is written."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch

from workbench.attention.cache_formats.layouts import PagedGeometry, detect
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, LARGEST_SCALE, SMALLEST_SCALE, usable
from workbench.attention.ops.tensor_checks import (
    ALIGNMENT,
    check_dtype,
    check_groups,
    check_pages,
    check_vector,
    check_within,
    look_at_values,
)
from workbench.errors import ArgumentError


def check_caches(
    t: Any, layout: str | None, kv_cache_dtype: str, plain: Collection[torch.dtype], auto: str
) -> PagedGeometry:
    """Check ``key_cache`` and ``value_cache`` of a run's tensors, and find out their layout and sizes.

    ``plain`` is what a cache may have that is not quantized, ``auto`` says it in words.
    """
    if kv_cache_dtype not in ("auto", *CACHE_DTYPES):
        allowed = ", ".join(["auto", *CACHE_DTYPES])
        raise ArgumentError("kv_cache_dtype", repr(kv_cache_dtype), allowed, f'"auto" is {auto}.')
    wanted = plain if kv_cache_dtype == "auto" else [CACHE_DTYPES[kv_cache_dtype]]
    check_dtype("key_cache", t.key_cache, wanted, f'kv_cache_dtype is {kv_cache_dtype!r}, and "auto" is {auto}.')
    check_dtype("value_cache", t.value_cache, [t.key_cache.dtype], f"kv_cache_dtype is {kv_cache_dtype!r}.")
    geometry = detect(t.key_cache, t.value_cache, layout)
    check_pages("key_cache", t.key_cache)
    check_pages("value_cache", t.value_cache)
    return geometry


def page_fields(geometry: PagedGeometry, kv_cache_dtype: str) -> dict[str, Any]:
    """Return the fields of a problem that say what the pages of a cache hold, and how."""
    return {
        "num_kv_heads": geometry.num_kv_heads,
        "head_size": geometry.head_size,
        "layout": geometry.layout,
        "block_size": geometry.block_size,
        "kv_cache_dtype": kv_cache_dtype,
        "features": () if kv_cache_dtype == "auto" else (kv_cache_dtype,),
    }


def check_tables(t: Any, num_seqs: int) -> None:
    """Check dtype, shape and strides of ``block_tables`` and ``seq_lens``."""
    for name, shape, dim in (("block_tables", "[num_seqs, max_blocks]", 2), ("seq_lens", "[num_seqs]", 1)):
        tensor = getattr(t, name)
        check_dtype(name, tensor, [torch.int32])
        if tensor.dim() != dim or tensor.shape[0] != num_seqs:
            allowed = f"{shape} with num_seqs = {num_seqs}"
            raise ArgumentError(name, f"shape {tuple(tensor.shape)}", allowed, "One row per sequence.")
        if tensor.numel() and tensor.stride(-1) != 1:
            raise ArgumentError(name, f"strides {tensor.stride()}", "a last stride of 1", f"Call {name}.contiguous().")


def check_entries(t: Any, block_size: int, num_blocks: int) -> None:
    """Check lengths and entries in use, which a kernel would follow out of the cache, where `look_at_values` says."""
    if not look_at_values(t.seq_lens):
        return
    lengths, tables = t.seq_lens.long(), t.block_tables.long()
    capacity = tables.shape[1] * block_size
    meaning = f": tokens in the cache, in the {tables.shape[1]} pages of {block_size} of its row"
    check_within("seq_lens", lengths, 0, capacity, meaning, "Widen block_tables.")
    used = torch.arange(tables.shape[1], device=tables.device) * block_size < lengths[:, None]
    wrong = used & ((tables < 0) | (tables >= num_blocks))
    if wrong.any():
        seq, page = wrong.nonzero()[0].tolist()
        raise ArgumentError(
            f"block_tables[{seq}, {page}]",
            int(tables[seq, page]),
            f"0 to {num_blocks - 1}, the pages of the cache",
            f"Sequence {seq} of {int(lengths[seq])} tokens uses its first {int(used[seq].sum())} entries.",
        )


def as_scale(scale: torch.Tensor | float | None, like: torch.Tensor) -> torch.Tensor | None:
    """Return a number as a tensor ``[1] float32`` on the device of ``like``; return None and tensors unchanged."""
    if scale is None or isinstance(scale, torch.Tensor):
        return scale
    return torch.full((1,), float(scale), dtype=torch.float32, device=like.device)


def check_scales(t: Any, geometry: PagedGeometry, kv_cache_dtype: str) -> None:
    """Check ``k_scale`` and ``v_scale`` by `check_scale`."""
    for name in ("k_scale", "v_scale"):
        check_scale(name, getattr(t, name), geometry, kv_cache_dtype)


def check_scale(name: str, scale: torch.Tensor | None, geometry: PagedGeometry, kv_cache_dtype: str) -> None:
    """Check shape, dtype and, where that costs nothing, values of a scale."""
    if scale is None:
        return
    if kv_cache_dtype == "auto":
        raise ArgumentError(name, "a scale", "None for a cache that is not quantized", "Pass kv_cache_dtype= as well.")
    check_dtype(name, scale, [torch.float32])
    shapes = [
        (1,),
        (geometry.num_kv_heads,),
        (geometry.num_blocks, geometry.block_size, geometry.num_kv_heads),
    ]
    if kv_cache_dtype == "nvfp4":
        by_token = shapes.pop()
        if tuple(scale.shape) == by_token:
            raise ArgumentError(
                name,
                "a scale per token and head",
                f"{shapes[0]} or {shapes[1]} for nvfp4, which has a scale for every 16 elements in its pages",
                "Pass a scale per tensor or KV head: one that covers the largest magnitude, as Calibration computes.",
            )
    if tuple(scale.shape) not in ((), *shapes):
        raise ArgumentError(
            name, f"shape {tuple(scale.shape)}", ", ".join(map(str, shapes)), "Per tensor, KV head or token."
        )
    if not scale.is_contiguous():
        raise ArgumentError(name, f"strides {scale.stride()}", "a contiguous tensor", f"Call {name}.contiguous().")
    # Scales per token are not all in use: what stands in a free slot is nobody's business.
    if scale.dim() < 3 and look_at_values(scale) and not usable(scale):
        raise ArgumentError(
            name,
            "a value that is not above 0, or not finite",
            f"{SMALLEST_SCALE:.1e} to {LARGEST_SCALE:.1e}",
            "Elements are multiplied by its reciprocal when they are stored.",
        )


def check_read_caches(t: Any, layout: str | None, kv_cache_dtype: str) -> PagedGeometry:
    """Check the caches that the queries of a run attend to, and find out their layout and sizes."""
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
    # Kernels rely on the distance between pages being a multiple of ALIGNMENT elements, whatever their size.
    for name, cache in (("key_cache", t.key_cache), ("value_cache", t.value_cache)):
        if cache.shape[0] > 1 and cache.stride(0) % ALIGNMENT:
            raise ArgumentError(
                name,
                f"pages {cache.stride(0)} elements apart",
                f"a multiple of {ALIGNMENT}",
                f"Call {name}.contiguous(); pages of at least 16 elements per head keep the rule.",
            )
    return geometry


def check_features(t: Any, geometry: PagedGeometry, kv_cache_dtype: str) -> None:
    """Check what a run asks for beyond plain attention, and the scales of its cache."""
    for name in ("alibi_slopes", "sinks"):
        given = getattr(t, name, None)
        if given is not None:
            check_vector(name, given, t.query.shape[1], torch.float32, "Pass one per head.")
    if t.sliding_window is not None and t.sliding_window < 1:
        raise ArgumentError(
            "sliding_window", t.sliding_window, "1 or more tokens, including the newest", "Pass None for no window."
        )
    if t.soft_cap is not None and not 0 < t.soft_cap < math.inf:
        raise ArgumentError("soft_cap", t.soft_cap, "a positive finite number", "Pass None for no cap.")
    check_scales(t, geometry, kv_cache_dtype)


def features_of(t: Any, kv_cache_dtype: str) -> tuple[str, ...]:
    """Return the names of what a run asks for beyond plain attention, and of how its cache is quantized."""
    given = {
        "alibi": getattr(t, "alibi_slopes", None) is not None,
        "sliding_window": t.sliding_window is not None,
        "soft_cap": t.soft_cap is not None,
        "sinks": t.sinks is not None,
        "tree": getattr(t, "tree_mask", None) is not None,
        kv_cache_dtype: kv_cache_dtype != "auto",
        "token_scales": any(scale is not None and scale.dim() == 3 for scale in (t.k_scale, t.v_scale)),
    }
    return tuple(name for name, wanted in given.items() if wanted)
