"""Refusing a read that would go wrong, before anything is written."""

from __future__ import annotations

import torch

from workbench.errors import ArgumentError
from workbench.kvcache.layouts import PagedGeometry, detect
from workbench.kvcache.quantization import CACHE_DTYPES
from workbench.ops.arguments import ALIGNMENT, check_dtype, check_pages, dtype_name, look_at_values
from workbench.ops.element_types import DTYPES
from workbench.ops.gather_cache.problem import Problem, Tensors
from workbench.ops.scales import check_scale


def problem_of(t: Tensors, *, layout: str | None, kv_cache_dtype: str, arch: str) -> Problem:
    """Check all metadata (dtypes, shapes, strides) and describe the problem.

    On a GPU the longest length is taken to be all that the block table can hold, because reading ``seq_lens`` would
    wait for the GPU and could not be captured in a CUDA graph.

    Raises:
        ArgumentError: for the first argument that cannot be used.
    """
    geometry = _check_caches(t, layout, kv_cache_dtype)
    _check_tables(t)
    for name, scale in (("k_scale", t.k_scale), ("v_scale", t.v_scale)):
        check_scale(name, scale, geometry, kv_cache_dtype)
    num_seqs, max_blocks = t.block_tables.shape
    longest = max_blocks * geometry.block_size
    if look_at_values(t.seq_lens):
        longest = int(t.seq_lens.max()) if num_seqs else 0
    return Problem(
        num_seqs=num_seqs,
        max_seq_len=longest,
        num_tokens=len(t.keys),
        num_kv_heads=geometry.num_kv_heads,
        head_size=geometry.head_size,
        dtype=dtype_name(t.keys.dtype),
        layout=geometry.layout,
        block_size=geometry.block_size,
        kv_cache_dtype=kv_cache_dtype,
        features=() if kv_cache_dtype == "auto" else (kv_cache_dtype,),
        arch=arch,
    )


def check_values(t: Tensors, problem: Problem) -> None:
    """Check lengths and block-table entries, which a kernel would follow out of the cache.

    Always on a CPU; on a GPU only with ``WORKBENCH_CHECK_INDICES=1``, because it waits for the GPU.

    Raises:
        ArgumentError: a length below 0 or beyond the table, lengths that do not fill the result, or an entry in use
            that is no page of the cache.
    """
    if not look_at_values(t.seq_lens):
        return
    lengths, tables = t.seq_lens.long(), t.block_tables.long()
    room = tables.shape[1] * problem.block_size
    wrong = (lengths < 0) | (lengths > room)
    if wrong.any():
        seq = int(wrong.nonzero()[0])
        raise ArgumentError(
            f"seq_lens[{seq}]", int(lengths[seq]), f"0 to {room}, what its row holds", "Widen the table."
        )
    if int(lengths.sum()) != problem.num_tokens:
        raise ArgumentError(
            "out", f"{problem.num_tokens} tokens", f"{int(lengths.sum())}, the sum of seq_lens", "Pass None."
        )
    used = torch.arange(tables.shape[1], device=tables.device) * problem.block_size < lengths[:, None]
    wrong = used & ((tables < 0) | (tables >= len(t.key_cache)))
    if wrong.any():
        seq, page = wrong.nonzero()[0].tolist()
        raise ArgumentError(
            f"block_tables[{seq}, {page}]",
            int(tables[seq, page]),
            f"0 to {len(t.key_cache) - 1}, the pages of the cache",
            f"Sequence {seq} of {int(lengths[seq])} tokens uses its first {int(used[seq].sum())} entries.",
        )


def _check_caches(t: Tensors, layout: str | None, kv_cache_dtype: str) -> PagedGeometry:
    if kv_cache_dtype not in ("auto", *CACHE_DTYPES):
        raise ArgumentError(
            "kv_cache_dtype", repr(kv_cache_dtype), ", ".join(["auto", *CACHE_DTYPES]), '"auto" is not quantized.'
        )
    wanted = DTYPES.values() if kv_cache_dtype == "auto" else [CACHE_DTYPES[kv_cache_dtype]]
    check_dtype("key_cache", t.key_cache, wanted, f"kv_cache_dtype is {kv_cache_dtype!r}.")
    check_dtype("value_cache", t.value_cache, [t.key_cache.dtype])
    geometry = detect(t.key_cache, t.value_cache, layout)
    check_pages("key_cache", t.key_cache)
    check_pages("value_cache", t.value_cache)
    for name, tensor in (("out[0]", t.keys), ("out[1]", t.values)):
        allowed = [t.key_cache.dtype] if kv_cache_dtype == "auto" else list(DTYPES.values())
        check_dtype(name, tensor, allowed if tensor is t.keys else [t.keys.dtype])
        shape = (len(t.keys), geometry.num_kv_heads, geometry.head_size)
        if tuple(tensor.shape) != shape or not tensor.is_contiguous() or tensor.data_ptr() % ALIGNMENT:
            raise ArgumentError(
                name,
                f"shape {tuple(tensor.shape)}, strides {tensor.stride()}, address {tensor.data_ptr():#x}",
                f"{shape}, contiguous, on {ALIGNMENT} bytes",
                "Pass None.",
            )
    return geometry


def _check_tables(t: Tensors) -> None:
    for name, dim in (("block_tables", 2), ("seq_lens", 1)):
        tensor = getattr(t, name)
        check_dtype(name, tensor, [torch.int32])
        if tensor.dim() != dim or len(tensor) != len(t.seq_lens):
            raise ArgumentError(
                name,
                f"shape {tuple(tensor.shape)}",
                "[num_seqs, max_blocks] and [num_seqs]",
                "One row of the table per length.",
            )
        if tensor.numel() and tensor.stride(-1) != 1:
            raise ArgumentError(name, f"strides {tensor.stride()}", "a last stride of 1", f"Call {name}.contiguous().")
