"""`causal_attention`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from workbench.attention.ops.causal_attention.problem import (
    DTYPES,
    CausalAttentionProblem,
    CausalAttentionTensors,
    Read,
    lse_dtype,
)
from workbench.attention.ops.tensor_checks import (
    ALIGNMENT,
    alignment_of,
    check_dtype,
    check_groups,
    check_vector,
    check_within,
    look_at_values,
)
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of, check_supported, get
from workbench.ops.declared import op
from workbench.ops.tensors import check_devices, dtype_name


@names_wrong_kinds
def causal_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float | None = None,
    query_lens: torch.Tensor | None = None,
    seq_lens: torch.Tensor | None = None,
    return_lse: bool = False,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    block_size: int = 16,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute causal attention of a batch of sequences, differentiably.

    The result is ``softmax(scale * q K^T) V``, with scores of minus infinity for tokens later than the query; see
    ``workbench/attention/ops/causal_attention/torch_naive.py``. Method: Vaswani et al., "Attention is all you need",
    2017; of the kernels: Dao, "FlashAttention-2", 2023.

    Args:
        query: ``[num_seqs, num_heads, num_queries, head_size]``, float64, float32, float16 or bfloat16: the last
            ``num_queries`` of the tokens.
        key: ``[num_seqs, num_kv_heads, num_tokens, head_size]``; num_kv_heads divides num_heads.
        value: as key. For kernels, rows of query, key and value start on 16 bytes; the strides of sequences, heads and
            tokens are free.
        scale: factor of the scores; default ``head_size ** -0.5``.
        query_lens: ``[num_seqs] int32``, for sequences of different lengths: the number of queries in a row, which are
            the last of the sequence's tokens. Default: as many as fit both the row and the tokens.
        seq_lens: ``[num_seqs] int32``, the number of tokens in a row; default all. Padding follows queries and tokens
            and may hold anything.
        return_lse: also return the logarithm of the sum of ``exp(score)`` of every query.
        variant: "auto" (on a CPU "torch_naive", on a GPU the tuned kernel for this GPU, or "torch_naive" if no kernel
            supports the problem), "tuned" (the winner in the tuned table; with CPU tensors the simulator's, run in the
            simulator), or a variant's name, which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named kernel.
        block_size: tokens per block, for "torch_blockwise".

    Returns:
        ``[num_seqs, num_heads, num_queries, head_size]`` in the query's dtype, with zeros in rows of padding. With
        return_lse also ``[num_seqs, num_heads, num_queries]`` in float32 (float64 for float64 inputs), with minus
        infinity for padding. Torch variants are differentiable any number of times; kernels once, by
        `causal_attention_backward`.

    Raises:
        ArgumentError: an argument breaks a rule above. Lengths on a GPU are checked only with
            ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    op = get("causal_attention")
    t = CausalAttentionTensors(query, key, value, scale, None, None, query_lens, seq_lens)
    problem = problem_of(t, block_size=block_size)
    t.scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    _fill_lengths(t)
    found = None
    if variant not in ("auto", "tuned"):
        found = op.variant(variant)
    elif variant == "auto" and (not query.is_cuda or query.itemsize > 2):  # kernels read 16 bits
        found = op.variants[0]
    if found is not None and not found.compiles:
        check_supported(op, found, problem)
        if config is not None:
            raise ArgumentError("config", dict(config), f"None with variant={variant!r}", "Name a kernel.")
        if not torch.compiler.is_compiling():
            check_lengths(t)
        _make_outputs(t, lse=return_lse)
        if query.numel():
            found.run(found.default_config(problem), problem, t, None)
    else:
        t.output, t.lse = OP.run(t, variant=variant, config=config)
    return (t.output, t.lse) if return_lse else t.output


def _fill_lengths(t: CausalAttentionTensors) -> None:
    """Set the other lengths if only one kind is given."""
    if t.query_lens is not None and t.seq_lens is None:
        t.seq_lens = torch.full_like(t.query_lens, t.key.shape[2])
    elif t.seq_lens is not None and t.query_lens is None:
        t.query_lens = t.seq_lens.clamp(max=t.query.shape[2])


def _make_outputs(t: CausalAttentionTensors, *, lse: bool = True) -> None:
    t.output = torch.empty_like(t.query, memory_format=torch.contiguous_format)
    t.lse = torch.empty(t.query.shape[:-1], dtype=lse_dtype(t.query.dtype), device=t.query.device) if lse else None


def problem_of(
    t: Read, *, block_size: int = 16, alignment: int = ALIGNMENT, arch: str = "sm_80"
) -> CausalAttentionProblem:
    """Check shapes, dtypes and devices of the inputs, and describe the problem.

    ``alignment`` is in bytes, at most `ALIGNMENT`: every row ``[head_size]`` starts on a multiple of it.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    query, key, value = t.query, t.key, t.value
    check_devices("query", query, key=key, value=value, query_lens=t.query_lens, seq_lens=t.seq_lens)
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
    for name in ("query_lens", "seq_lens"):
        if getattr(t, name) is not None:
            check_vector(name, getattr(t, name), num_seqs, torch.int32, "One entry per sequence.")
    if not isinstance(block_size, int) or block_size < 1:
        raise ArgumentError("block_size", block_size, "1 or more tokens", "16 is usual.")
    if t.scale is not None and not math.isfinite(t.scale):
        raise ArgumentError("scale", t.scale, "a finite number", "The default is head_size ** -0.5.")
    return CausalAttentionProblem(
        num_seqs=num_seqs,
        num_heads=num_heads,
        num_kv_heads=key.shape[1],
        num_queries=num_queries,
        num_tokens=key.shape[2],
        head_size=head_size,
        dtype=dtype_name(query.dtype),
        block_size=block_size,
        alignment=alignment,
        features=() if t.seq_lens is None and t.query_lens is None else ("lengths",),
        arch=arch,
    )


