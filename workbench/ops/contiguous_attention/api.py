"""The function that users import: checks its arguments, chooses a variant and configuration, runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.argument_kinds import names_wrong_kinds
from workbench.ops.arguments import check_query_shape
from workbench.ops.constants import constant
from workbench.ops.contiguous_attention.problem import Tensors
from workbench.ops.contiguous_attention.validate import problem_of
from workbench.ops.library_op import LibraryOp


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
    """Attention of the newest token of every sequence over a contiguous cache of keys and values, read in place.

    ``softmax(scale * q K^T) V`` over the ``seq_lens[i]`` tokens of sequence i, the newest (already in the cache)
    included. A sequence of no tokens gives zeros. The cache is that of TensorRT-LLM (contiguous KV cache).

    Args:
        query: ``[num_seqs, num_heads, head_size]`` float32, float16 or bfloat16; rows may be apart.
        kv_cache: ``[max_batch_size * max_beam_width, 2, num_kv_heads, max_seqlen, head_size]`` in the query's dtype,
            keys ``[:, 0]``, values ``[:, 1]``; each row contiguous, starting on 16 bytes.
        seq_lens: ``[num_seqs] int32`` in tokens, at most max_seqlen.
        cache_rows: ``[num_seqs] int32``, the row of each sequence (or beam); default sequence i has row i.
        scale: of the scores; default ``head_size ** -0.5``.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: where to write, like query, contiguous, in memory of its own; default a new tensor.

    Returns:
        ``out``, ``[num_seqs, num_heads, head_size]`` in the query's dtype. There is no backward.

    Raises:
        ArgumentError: anything above that does not hold; nothing is written then. Lengths and rows on a GPU are only
            looked at with ``WORKBENCH_CHECK_INDICES=1`` in the environment: that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    check_query_shape(query)
    if cache_rows is None:
        cache_rows = _first_rows(query.shape[0], query.device)
    t = Tensors(query, kv_cache, seq_lens, cache_rows, scale, out)
    library_op.check(t)
    t.scale = float(query.shape[-1] ** -0.5 if scale is None else scale)
    t.out = torch.empty(query.shape, dtype=query.dtype, device=query.device) if out is None else out
    library_op(t, variant=variant, config=config)
    return t.out


def _first_rows(num_seqs: int, device: torch.device) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return torch.arange(num_seqs, dtype=torch.int32, device=device)
    return constant(range(num_seqs), torch.int32, device)


library_op = LibraryOp("contiguous_attention", Tensors, problem_of, like="query", written=("out",))
