"""`gather_cache`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.attention.cache_formats.layouts import PagedGeometry, detect
from workbench.attention.ops.cache_arguments import (
    as_scale,
    check_caches,
    check_entries,
    check_scales,
    check_tables,
    page_fields,
)
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.gather_cache.problem import GatherCacheProblem, GatherCacheTensors
from workbench.attention.ops.tensor_checks import ALIGNMENT, check_dtype, look_at_values
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def gather_cache(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    kv_cache_dtype: str = "auto",
    k_scale: torch.Tensor | float | None = None,
    v_scale: torch.Tensor | float | None = None,
    layout: str | None = None,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gather the keys and values of sequences side by side, for chunked prefill, prefix reuse or plain attention.

    Sequence i starts at ``seq_lens[:i].sum()``. Elements of a quantized cache are multiplied by their scale in fp32 and
    rounded to ``dtype``; others keep their bits.

    Args:
        key_cache: see `workbench.attention.cache_formats.layouts`; pages contiguous, starting on 16 bytes.
        value_cache: as key_cache.
        block_tables: ``[num_seqs, max_blocks] int32``, the page of each ``block_size`` tokens.
        seq_lens: ``[num_seqs] int32`` in tokens.
        dtype: dtype of the result for a quantized cache: float32 (default), float16 or bfloat16. The result of any
            other cache has the cache's own dtype.
        kv_cache_dtype: as in `workbench.attention.ops.paged_attention`.
        k_scale: as in `workbench.attention.ops.paged_attention`.
        v_scale: as in `workbench.attention.ops.paged_attention`.
        layout: "x", "nhd" or "hnd"; may be left out for a 5-D key cache, which is "x".
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensors to write, a pair as returned, contiguous, in memory of their own. Without it the call waits for
            ``seq_lens`` on a GPU, because the size of the result depends on them.

    Returns:
        ``keys, values [total_tokens, num_kv_heads, head_size]``.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Lengths and table entries on a GPU are
            checked only with ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    scales = as_scale(k_scale, key_cache), as_scale(v_scale, key_cache)
    if out is not None and len(out) != 2:
        raise ArgumentError("out", f"{len(out)} tensors", "two: keys and values", "Leave it out to get new tensors.")
    keys, values = out or (None, None)
    t = GatherCacheTensors(key_cache, value_cache, block_tables, seq_lens, keys, values, *scales)
    OP.check(t)
    if out is None:
        geometry = detect(key_cache, value_cache, layout)
        check_tables(t, len(seq_lens) if seq_lens.dim() else 0)
        check_entries(t, geometry.block_size, geometry.num_blocks)
        wanted = dtype or (key_cache.dtype if kv_cache_dtype == "auto" else torch.float32)
        shape = (int(seq_lens.sum()), geometry.num_kv_heads, geometry.head_size)
        if shape[0] < 0:  # lengths on a GPU have not been checked
            raise ArgumentError("seq_lens", f"{shape[0]} tokens in all", "lengths of 0 or more", "Check seq_lens.")
        t.keys, t.values = (torch.empty(shape, dtype=wanted, device=key_cache.device) for _ in range(2))
    elif dtype not in (None, t.keys.dtype):
        raise ArgumentError("dtype", dtype, f"{t.keys.dtype}, that of out", "Leave it out.")
    OP.run(t, layout=layout, kv_cache_dtype=kv_cache_dtype, variant=variant, config=config)
    return t.keys, t.values


def _find_starts(t: GatherCacheTensors) -> None:
    t.starts = torch.cumsum(t.seq_lens, 0) - t.seq_lens  # int64


def problem_of(t: GatherCacheTensors, *, layout: str | None = None, kv_cache_dtype: str = "auto") -> GatherCacheProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, values; describe the problem.

    On a GPU the longest length is taken to be the capacity of the block table, because reading ``seq_lens`` would wait
    for the GPU and could not be captured in a CUDA graph.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    geometry = _check_caches(t, layout, kv_cache_dtype)
    check_tables(t, len(t.seq_lens))
    check_scales(t, geometry, kv_cache_dtype)
    num_seqs, max_blocks = t.block_tables.shape
    longest = max_blocks * geometry.block_size
    if look_at_values(t.seq_lens):
        longest = int(t.seq_lens.max()) if num_seqs else 0
    check_entries(t, geometry.block_size, geometry.num_blocks)
    total = int(t.seq_lens.sum()) if look_at_values(t.seq_lens) else len(t.keys)
    if total != len(t.keys):
        raise ArgumentError("out", f"{len(t.keys)} tokens", f"{total}, the sum of seq_lens", "Pass None.")
    return GatherCacheProblem(
        num_seqs=num_seqs,
        max_seq_len=longest,
        num_tokens=len(t.keys),
        dtype=dtype_name(t.keys.dtype),
        arch=arch_of(t.key_cache),
        **page_fields(geometry, kv_cache_dtype),
    )


def _check_caches(t: GatherCacheTensors, layout: str | None, kv_cache_dtype: str) -> PagedGeometry:
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


OP: DescribedOp = op(
    name="gather_cache",
    tensors=GatherCacheTensors,
    in_place=("keys", "values"),
    like="keys",
    make=_find_starts,
    labels={"keys": "out[0]", "values": "out[1]"},
    namespace="workbench",
)(problem_of)
