"""Refusing a read that would go wrong, before anything is written."""

from __future__ import annotations

from workbench.cache_formats.layouts import PagedGeometry
from workbench.errors import ArgumentError
from workbench.ops.arguments import ALIGNMENT, check_dtype, dtype_name, look_at_values
from workbench.ops.cache_arguments import check_caches, check_entries, check_tables
from workbench.ops.dispatch import arch_of
from workbench.ops.element_types import DTYPES
from workbench.ops.gather_cache.problem import Problem, Tensors
from workbench.ops.scales import check_scale


def problem_of(t: Tensors, *, layout: str | None, kv_cache_dtype: str) -> Problem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, values; describe the problem.

    On a GPU the longest length is taken to be all that the block table can hold, because reading ``seq_lens`` would
    wait for the GPU and could not be captured in a CUDA graph.

    Raises:
        ArgumentError: for the first argument that cannot be used.
    """
    geometry = _check_caches(t, layout, kv_cache_dtype)
    check_tables(t, len(t.seq_lens))
    for name, scale in (("k_scale", t.k_scale), ("v_scale", t.v_scale)):
        check_scale(name, scale, geometry, kv_cache_dtype)
    num_seqs, max_blocks = t.block_tables.shape
    longest = max_blocks * geometry.block_size
    if look_at_values(t.seq_lens):
        longest = int(t.seq_lens.max()) if num_seqs else 0
    check_entries(t, geometry.block_size)
    total = int(t.seq_lens.sum()) if look_at_values(t.seq_lens) else len(t.keys)
    if total != len(t.keys):
        raise ArgumentError("out", f"{len(t.keys)} tokens", f"{total}, the sum of seq_lens", "Pass None.")
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
        arch=arch_of(t.key_cache),
    )


def _check_caches(t: Tensors, layout: str | None, kv_cache_dtype: str) -> PagedGeometry:
    geometry = check_caches(t, layout, kv_cache_dtype, DTYPES.values(), "not quantized")
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
