"""Refusing input that a kernel would silently misread, before anything is written.

Every refusal is an `ArgumentError` that names the argument, what came, what is allowed and the remedy.
"""

from __future__ import annotations

import math

import torch

from workbench.errors import ArgumentError
from workbench.kvcache.layouts import PagedGeometry, detect
from workbench.kvcache.quantization import CACHE_DTYPES
from workbench.ops.arguments import ALIGNMENT, check_dtype, check_out, check_query, dtype_name, look_at_values
from workbench.ops.element_types import DTYPES
from workbench.ops.paged_attention.problem import Problem, Tensors
from workbench.ops.scales import check_scale


def problem_of(
    t: Tensors, *, layout: str | None, kv_cache_dtype: str, arch: str, multiprocessors: int | None = None
) -> Problem:
    """Check all metadata (dtypes, shapes, strides) and describe the problem.

    On a GPU the longest length is taken to be all that the block table can hold, because reading ``seq_lens`` would
    wait for the GPU and could not be captured in a CUDA graph.

    Raises:
        ArgumentError: for the first argument that cannot be used.
    """
    check_query(t.query, t.scale, DTYPES.values())
    geometry = _check_cache(t, layout, kv_cache_dtype)
    _check_tables(t)
    _check_features(t, geometry, kv_cache_dtype)
    check_out(t.out, t.query)
    num_seqs, num_heads, head_size = t.query.shape
    if t.query.is_cuda:
        longest = t.block_tables.shape[1] * geometry.block_size
        total = longest * num_seqs
    else:
        longest, total = (int(t.seq_lens.max()), int(t.seq_lens.sum())) if num_seqs else (0, 0)
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
        arch=arch,
        multiprocessors=multiprocessors,
    )


def check_values(t: Tensors, num_blocks: int, block_size: int) -> None:
    """Check lengths and block-table entries, which a kernel would follow out of the cache.

    Always on a CPU; on a GPU only with ``WORKBENCH_CHECK_INDICES=1``, because it waits for the GPU.

    Raises:
        ArgumentError: a negative length, one beyond the table, or an entry in use that is no page of the cache.
    """
    if not look_at_values(t.seq_lens):
        return
    lengths, tables = t.seq_lens.long(), t.block_tables.long()
    capacity = tables.shape[1] * block_size
    for wrong, allowed, remedy in (
        (lengths < 0, "0 or more", "A length counts the tokens in the cache, the newest included."),
        (lengths > capacity, f"at most {tables.shape[1]} pages * {block_size} = {capacity}", "Widen block_tables."),
    ):
        if wrong.any():
            seq = int(wrong.nonzero()[0])
            raise ArgumentError(f"seq_lens[{seq}]", int(lengths[seq]), allowed, remedy)
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


def _check_cache(t: Tensors, layout: str | None, kv_cache_dtype: str) -> PagedGeometry:
    if kv_cache_dtype not in ("auto", *CACHE_DTYPES):
        raise ArgumentError(
            "kv_cache_dtype", repr(kv_cache_dtype), ", ".join(["auto", *CACHE_DTYPES]), '"auto" is the query\'s dtype.'
        )
    wanted = t.query.dtype if kv_cache_dtype == "auto" else CACHE_DTYPES[kv_cache_dtype]
    for name in ("key_cache", "value_cache"):
        cache = getattr(t, name)
        check_dtype(name, cache, [wanted], f"kv_cache_dtype is {kv_cache_dtype!r} and query is {t.query.dtype}.")
    geometry = detect(t.key_cache, t.value_cache, layout)
    if geometry.head_size != t.query.shape[2]:
        raise ArgumentError(
            "key_cache",
            f"head_size {geometry.head_size}",
            f"{t.query.shape[2]}, that of query",
            f"Check layout={geometry.layout!r}.",
        )
    if geometry.num_kv_heads == 0 or t.query.shape[1] % geometry.num_kv_heads:
        raise ArgumentError(
            "query",
            f"{t.query.shape[1]} heads",
            f"a multiple of the cache's {geometry.num_kv_heads} KV heads",
            f"Check layout={geometry.layout!r}, or pass every head of a group.",
        )
    for name in ("key_cache", "value_cache"):
        _check_pages(name, getattr(t, name))
    return geometry


def _check_pages(name: str, cache: torch.Tensor) -> None:
    dense = 1
    for size, stride in zip(reversed(cache.shape[1:]), reversed(cache.stride()[1:]), strict=True):
        if size != 1 and stride != dense:
            raise ArgumentError(name, f"strides {cache.stride()}", "each page contiguous", f"Call {name}.contiguous().")
        dense *= size
    if cache.shape[0] > 1 and (cache.stride(0) % ALIGNMENT or cache.stride(0) < dense):
        raise ArgumentError(
            name,
            f"pages {cache.stride(0)} elements apart",
            f"a multiple of {ALIGNMENT}, at least {dense}",
            f"Call {name}.contiguous(); pages of at least 16 elements per head keep the rule.",
        )
    if cache.data_ptr() % ALIGNMENT:
        raise ArgumentError(
            name,
            f"address {cache.data_ptr():#x}",
            f"a multiple of {ALIGNMENT} bytes, for 16-byte loads",
            f"Call {name}.clone().",
        )


def _check_tables(t: Tensors) -> None:
    num_seqs = t.query.shape[0]
    for name, shape, dim in (("block_tables", "[num_seqs, max_blocks]", 2), ("seq_lens", "[num_seqs]", 1)):
        tensor = getattr(t, name)
        check_dtype(name, tensor, [torch.int32])
        if tensor.dim() != dim or tensor.shape[0] != num_seqs:
            raise ArgumentError(
                name, f"shape {tuple(tensor.shape)}", f"{shape} with num_seqs = {num_seqs}", "One row per query."
            )
        if tensor.numel() and tensor.stride(-1) != 1:
            raise ArgumentError(name, f"strides {tensor.stride()}", "a last stride of 1", f"Call {name}.contiguous().")


def _check_features(t: Tensors, geometry: PagedGeometry, kv_cache_dtype: str) -> None:
    num_heads = t.query.shape[1]
    for name in ("alibi_slopes", "sinks"):
        tensor = getattr(t, name)
        if tensor is None:
            continue
        check_dtype(name, tensor, [torch.float32])
        if tuple(tensor.shape) != (num_heads,):
            raise ArgumentError(name, f"shape {tuple(tensor.shape)}", f"({num_heads},): one per head", "Reshape it.")
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
