"""Static check of tcgen05.ld: registers that are touched before ``tcgen05.wait::ld``.

The PTX ISA, "tcgen05.wait": the load is asynchronous, and the wait makes a thread wait for all its earlier loads.
As in products.py a copy by ``mov`` counts as another name. A GPU's assembler knows of the load's registers and waits by
itself, so that this is a note unless a launch is strict. CuTe DSL's compiler relies on it: its code has no other wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.ptx.flow import BasicBlock, propagate
from workbench.ptx.instruction import Form, Instruction, InstructionStep
from workbench.ptx.machine import OPCODES, core
from workbench.ptx.operands import Register
from workbench.ptx.products import Misuse, at, results

# Kind of findings.
UNAWAITED: str = "register of a tensor load touched before wait"

_REDUCED = core.TensorMove.reduced
_Pending = dict[Register, InstructionStep]  # loads that may not be over, by register


def misused(blocks: Sequence[BasicBlock], order: Sequence[int]) -> list[Misuse]:
    """Return the uses of loads' registers that come before a wait, the first on each way from a load."""
    found: dict[int, Misuse] = {}
    start: _Pending = {}
    propagate(blocks, order, start, lambda code, pending: _after(code, pending, found), lambda a, b: {**b, **a})
    return list(found.values())


def insert_waits(blocks: Sequence[BasicBlock], found: Sequence[Misuse]) -> None:
    """Insert the assembler's wait before each use that `misused` found; strict launches skip it."""
    uses = {id(one.step) for one in found if one.kind == UNAWAITED}
    for block in blocks:
        if uses and any(id(step) in uses for step in block.code):
            code = list(block.code)
            block.code.clear()
            for step in code:
                if id(step) in uses:
                    block.code.append(InstructionStep.of(Instruction(OPCODES["tcgen05.wait.assembler"], {})))
                block.code.append(step)


def is_load(form: Form) -> bool:
    """Return True if steps of a form are tcgen05.ld."""
    return form.opcode.name in ("tcgen05.ld", "tcgen05.ld.red")


def _after(code: Sequence[InstructionStep], state: _Pending, found: dict[int, Misuse]) -> _Pending:
    pending = dict(state)
    for step in code:
        name = step.opcode.name
        if name == "tcgen05.wait.ld":
            pending = {}
            continue
        if name.startswith("mov.b") and len(step.form.writes) == 1 and len(step.form.reads) == 1:
            target, origin = step.registers[step.form.writes[0]], step.registers[step.form.reads[0]]
            if origin in pending:
                pending[target] = pending[origin]
            else:
                pending.pop(target, None)
            continue
        for place in (*step.form.reads, *step.form.writes):
            register = step.registers[place]
            if register in pending:
                load = pending[register]
                found.setdefault(id(step), Misuse(UNAWAITED, step, load))
                pending = {other: by for other, by in pending.items() if by is not load}
        if is_load(step.form):
            pending.update(dict.fromkeys(results(step), step))
            if step.opcode.name == "tcgen05.ld.red":
                pending.update(dict.fromkeys(at(step, range(_REDUCED, _REDUCED + 1)), step))
    return pending
