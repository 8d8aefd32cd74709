"""`paged_prefill`, the function that users import: it checks its arguments, chooses a variant and runs it."""

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
from workbench.attention.ops.paged_prefill.problem import MOST_DRAFTS, PagedPrefillProblem, PagedPrefillTensors
from workbench.attention.ops.tensor_checks import (
    alignment_of,
    check_out,
    check_query,
    check_query_shape,
    check_vector,
    look_at_values,
)
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def paged_prefill(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    *,
    scale: float | None = None,
    layout: str | None = None,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
    tree_mask: torch.Tensor | None = None,
    kv_cache_dtype: str = "auto",
    k_scale: torch.Tensor | float | None = None,
    v_scale: torch.Tensor | float | None = None,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the attention of the new tokens of every sequence over its paged cache of keys and values.

    The new tokens are the last of their sequence, and already in the cache: whole prompts, pieces of prompts after a
    context that lies in pages, single tokens of decode steps, or drafts, mixed in one launch. Each sees the tokens of
    its sequence up to itself; ``workbench/attention/ops/paged_prefill/reference.py`` has the formula with all features.
    Method: Dao, "FlashAttention-2", 2023, over pages and ragged queries as in vLLM's unified attention and FlashInfer.

    Args:
        query: ``[num_tokens, num_heads, head_size]`` float32, float16 or bfloat16, sequence after sequence; rows may be
            apart.
        key_cache: see `workbench.attention.cache_formats.layouts`; pages contiguous, starting on 16 bytes.
        value_cache: as key_cache.
        block_tables: ``[num_seqs, max_blocks] int32``, the page of each ``block_size`` tokens.
        seq_lens: ``[num_seqs] int32`` in tokens, context and new ones together.
        cu_seqlens_q: ``[num_seqs + 1] int32``, from 0 to num_tokens: where the new tokens of each sequence start in
            ``query``, and where they end. A sequence may have none.
        scale: factor of the scores; default ``head_size ** -0.5``.
        layout: "x", "nhd" or "hnd"; may be left out for a 5-D key cache, which is "x".
        sliding_window: number of tokens that are seen, including the newest.
        soft_cap: scores become ``soft_cap * tanh(score / soft_cap)``.
        sinks: ``[num_heads] float32``, scores that take weight and give no value.
        tree_mask: ``[num_tokens] int64`` for the verification of drafts: bit j of a new token is set if it sees new
            token j of its sequence, which is itself or one of its ancestors; later bits are not looked at. It sees the
            context in any case, and -1 makes a sequence causal. A sequence of more than 64 new tokens is causal.
        kv_cache_dtype: "auto" (the query's dtype), or quantized as in `workbench.attention.ops.paged_attention`.
        k_scale: dequantization scale of a quantized key cache, as there.
        v_scale: dequantization scale of a quantized value cache, as there.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU, or the torch variant if no
            kernel supports the problem), "tuned", or a variant's name, which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensor to write, like query, contiguous, in memory of its own; default a new tensor.

    Returns:
        ``out``, ``[num_tokens, num_heads, head_size]`` in the query's dtype. There is no backward.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Lengths, table entries and masks on a
            GPU are checked only with ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    check_query_shape(query, "num_tokens")
    scale = float(query.shape[-1] ** -0.5 if scale is None else scale)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device) if out is None else out
    read = query, key_cache, value_cache, block_tables, seq_lens, cu_seqlens_q
    features = sliding_window, soft_cap, sinks, tree_mask
    t = PagedPrefillTensors(*read, scale, out, *features, as_scale(k_scale, query), as_scale(v_scale, query))
    OP.run(t, layout=layout, kv_cache_dtype=kv_cache_dtype, variant=variant, config=config)
    return out


def problem_of(
    t: PagedPrefillTensors, *, layout: str | None = None, kv_cache_dtype: str = "auto"
) -> PagedPrefillProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, values; describe the problem.

    On a GPU the longest lengths are taken to be all the new tokens, and the capacity of the block table.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    check_query(t.query, t.scale, DTYPES.values(), "num_tokens")
    geometry = check_read_caches(t, layout, kv_cache_dtype)
    num_seqs, (num_tokens, num_heads, head_size) = len(t.seq_lens), t.query.shape
    check_tables(t, num_seqs)
    check_vector("cu_seqlens_q", t.cu_seqlens_q, num_seqs + 1, torch.int32, "Pass the start of each, and the end.")
    check_features(t, geometry, kv_cache_dtype)
    if t.tree_mask is not None:
        check_vector("tree_mask", t.tree_mask, num_tokens, torch.int64, "Pass one per new token.")
    check_out(t.out, t.query)
    check_entries(t, geometry.block_size, geometry.num_blocks)
    lengths = _check_starts(t)
    if lengths is None:
        longest = num_tokens, t.block_tables.shape[1] * geometry.block_size
    else:
        longest = (int(lengths.max()), int(t.seq_lens.max())) if num_seqs else (0, 0)
    return PagedPrefillProblem(
        num_seqs=num_seqs,
        num_tokens=num_tokens,
        num_heads=num_heads,
        num_kv_heads=geometry.num_kv_heads,
        head_size=head_size,
        max_query_len=longest[0],
        max_seq_len=longest[1],
        dtype=dtype_name(t.query.dtype),
        layout=geometry.layout,
        block_size=geometry.block_size,
        kv_cache_dtype=kv_cache_dtype,
        alignment=alignment_of(t.query),
        features=features_of(t, kv_cache_dtype),
        arch=arch_of(t.query),
    )


def _check_starts(t: PagedPrefillTensors) -> torch.Tensor | None:
    """Check where new tokens start, and what a mask has set; return the lengths, None where nothing may be read."""
    if not look_at_values(t.cu_seqlens_q):
        return None
    starts, num_tokens = t.cu_seqlens_q.long(), len(t.query)
    lengths = starts.diff()
    ends = int(starts[0]), int(starts[-1])
    if ends != (0, num_tokens):
        raise ArgumentError(
            "cu_seqlens_q", f"from {ends[0]} to {ends[1]}", f"from 0 to {num_tokens}, the tokens of query",
            "It is the running sum of the new tokens of each sequence, with a 0 before it.",
        )  # fmt: skip
    wrong = (lengths < 0) | (lengths > t.seq_lens)
    if wrong.any():
        seq = int(wrong.nonzero()[0])
        raise ArgumentError(
            f"cu_seqlens_q[{seq + 1}]", f"{int(lengths[seq])} new tokens",
            f"0 to {int(t.seq_lens[seq])}, seq_lens[{seq}]", "seq_lens count the context and the new tokens.",
        )  # fmt: skip
    if t.tree_mask is not None:
        index = torch.arange(num_tokens, device=starts.device) - starts[:-1].repeat_interleave(lengths)
        drafts = (lengths <= MOST_DRAFTS).repeat_interleave(lengths)
        blind = drafts & ((t.tree_mask >> index.clamp(max=MOST_DRAFTS - 1)) & 1 == 0)
        if blind.any():
            token = int(blind.nonzero()[0])
            raise ArgumentError(
                f"tree_mask[{token}]", f"{int(t.tree_mask[token]):#b}", f"a mask with bit {int(index[token])} set",
                f"It is new token {int(index[token])} of its sequence, and sees itself.",
            )  # fmt: skip
    return lengths


OP: DescribedOp = op(name="paged_prefill", tensors=PagedPrefillTensors, in_place=("out",), namespace="workbench")(
    problem_of
)
