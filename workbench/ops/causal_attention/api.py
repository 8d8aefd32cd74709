"""The function that users import."""

from __future__ import annotations

import math

import torch

from workbench.argument_kinds import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops.arguments import check_devices, check_dtype, check_groups, dtype_name
from workbench.ops.causal_attention.problem import DTYPES, Problem, Tensors


@names_wrong_kinds
def causal_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float | None = None,
    variant: str = "torch_naive",
    block_size: int = 16,
) -> torch.Tensor:
    """Causal attention of a batch of sequences of one length, in plain torch, differentiable.

    ``softmax(scale * q K^T, minus infinity where the token is later than the query) V``; see
    ``workbench/ops/causal_attention/torch_naive.py``. Method: Vaswani et al., "Attention is all you need", 2017.

    Args:
        query: ``[num_seqs, num_heads, num_queries, head_size]``, float64, float32, float16 or bfloat16: the last
            ``num_queries`` of the tokens.
        key, value: ``[num_seqs, num_kv_heads, num_tokens, head_size]``; num_kv_heads divides num_heads.
        scale: of the scores; default ``head_size ** -0.5``.
        variant: "torch_naive", "torch_blockwise" or "torch_sdpa".
        block_size: tokens per block, for "torch_blockwise".

    Returns:
        ``[num_seqs, num_heads, num_queries, head_size]`` in the query's dtype.

    Raises:
        ArgumentError: anything above that does not hold.
        UnknownNameError: a variant that does not exist.
    """
    from workbench.ops.causal_attention import OP

    problem = _problem_of(query, key, value, block_size)
    chosen = OP.variant(variant)
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    if not math.isfinite(scale):
        raise ArgumentError("scale", scale, "a finite number", "The default is head_size ** -0.5.")
    tensors = Tensors(query, key, value, scale, torch.empty_like(query, memory_format=torch.contiguous_format), None)
    if query.numel():
        chosen.run(chosen.default_config(problem), problem, tensors)
    return tensors.output


def _problem_of(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, block_size: int) -> Problem:
    check_devices("query", query, key=key, value=value)
    check_dtype("query", query, DTYPES.values())
    for name, tensor in (("query", query), ("key", key)):
        if tensor.dim() != 4 or 0 in tensor.shape[1:2] + tensor.shape[3:]:
            shape = "[num_seqs, num_heads, num_queries or num_tokens, head_size]"
            raise ArgumentError(name, f"shape {tuple(tensor.shape)}", shape, "Heads come before tokens.")
    num_seqs, num_heads, num_queries, head_size = query.shape
    if (key.shape[0], key.shape[3]) != (num_seqs, head_size):
        raise ArgumentError(
            "key",
            f"shape {tuple(key.shape)}",
            f"({num_seqs}, num_kv_heads, num_tokens, {head_size}), as query",
            "Same sequences and head size.",
        )
    check_groups(num_heads, key.shape[1])
    if num_queries > key.shape[2]:
        raise ArgumentError(
            "query",
            f"{num_queries} tokens",
            f"at most the {key.shape[2]} of key",
            "The queries are the last of the tokens, so their keys are among key.",
        )
    if value.shape != key.shape:
        raise ArgumentError("value", f"shape {tuple(value.shape)}", f"{tuple(key.shape)}, as key", "Reshape it.")
    for name, tensor in (("key", key), ("value", value)):
        check_dtype(name, tensor, [query.dtype])
    if not isinstance(block_size, int) or block_size < 1:
        raise ArgumentError("block_size", block_size, "1 or more tokens", "16 is usual.")
    return Problem(
        num_seqs=num_seqs,
        num_heads=num_heads,
        num_kv_heads=key.shape[1],
        num_queries=num_queries,
        num_tokens=key.shape[2],
        head_size=head_size,
        dtype=dtype_name(query.dtype),
        block_size=block_size,
    )
