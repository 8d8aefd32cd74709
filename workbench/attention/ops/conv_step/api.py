"""`conv_step`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.attention.ops.conv_step.problem import ConvProblem, ConvTensors
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.tensor_checks import check_dense, check_dtype, check_pages, check_slots, check_vector
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def conv_step(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    states: torch.Tensor,
    slots: torch.Tensor,
    new_slots: torch.Tensor | None = None,
    *,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute one step of a causal convolution with SiLU for every sequence's newest token.

    Each channel sums its last ``width`` inputs, weighted; the inputs before the newest lie in slots of a pool. Method:
    the short convolution before linear attention in Qwen3-Next and Kimi Linear (``causal_conv1d_update``).

    Args:
        inputs: ``[num_seqs, channels]`` float32, float16 or bfloat16, contiguous, starting on 16 bytes, as are:
        weight: ``[width, channels]`` in the same dtype, for the oldest input first; width at least 2.
        states: ``[num_slots, width - 1, channels]`` in the same dtype, the oldest input first, written in place; slots
            contiguous, on 16 bytes.
        slots: ``[num_seqs] int32``, the slot that holds a sequence's inputs; -1 for zeros.
        new_slots: ``[num_seqs] int32``, the slot that its new state is written to, which no other sequence reads or
            writes; -1 to forget it. Default ``slots``.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensor to write, like ``inputs``, in memory of its own; default a new tensor.

    Returns:
        ``out``. There is no backward.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Slots on a GPU are checked only with
            ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    new_slots = slots if new_slots is None else new_slots
    out = torch.empty_like(inputs, memory_format=torch.contiguous_format) if out is None else out
    OP.run(ConvTensors(inputs, weight, states, slots, new_slots, out), variant=variant, config=config)
    return out


def problem_of(t: ConvTensors) -> ConvProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, slots; describe the problem.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    check_dtype("inputs", t.inputs, DTYPES.values())
    for name, tensor in (("inputs", t.inputs), ("weight", t.weight)):
        if tensor.dim() != 2 or tensor.shape[1] == 0 or (name == "weight" and len(tensor) < 2):
            allowed = "[num_seqs, channels]" if name == "inputs" else "[width, channels], width at least 2"
            raise ArgumentError(name, f"shape {tuple(tensor.shape)}", allowed, "Reshape it.")
    (num_seqs, channels), width = t.inputs.shape, len(t.weight)
    dtype = t.inputs.dtype
    check_dense(
        inputs=(t.inputs, t.inputs.shape, dtype),
        weight=(t.weight, (width, channels), dtype),
        out=(t.output, t.inputs.shape, dtype),
    )
    check_dtype("states", t.states, [t.inputs.dtype])
    if t.states.dim() != 3 or t.states.shape[1:] != (width - 1, channels):
        allowed = f"[num_slots, {width - 1}, {channels}]"
        raise ArgumentError("states", f"shape {tuple(t.states.shape)}", allowed, "One input less than weights.")
    check_pages("states", t.states)
    for name in ("slots", "new_slots"):
        check_vector(name, getattr(t, name), num_seqs, torch.int32, "One slot per sequence, or -1.")
    check_slots(t.slots, t.new_slots, len(t.states))
    return ConvProblem(
        num_seqs=num_seqs, channels=channels, width=width, dtype=dtype_name(t.inputs.dtype), arch=arch_of(t.inputs)
    )


OP: DescribedOp = op(name="conv_step", tensors=ConvTensors, in_place=("states", "output"), namespace="workbench")(
    problem_of
)
