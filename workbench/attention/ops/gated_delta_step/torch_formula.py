"""One step of the gated delta rule in plain torch operations, all sequences at once: the default on a CPU."""

from __future__ import annotations

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.gated_delta_step.problem import GatedDeltaProblem, GatedDeltaTensors
from workbench.attention.ops.gated_delta_step.reference import step
from workbench.attention.ops.state_slots import read_states
from workbench.ops import TorchVariant


def compute(problem: GatedDeltaProblem, tensors: GatedDeltaTensors) -> None:
    """Fill ``tensors.output`` and the new slots of ``tensors.states``."""
    t = tensors
    state, kept = read_states(t.states, t.slots), t.new_slots >= 0
    output, new = step(t.query, t.key, t.value, t.decay, t.beta, state, t.scale)
    t.output.copy_(output)
    t.states[t.new_slots[kept].long()] = new[kept]


VARIANT = TorchVariant(
    op="gated_delta_step",
    name="torch",
    idea="the formula on all states at once: plain torch",
    layouts=("any",),
    dtypes=tuple(DTYPES),
    features=("key_decay",),
    compute=compute,
)
