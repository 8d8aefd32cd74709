"""One step of a causal convolution in plain torch operations: the default on a CPU."""

from __future__ import annotations

from workbench.attention.ops.conv_step.problem import ConvProblem, ConvTensors
from workbench.attention.ops.conv_step.reference import step
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.state_slots import read_states
from workbench.ops import TorchVariant


def compute(problem: ConvProblem, tensors: ConvTensors) -> None:
    """Fill ``tensors.output`` and the new slots of ``tensors.states``."""
    t = tensors
    state, kept = read_states(t.states, t.slots), t.new_slots >= 0
    output, new = step(t.inputs, t.weight.float(), state)
    t.output.copy_(output)
    t.states[t.new_slots[kept].long()] = new[kept]


VARIANT = TorchVariant(
    op="conv_step",
    name="torch",
    idea="the formula on all states at once: plain torch",
    layouts=("any",),
    dtypes=tuple(DTYPES),
    compute=compute,
)
