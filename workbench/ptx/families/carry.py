"""Carry chains (``add.cc``, ``addc``, ``sub.cc``, ``subc``, ``mad.cc``, ``madc``), and isspacep."""

from __future__ import annotations

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.families import arithmetic
from workbench.ptx.instruction import Instruction, Plan, destination, elementwise, expect, opcode, source
from workbench.ptx.machine import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, core
from workbench.ptx.operands import Operand, Refused, Symbols

_LINK = core.Carrying
_OWN = 1 << 8
_WINDOWS = {"global": 0, "shared::cluster": SHARED_WINDOW >> 56, "local": LOCAL_WINDOW >> 56,
            "param::entry": PARAM_WINDOW >> 56}  # fmt: skip
_WINDOWS |= dict.fromkeys(("shared", "shared::cta"), SHARED_WINDOW >> 56 | _OWN)


def plan(parts: list[str]) -> Plan:
    """Plan one link of a carry chain, or the plain instruction of that name."""
    uses, sets = parts[0] in ("addc", "subc", "madc"), "cc" in parts
    if not uses and not sets:
        return arithmetic.plan(parts)
    stem, kind = parts[0][:3], parts[-1]
    half = next((part for part in parts if part in ("lo", "hi")), "")
    size, count = PTX_BYTES[kind], 4 if stem == "mad" else 3
    if kind[0] not in "su" or size not in (4, 8) or (stem == "mad") != bool(half):
        raise Refused("the machine does not support this carry form")
    letter = kind[0] if half == "hi" else "b"
    row = opcode(".".join(["carry", stem, *([half] if half else []), f"{letter}{8 * size}"]))

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, count)
        target = destination(symbols, operands[0], size)
        slots: dict[int, Operand] = {_LINK.destination: target}
        for column, token in zip((_LINK.a, _LINK.b, _LINK.c), operands[1:], strict=False):
            slots[column] = source(symbols, token, kind, size)
        for slot, needed in ((_LINK.carry_in, uses), (_LINK.carry_out, sets)):
            if needed:
                slots[slot] = symbols.carry()
        return Instruction(row, slots, (target, symbols.carry()) if sets else (target,))

    return bind


def is_space(parts: list[str]) -> Plan:
    """Plan ``isspacep.space p, a;``."""
    space = parts[1]
    if space not in _WINDOWS:
        raise Refused(f"isspacep.{space}: the machine answers for global, shared, local and param::entry")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        target = destination(symbols, operands[0], 0)
        return elementwise(opcode("isspacep"), target, source(symbols, operands[1], "u64", 8), imm=_WINDOWS[space])

    return bind


FAMILY = {
    "add": plan, "addc": plan, "sub": plan, "subc": plan, "mad": plan, "madc": plan, "isspacep": is_space,
}  # fmt: skip
