"""`contiguous_attention`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.attention.ops.constants import constant
from workbench.attention.ops.contiguous_attention.problem import ContiguousAttentionProblem, ContiguousAttentionTensors
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.tensor_checks import (
    check_dtype,
    check_groups,
    check_out,
    check_pages,
    check_query,
    check_query_shape,
    check_vector,
    check_within,
    look_at_values,
)
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def contiguous_attention(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    cache_rows: torch.Tensor | None = None,
    scale: float | None = None,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the attention of every sequence's newest token over a contiguous KV cache, read in place.

    The result is ``softmax(scale * q K^T) V`` over the ``seq_lens[i]`` tokens of sequence i, including the newest,
    which is already in the cache. A sequence without tokens gives zeros. The cache is that of TensorRT-LLM (contiguous
    KV cache).

    Args:
        query: ``[num_seqs, num_heads, head_size]`` float32, float16 or bfloat16; rows may be apart.
        kv_cache: ``[max_batch_size * max_beam_width, 2, num_kv_heads, max_seqlen, head_size]`` in the query's dtype,
            keys ``[:, 0]``, values ``[:, 1]``; each row contiguous, starting on 16 bytes.
        seq_lens: ``[num_seqs] int32`` in tokens, at most max_seqlen.
        cache_rows: ``[num_seqs] int32``, the row of each sequence (or beam); default sequence i has row i.
        scale: factor of the scores; default ``head_size ** -0.5``.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensor to write, like query, contiguous, in memory of its own; default a new tensor.

    Returns:
        ``out``, ``[num_seqs, num_heads, head_size]`` in the query's dtype. There is no backward.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Lengths and rows on a GPU are checked
            only with ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    check_query_shape(query)
    if cache_rows is None:
        cache_rows = _first_rows(query.shape[0], query.device)
    scale = float(query.shape[-1] ** -0.5 if scale is None else scale)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device) if out is None else out
    t = ContiguousAttentionTensors(query, kv_cache, seq_lens, cache_rows, scale, out)
    OP.run(t, variant=variant, config=config)
    return out


def _first_rows(num_seqs: int, device: torch.device) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return torch.arange(num_seqs, dtype=torch.int32, device=device)
    return constant(range(num_seqs), torch.int32, device)


def problem_of(t: ContiguousAttentionTensors) -> ContiguousAttentionProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, values; describe the problem.

    On a GPU the longest length is taken to be the length of a row, because reading ``seq_lens`` would wait.

    Raises:
        ArgumentError: the first argument that cannot be used.
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
    return ContiguousAttentionProblem(
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


def _check_values(t: ContiguousAttentionTensors) -> None:
    """Check lengths and rows, which could lead a kernel out of the cache."""
    if not look_at_values(t.seq_lens):
        return
    rows, room = t.kv_cache.shape[0], t.kv_cache.shape[3]
    remedy = "A length counts the tokens in the cache, including the newest."
    check_within("seq_lens", t.seq_lens, 0, room, "", remedy)
    check_within("cache_rows", t.cache_rows, 0, rows - 1, "", f"The cache has {rows} rows.")


def _check_cache(t: ContiguousAttentionTensors) -> None:
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


OP: DescribedOp = op(
    name="contiguous_attention", tensors=ContiguousAttentionTensors, in_place=("out",), namespace="workbench"
)(problem_of)
