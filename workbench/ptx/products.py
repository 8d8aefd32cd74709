"""Static check of asynchronous products (wgmma): registers that are touched while the product may still run.

The PTX ISA, "Asynchronous wgmma instructions": until ``wgmma.wait_group`` the registers of D must not be read or
written, nor those of A written; and if a register of either was written by anything but a product, ``wgmma.fence``
belongs between that write and the product. Compilers copy such registers with ``mov`` at places where the assembler
makes no copy of it, so a copy counts only as another name. They also move constants (``float d[4] = {}``) below the
fence that follows them in the source; after a fence, writes of constants do not count. The rule does not name the
metadata of a sparse product, and CUTLASS loads that of the next one while it runs.

The numbers of ``wait_group`` on each way through the code tell which groups have been waited for. If several ways lead
to a place, the one that has waited least counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from workbench.ptx.flow import BasicBlock, propagate
from workbench.ptx.instruction import Form, InstructionStep
from workbench.ptx.machine import FRAGMENT, core
from workbench.ptx.operands import Register

# Kinds of findings.
TOUCHED: str = "register of a running product touched"
UNFENCED: str = "missing wgmma.fence"


class Misuse(NamedTuple):
    """A wrong use of the register of a product or load, of a ``kind`` of findings.

    ``step`` is the misuse; ``other`` is the product or load, or the step that wrote the register.
    """

    kind: str
    step: InstructionStep
    other: InstructionStep


_Aged = tuple[int, InstructionStep]  # the number of groups committed after a product, and the product


class _State(NamedTuple):
    """State of the products' registers at one point of the code.

    ``running`` has for registers of D the product that may still write it, with the number of groups committed since (0
    if its own group is open); ``reading`` has the same for registers of A. ``written`` has the step that wrote a
    register since the last fence. ``fenced`` is True if no group was committed since that fence.
    """

    running: dict[Register, _Aged]
    reading: dict[Register, _Aged]
    written: dict[Register, InstructionStep]
    fenced: bool


def misused(blocks: Sequence[BasicBlock], order: Sequence[int]) -> list[Misuse]:
    """Return the misuses of products' registers, one for each place."""
    products = (step for number in order for step in blocks[number].code if is_product(step.form))
    theirs = {register for step in products for register in (*results(step), *_factors(step))}
    found: dict[tuple[str, int], Misuse] = {}
    start = _State({}, {}, {}, False)
    propagate(blocks, order, start, lambda code, state: _after(code, state, theirs, found), _joined)
    return list(found.values())


def is_product(form: Form) -> bool:
    """Return True if steps of a form are wgmma.mma_async."""
    return form.opcode.group == "tensor" and form.opcode.name.startswith("wgmma.")


def at(step: InstructionStep, wanted: range) -> list[Register]:
    """Return the registers in a range of a step's columns."""
    return [step.registers[place] for slot, place in step.form.places if slot in wanted]


def results(step: InstructionStep) -> list[Register]:
    """Return the registers of D, or of another fragment that a step writes."""
    return at(step, range(FRAGMENT, FRAGMENT + 256))


def _factors(step: InstructionStep) -> list[Register]:
    return at(step, range(core.GroupProduct.a, core.GroupProduct.a + 4))


def _joined(a: _State, b: _State) -> _State:
    def least(x: dict[Register, _Aged], y: dict[Register, _Aged]) -> dict[Register, _Aged]:
        both = dict(x)
        for register, value in y.items():
            if register not in both or value[0] < both[register][0]:
                both[register] = value
        return both

    return _State(
        least(a.running, b.running), least(a.reading, b.reading), {**b.written, **a.written}, a.fenced and b.fenced
    )


def _after(
    code: Sequence[InstructionStep], state: _State, theirs: set[Register], found: dict[tuple[str, int], Misuse]
) -> _State:
    running, reading, written = dict(state.running), dict(state.reading), dict(state.written)
    fenced = state.fenced

    def note(kind: str, step: InstructionStep, other: InstructionStep) -> None:
        found.setdefault((kind, id(step)), Misuse(kind, step, other))

    for step in code:
        name = step.opcode.name
        if is_product(step.form):
            sums, factors = results(step), _factors(step)
            for register in (*sums, *factors):
                if register in written:
                    note(UNFENCED, step, written[register])
            for register in factors:
                if register in running:
                    note(TOUCHED, step, running[register][1])
                reading[register] = 0, step
            running.update(dict.fromkeys(sums, (0, step)))
        elif name == "wgmma.fence":
            written, fenced = {}, True
        elif name == "wgmma.commit_group":
            fenced = False
            running, reading = ({r: (age + 1, by) for r, (age, by) in each.items()} for each in (running, reading))
        elif name == "wgmma.wait_group":
            keep = step.form.imm
            running, reading = (
                {r: (age, by) for r, (age, by) in each.items() if not age or age - 1 < keep}
                for each in (running, reading)
            )
        elif name.startswith("mov.b") and len(step.form.writes) == 1 and len(step.form.reads) == 1:
            target, origin = step.registers[step.form.writes[0]], step.registers[step.form.reads[0]]
            states: tuple[dict[Register, Any], ...] = (running, reading, written)
            for known in states:
                if origin in known:
                    known[target] = known[origin]
                else:
                    known.pop(target, None)
            if target in theirs and origin not in running and target not in written and not fenced:
                written[target] = step
        else:
            constant = name.startswith("mov.b") and not step.form.reads
            for place in step.form.reads:
                if step.registers[place] in running:
                    note(TOUCHED, step, running[step.registers[place]][1])
            for place in step.form.writes:
                register = step.registers[place]
                for each in (running, reading):
                    if register in each:
                        note(TOUCHED, step, each[register][1])
                if register in theirs and not (constant and fenced):
                    written[register] = step
    return _State(running, reading, written, fenced)
