"""`gated_delta_step`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.gated_delta_step.problem import GatedDeltaProblem, GatedDeltaTensors
from workbench.attention.ops.tensor_checks import check_dense, check_dtype, check_pages, check_slots, check_vector
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def gated_delta_step(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    slots: torch.Tensor,
    new_slots: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute one step of the gated delta rule for every sequence's newest token; its states lie in slots of a pool.

    For each value head: the state decays by ``exp(decay)``, ``k (beta (v - S^T k))^T`` is added to it, and ``scale *
    S^T q`` is the output, with q and k divided by their lengths. Method: Gated Delta Networks, 2024, as in Qwen3-Next,
    and with a decay for each row of a state as in Kimi Linear.

    Args:
        query: ``[num_seqs, num_key_heads, key_size]`` float32, float16 or bfloat16, contiguous, on 16 bytes, as are:
        key: as query; each head of both serves ``num_value_heads / num_key_heads`` neighbouring value heads.
        value: ``[num_seqs, num_value_heads, value_size]`` in the same dtype.
        decay: ``[num_seqs, num_value_heads] float32``, or a decay for each row ``[num_seqs, num_value_heads,
            key_size]``; logarithms, at most 0.
        beta: ``[num_seqs, num_value_heads] float32``, 0 to 1.
        states: ``[num_slots, num_value_heads, key_size, value_size] float32``, written in place; slots contiguous, on
            16 bytes.
        slots: ``[num_seqs] int32``, the slot that holds a sequence's state; -1 for a state of zeros.
        new_slots: ``[num_seqs] int32``, the slot that its new state is written to, which no other sequence reads or
            writes; -1 to forget it. Default ``slots``.
        scale: factor of the output, default ``key_size ** -0.5``.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensor to write, ``[num_seqs, num_value_heads, value_size]`` in the query's dtype, contiguous, in
            memory of its own; default a new tensor.

    Returns:
        ``out``. There is no backward.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Slots on a GPU are checked only with
            ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    _check_sizes(query, value)
    scale = query.shape[2] ** -0.5 if scale is None else float(scale)
    new_slots = slots if new_slots is None else new_slots
    out = torch.empty_like(value, memory_format=torch.contiguous_format) if out is None else out
    OP.run(
        GatedDeltaTensors(query, key, value, decay, beta, states, slots, new_slots, scale, out),
        variant=variant,
        config=config,
    )
    return out


def _check_sizes(query: torch.Tensor, value: torch.Tensor) -> None:
    check_dtype("query", query, DTYPES.values())
    for name, tensor in (("query", query), ("value", value)):
        if tensor.dim() != 3 or 0 in tensor.shape[1:]:
            raise ArgumentError(name, f"shape {tuple(tensor.shape)}", "[num_seqs, heads, size]", "Reshape it.")
    if len(value) != len(query) or value.shape[1] % query.shape[1]:
        allowed = f"[{len(query)}, a multiple of {query.shape[1]}, value_size]"
        raise ArgumentError("value", f"shape {tuple(value.shape)}", allowed, "A head of keys serves whole heads.")


def problem_of(t: GatedDeltaTensors) -> GatedDeltaProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, slots; describe the problem.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    _check_sizes(t.query, t.value)
    num_seqs, heads, size = t.value.shape
    by_row = t.decay.dim() == 3
    keys, dtype = t.query.shape, t.query.dtype
    check_dense(
        query=(t.query, keys, dtype),
        key=(t.key, keys, dtype),
        value=(t.value, t.value.shape, dtype),
        decay=(t.decay, (num_seqs, heads, keys[2]) if by_row else (num_seqs, heads), torch.float32),
        beta=(t.beta, (num_seqs, heads), torch.float32),
        out=(t.output, t.value.shape, dtype),
    )
    if not math.isfinite(t.scale):
        raise ArgumentError("scale", t.scale, "a finite number", "The default is key_size ** -0.5.")
    check_dtype("states", t.states, [torch.float32])
    if t.states.dim() != 4 or t.states.shape[1:] != (heads, t.query.shape[2], size):
        allowed = f"[num_slots, {heads}, {t.query.shape[2]}, {size}]"
        raise ArgumentError("states", f"shape {tuple(t.states.shape)}", allowed, "A state for each value head.")
    check_pages("states", t.states)
    for name in ("slots", "new_slots"):
        check_vector(name, getattr(t, name), num_seqs, torch.int32, "One slot per sequence, or -1.")
    check_slots(t.slots, t.new_slots, len(t.states))
    return GatedDeltaProblem(
        num_seqs=num_seqs,
        num_key_heads=t.query.shape[1],
        num_value_heads=heads,
        key_size=t.query.shape[2],
        value_size=size,
        dtype=dtype_name(t.query.dtype),
        features=("key_decay",) if by_row else (),
        arch=arch_of(t.query),
    )


OP: DescribedOp = op(
    name="gated_delta_step", tensors=GatedDeltaTensors, in_place=("states", "output"), namespace="workbench"
)(problem_of)
