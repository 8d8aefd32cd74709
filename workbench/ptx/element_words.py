"""Atomics of one and two bytes, which compilers make from a compare-and-swap of the aligned word around them.

LLVM rounds the address down (``and.b64 %base, %address, -4``), loads the word, and repeats the swap until no other
thread has changed the word in between. The word's other bytes need not be the program's: they may never have been
written, or lie past the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.ptx.instruction import InstructionStep
from workbench.ptx.machine import ADDRESS, OPCODES, WORD_OF_ELEMENT
from workbench.ptx.operands import Constant, Register
from workbench.ptx.parse import Label

_SPACES = ("global", "generic")
_SWAPS = {OPCODES[f"atom.{space}.cas.b32"] for space in _SPACES}
_LOADS = {OPCODES[f"ld.{space}.u32/32"] for space in _SPACES}
_ROUNDING = -4 & (1 << 64) - 1


def mark(items: Sequence[InstructionStep | Label]) -> None:
    """Flag the loads and swaps of such words, so that the machine lets them reach beyond the element."""
    steps = [item for item in items if type(item) is InstructionStep]
    swaps = [step for step in steps if step.opcode in _SWAPS]
    if not swaps:
        return
    words = {step.registers[step.form.writes[0]] for step in steps if _rounds_down(step)}
    for step in swaps + [step for step in steps if step.opcode in _LOADS]:
        if _base(step) in words:
            step.form = step.form.with_flags(WORD_OF_ELEMENT)


def _rounds_down(step: InstructionStep) -> bool:
    constants = [operand.value for _, operand in step.form.fixed if type(operand) is Constant]
    return step.opcode.name == "and.b64" and [value & (1 << 64) - 1 for value in constants] == [_ROUNDING]


def _base(step: InstructionStep) -> Register | None:
    return next((step.registers[place] for slot, place in step.form.places if slot == ADDRESS), None)
