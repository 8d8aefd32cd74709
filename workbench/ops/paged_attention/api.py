"""The function that users import: checks its arguments, chooses a variant and configuration, runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.argument_kinds import names_wrong_kinds
from workbench.ops.arguments import check_query_shape
from workbench.ops.library_op import LibraryOp
from workbench.ops.paged_attention.problem import Tensors
from workbench.ops.paged_attention.validate import problem_of
from workbench.ops.scales import as_scale


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
    """Attention of the newest token of every sequence over its paged cache of keys and values.

    ``softmax(scale * q K^T) V`` over the ``seq_lens[i]`` tokens of sequence i, the newest (already in the cache)
    included; the formula with all features stands in ``workbench/ops/paged_attention/reference.py``. A sequence of no
    tokens gives zeros. Method: Kwon et al., "Efficient Memory Management for LLM Serving with PagedAttention", 2023.

    Args:
        query: ``[num_seqs, num_heads, head_size]`` float32, float16 or bfloat16; rows may be apart.
        key_cache, value_cache: see `workbench.cache_formats.layouts`; pages contiguous, starting on 16 bytes.
        block_tables: ``[num_seqs, max_blocks] int32``, the page of each ``block_size`` tokens.
        seq_lens: ``[num_seqs] int32`` in tokens.
        scale: of the scores; default ``head_size ** -0.5``.
        layout: "x", "nhd" or "hnd"; may be left out for a 5-D key cache, which is "x".
        alibi_slopes, sinks: ``[num_heads] float32``.
        sliding_window: tokens that are seen, the newest included.
        soft_cap: scores become ``soft_cap * tanh(score / soft_cap)``.
        kv_cache_dtype: "auto" (the query's dtype), "fp8_e4m3", "fp8_e5m2" or "int8".
        k_scale, v_scale: dequantization scales of a quantized cache: a number, or float32 per tensor ``[1]``, per KV
            head ``[num_kv_heads]`` or per token and head ``[num_blocks, block_size, num_kv_heads]``; default 1.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU, or the torch variant for what
            no kernel of ours can do), "tuned" (the winner in the tuned table; with CPU tensors the simulator's, run in
            the simulator), or a variant's name, which on a CPU runs in the simulator, with its tuned configuration for
            this page size if there is one, else its default: as code for sm_80, or for sm_89 where Triton reads
            fp8_e4m3, which it has from there on.
        config: the configuration to use instead; needs a named variant.
        out: where to write, like query, contiguous, in memory of its own; default a new tensor.

    Returns:
        ``out``, ``[num_seqs, num_heads, head_size]`` in the query's dtype. There is no backward.

    Raises:
        ArgumentError: anything above that does not hold; nothing is written then. Lengths and table entries on a GPU
            are only looked at with ``WORKBENCH_CHECK_INDICES=1`` in the environment: that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    check_query_shape(query)
    read = query, key_cache, value_cache, block_tables, seq_lens
    features = alibi_slopes, sliding_window, soft_cap, sinks
    t = Tensors(*read, scale, out, *features, as_scale(k_scale, query), as_scale(v_scale, query))
    library_op.check(t)
    t.scale = float(query.shape[-1] ** -0.5 if scale is None else scale)
    t.out = torch.empty(query.shape, dtype=query.dtype, device=query.device) if out is None else out
    library_op(t, layout=layout, kv_cache_dtype=kv_cache_dtype, variant=variant, config=config)
    return t.out


library_op = LibraryOp(
    "paged_attention",
    Tensors,
    problem_of,
    like="query",
    written=("out",),
    made=("workspace",),
    options={"layout": None, "kv_cache_dtype": "auto"},
)