def kernel_problem_of(t: Read) -> CausalAttentionProblem:
    """Return the `problem_of` a kernel's run, with the alignment of its rows and its GPU. Also checks the lengths."""
    sides = t.query, t.key, t.value
    apart = any(side.stride(-1) != 1 for side in sides)  # the elements of a row
    problem = problem_of(t, alignment=1 if apart else alignment_of(*sides), arch=arch_of(t.query))
    check_lengths(t)
    return problem


def check_lengths(t: Read) -> None:
    """Check the lengths of sequences if `look_at_values` allows it.

    Raises ArgumentError for the first length outside its bounds.
    """
    if t.query_lens is None or t.seq_lens is None or not look_at_values(t.seq_lens):
        return
    num_queries, num_tokens = t.query.shape[2], t.key.shape[2]
    check_within("seq_lens", t.seq_lens, 0, num_tokens, ", the tokens of key", "The rest of a row is padding.")
    check_within("query_lens", t.query_lens, 0, num_queries, ", the tokens of query", "The rest of a row is padding.")
    for seq, (queries, tokens) in enumerate(zip(t.query_lens.tolist(), t.seq_lens.tolist(), strict=True)):
        if queries > tokens:
            remedy = "The queries are the last of the tokens, so their keys are among key."
            raise ArgumentError(f"query_lens[{seq}]", queries, f"at most seq_lens[{seq}] = {tokens}", remedy)


# -- kernels as one of torch's ops, with gradients -----------------------------------------------------------------


def _gradients(
    d_output: torch.Tensor,
    d_lse: torch.Tensor,
    output: torch.Tensor,
    lse: torch.Tensor,
    *,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    variant: str,
    query_lens: torch.Tensor | None,
    seq_lens: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor | None, ...]:
    gradients = get("causal_attention_backward").function(
        query, key, value, output, lse, d_output, d_lse, scale=scale, query_lens=query_lens, seq_lens=seq_lens,
        variant="auto" if variant == "auto" else "tuned",
    )  # fmt: skip
    return *gradients, *(None for lengths in (query_lens, seq_lens) if lengths is not None)


OP: DescribedOp = op(
    name="causal_attention",
    tensors=CausalAttentionTensors,
    make=_make_outputs,
    outputs=("output", "lse"),
    backward=_gradients,
    namespace="workbench",
)(kernel_problem_of)
