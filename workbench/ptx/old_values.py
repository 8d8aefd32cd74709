"""Atomics whose old value the kernel uses.

Such an atomic has seen those before it on the same place, so it comes after them. Of one whose old value goes nowhere a
GPU does not even wait for it: compilers write ``atom`` for it all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.ptx.instruction import InstructionStep
from workbench.ptx.machine import FLAGS, USES_OLD
from workbench.ptx.parse import Label


def mark(items: Sequence[InstructionStep | Label]) -> None:
    """Flag the atomics that write a register which some step reads."""
    steps = [item for item in items if type(item) is InstructionStep]
    atomics = [step for step in steps if step.form.writes and step.opcode.name.startswith("atom.")]
    if not atomics:
        return
    read = {step.registers[place] for step in steps for place in step.form.reads}
    read.update(step.guard for step in steps if step.guard is not None)
    for step in atomics:
        if any(step.registers[place] in read for place in step.form.writes):
            step.form = step.form.with_flags(USES_OLD)


def uses_old(code: Sequence[InstructionStep]) -> bool:
    """Return True if an atomic of decoded code is one whose old value the kernel uses."""
    return any(step.form.instruction.raw.get(FLAGS, 0) & USES_OLD for step in code)
