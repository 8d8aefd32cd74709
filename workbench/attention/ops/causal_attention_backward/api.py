"""`causal_attention_backward`, the function that users import and that autograd calls."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.attention.ops.causal_attention.api import kernel_problem_of, problem_of
from workbench.attention.ops.causal_attention.problem import CausalAttentionProblem, lse_dtype
from workbench.attention.ops.causal_attention_backward.tensors import CausalAttentionBackwardTensors
from workbench.attention.ops.tensor_checks import check_dtype
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp
from workbench.ops.declared import op
from workbench.ops.tensors import check_devices


@names_wrong_kinds
def causal_attention_backward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    lse: torch.Tensor,
    d_output: torch.Tensor,
    d_lse: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    query_lens: torch.Tensor | None = None,
    seq_lens: torch.Tensor | None = None,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients of `causal_attention` from scores computed again; see ``torch_recompute.py``.

    Args:
        query: the argument of `causal_attention`.
        key: as query.
        value: as query.
        output: its result.
        lse: its logarithms, as returned with ``return_lse``.
        d_output: gradient of output, in its shape. Rows of padding take no part.
        d_lse: gradient of lse, in its shape; default zeros.
        scale: the argument of `causal_attention`.
        query_lens: the argument of `causal_attention`, given with seq_lens or not at all.
        seq_lens: as query_lens.
        variant: as for `causal_attention`.
        config: as for `causal_attention`.

    Returns:
        The gradients of query, key and value, contiguous, zeros for padding. They have no gradients of their own.

    Raises:
        ArgumentError: an argument breaks a rule above.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    made = output, lse, d_output, torch.zeros_like(lse) if d_lse is None else d_lse
    problem_of(CausalAttentionBackwardTensors(query, key, value, *made, scale, query_lens, seq_lens))
    if (query_lens is None) != (seq_lens is None):
        name = "query_lens" if query_lens is None else "seq_lens"
        raise ArgumentError(name, None, "[num_seqs] int32, as the other", "Pass both lengths, or neither.")
    rows, logarithms = (query.shape, query.dtype), (query.shape[:-1], lse_dtype(query.dtype))
    for name, tensor, (shape, dtype) in zip(
        ("output", "lse", "d_output", "d_lse"), made, (rows, logarithms, rows, logarithms), strict=True
    ):
        check_devices("query", query, **{name: tensor})
        check_dtype(name, tensor, [dtype])
        if tensor.shape != shape:
            raise ArgumentError(name, f"shape {tuple(tensor.shape)}", str(tuple(shape)), "Pass it in this shape.")
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    output, lse, d_output, d_lse = (tensor.contiguous() for tensor in made)
    t = CausalAttentionBackwardTensors(query, key, value, output, lse, d_output, d_lse, scale, query_lens, seq_lens)
    return OP.run(t, variant=variant, config=config)


def _make_gradients(t: CausalAttentionBackwardTensors) -> None:
    t.d_query, t.d_key, t.d_value = (
        torch.empty_like(side, memory_format=torch.contiguous_format) for side in (t.query, t.key, t.value)
    )
    if not t.query.numel():  # nothing will run, but there may be keys
        t.d_key.zero_()
        t.d_value.zero_()


def _described(t: CausalAttentionBackwardTensors) -> CausalAttentionProblem:
    """Return the problem of the forward pass."""
    return kernel_problem_of(t)


OP: DescribedOp = op(
    name="causal_attention_backward",
    tensors=CausalAttentionBackwardTensors,
    make=_make_gradients,
    outputs=("d_query", "d_key", "d_value"),
    namespace="workbench",
)(_described)
