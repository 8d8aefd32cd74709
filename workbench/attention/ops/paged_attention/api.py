"""`paged_attention`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.attention.ops.cache_arguments import (
    as_scale,
    check_entries,
    check_features,
    check_read_caches,
    check_tables,
    features_of,
)
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem, PagedAttentionTensors
from workbench.attention.ops.tensor_checks import check_out, check_query, check_query_shape
from workbench.base.packages import names_wrong_kinds
from workbench.ops import DescribedOp, arch_of, multiprocessors_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    scale: float | None = None,
    layout: str | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
    kv_cache_dtype: str = "auto",
    k_scale: torch.Tensor | float | None = None,
    v_scale: torch.Tensor | float | None = None,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the attention of every sequence's newest token over its paged cache of keys and values.

    The result is ``softmax(scale * q K^T) V`` over the ``seq_lens[i]`` tokens of sequence i, including the newest,
    which is already in the cache; ``workbench/attention/ops/paged_attention/reference.py`` has the formula with all
    features. A sequence without tokens gives zeros. Method: Kwon et al., "Efficient Memory Management for LLM Serving
    with PagedAttention", 2023.

    Args:
        query: ``[num_seqs, num_heads, head_size]`` float32, float16 or bfloat16; rows may be apart.
        key_cache: see `workbench.attention.cache_formats.layouts`; pages contiguous, starting on 16 bytes.
        value_cache: as key_cache.
        block_tables: ``[num_seqs, max_blocks] int32``, the page of each ``block_size`` tokens.
        seq_lens: ``[num_seqs] int32`` in tokens.
        scale: factor of the scores; default ``head_size ** -0.5``.
        layout: "x", "nhd" or "hnd"; may be left out for a 5-D key cache, which is "x".
        alibi_slopes: ``[num_heads] float32``, the slopes of position biases.
        sliding_window: number of tokens that are seen, including the newest.
        soft_cap: scores become ``soft_cap * tanh(score / soft_cap)``.
        sinks: ``[num_heads] float32``, scores that take weight and give no value.
        kv_cache_dtype: "auto" (the query's dtype), "fp8_e4m3", "fp8_e5m2", "int8", or "nvfp4", whose caches are bytes
            in layout "nhd" or "hnd", as `workbench.attention.cache_formats.nvfp4` has them.
        k_scale: dequantization scale of a quantized key cache: a number, or float32 per tensor ``[1]``, per KV head
            ``[num_kv_heads]`` or per token and head ``[num_blocks, block_size, num_kv_heads]`` (not for nvfp4,
            which has scales in its pages); default 1.
        v_scale: dequantization scale of a quantized value cache, as k_scale.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU, or the torch variant if no
            kernel supports the problem), "tuned" (the winner in the tuned table; with CPU tensors the simulator's, run
            in the simulator), or a variant's name, which on a CPU runs in the simulator. A named variant takes its
            tuned configuration for this page size if there is one, else its default. The simulator runs code for
            sm_80, or for sm_89 if Triton reads fp8_e4m3, which it supports from sm_89 on.
        config: the configuration to use instead; needs a named variant.
        out: the tensor to write, like query, contiguous, in memory of its own; default a new tensor.

    Returns:
        ``out``, ``[num_seqs, num_heads, head_size]`` in the query's dtype. There is no backward.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Lengths and table entries on a GPU are
            checked only with ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    check_query_shape(query)
    scale = float(query.shape[-1] ** -0.5 if scale is None else scale)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device) if out is None else out
    read = query, key_cache, value_cache, block_tables, seq_lens
    features = alibi_slopes, sliding_window, soft_cap, sinks
    t = PagedAttentionTensors(*read, scale, out, *features, as_scale(k_scale, query), as_scale(v_scale, query))
    OP.run(t, layout=layout, kv_cache_dtype=kv_cache_dtype, variant=variant, config=config)
    return out


def problem_of(
    t: PagedAttentionTensors, *, layout: str | None = None, kv_cache_dtype: str = "auto"
) -> PagedAttentionProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, values; describe the problem.

    On a GPU the longest length is taken to be the capacity of the block table, because reading ``seq_lens`` would wait
    for the GPU and could not be captured in a CUDA graph.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    check_query(t.query, t.scale, DTYPES.values())
    geometry = check_read_caches(t, layout, kv_cache_dtype)
    check_tables(t, len(t.query))
    check_features(t, geometry, kv_cache_dtype)
    check_out(t.out, t.query)
    num_seqs, num_heads, head_size = t.query.shape
    if t.query.is_cuda:
        longest = t.block_tables.shape[1] * geometry.block_size
        total = longest * num_seqs
    else:
        longest, total = (int(t.seq_lens.max()), int(t.seq_lens.sum())) if num_seqs else (0, 0)
    check_entries(t, geometry.block_size, geometry.num_blocks)
    return PagedAttentionProblem(
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
        features=features_of(t, kv_cache_dtype),
        arch=arch_of(t.query),
        multiprocessors=multiprocessors_of(t.query),
    )


OP: DescribedOp = op(name="paged_attention", tensors=PagedAttentionTensors, in_place=("out",), namespace="workbench")(
    problem_of
)
