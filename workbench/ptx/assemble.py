"""A kernel with its functions in the core's form: layout, slots of the register file, rows of code."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from workbench.ptx import calls, flow
from workbench.ptx.allocate import TRUE_SLOT, Slots, lives
from workbench.ptx.instruction import Instruction
from workbench.ptx.machine import ADDRESS_SLOT, BRANCH, CALL, NO_SLOT, OPCODES, Opcode, core
from workbench.ptx.operands import SPECIALS, Constant, DynamicShared, Frame, Register, Special
from workbench.ptx.parse import Entry, Statement

if TYPE_CHECKING:
    from workbench.ptx.program import Program

_ROW_HEAD = 9
_EMPTY_ROW = (0,) * (_ROW_HEAD + core.SLOTS)


class Executed(NamedTuple):
    """What reports need of one instruction; ``statement`` is None for what the machine inserted."""

    opcode: Opcode
    statement: Statement | None


class Decoded:
    """A kernel in the core's form, and for every pc the statement it came from (None for inserted jumps)."""

    def __init__(self, program: Program, entry: Entry):
        units = calls.units(program.module, entry, program.global_address)
        slots = Slots()
        # A kernel that calls functions begins with a jump over them.
        jump = [Instruction(OPCODES["bra"], {}, raw={-1: 0})] if len(units) > 1 else []
        code, placed, begins = list(jump), [], {}
        for unit in units:
            begins[unit.source.name] = len(code)
            blocks = unit.blocks()
            order = flow.layout(blocks)
            part, starts = _linearise(blocks, order, len(code))
            placed.append((unit, blocks, order, part, starts))
            code.extend(part)
        # Operands are of no use once they have slots, and a sweep keeps many programs.
        self.code = [Executed(instruction.opcode, instruction.statement) for instruction in code]
        self.static_shared = (units[-1].symbols.shared_bytes + 15) // 16 * 16
        self.local_bytes = calls.local_bytes(units)
        rows, saves = array("i"), []
        for instruction in jump:
            rows.extend(_row(instruction, begins[entry.name], [], {}))
        for unit, blocks, order, part, starts in placed:
            _take_slots(part, slots)
            registers = unit.symbols.registers
            spans = lives(blocks, order, registers)
            offsets = slots.registers(spans, registers)
            saves.append(sorted({(offsets[n], registers[n].width) for n in spans}) if unit.recursive else [])
            for instruction in part:
                target = NO_SLOT
                if instruction.opcode.kind == BRANCH:
                    target = starts[instruction.raw[-1]]
                elif instruction.opcode.kind == CALL:
                    target = begins[instruction.target]
                rows.extend(_row(instruction, target, offsets, slots.of))
        constants = [(offset, operand.width, self._value(operand)) for operand, offset in slots.constants]
        constants.append((TRUE_SLOT, 0, 1))
        self.core = core.Kernel(
            rows.tobytes(), (slots.size + 63) // 64 * 64, constants,
            [(SPECIALS[operand.name], offset) for operand, offset in slots.specials],
            self.static_shared, self.local_bytes, entry.parameter_bytes, _granule(code),
            slots.of.get(Frame(), 0xFFFFFFFF), saves,
        )  # fmt: skip

    def _value(self, operand: Constant | DynamicShared) -> int:
        return operand.value if isinstance(operand, Constant) else self.static_shared + operand.offset


def _linearise(blocks: list[flow.Block], order: list[int], begin: int) -> tuple[list[Instruction], dict[int, int]]:
    """Blocks one after the other with the jumps that the order needs; also the pc at which each block begins."""
    code: list[Instruction] = []
    starts: dict[int, int] = {}
    for place, number in enumerate(order):
        block = blocks[number]
        starts[number] = begin + len(code)
        following = order[place + 1] if place + 1 < len(order) else None
        if block.fall is not None and block.fall != following:
            block.code.append(Instruction(OPCODES["bra"], {}, raw={-1: block.fall}))
        elif block.fall is None and not block.code:
            block.code.append(Instruction(OPCODES["exit"], {}))
        code.extend(block.code)
    return code, starts


def _take_slots(code: list[Instruction], slots: Slots) -> None:
    for instruction in code:
        for operand in instruction.slots.values():
            kind = type(operand)
            if kind is Constant or kind is DynamicShared:
                slots.constant(operand)
            elif kind is Special:
                slots.special(operand)
            elif kind is Frame:
                slots.frame(operand)


def _row(instruction: Instruction, target: int, offsets: list[int], of: dict) -> list[int]:
    row = list(_EMPTY_ROW)
    row[0] = instruction.opcode.index
    guard = instruction.guard
    row[1] = TRUE_SLOT if guard is None else offsets[guard.number]
    row[2] = -1 if instruction.negated else 0
    row[3] = 1 if instruction.statement is not None else 0
    row[4], row[5] = instruction.elements, instruction.bytes
    row[6] = target
    imm = instruction.imm
    row[7] = _signed(imm)
    row[8] = _signed(imm >> 32)
    for slot, operand in instruction.slots.items():
        row[_ROW_HEAD + slot] = offsets[operand.number] if type(operand) is Register else of[operand]
    for slot, value in instruction.raw.items():
        if slot >= 0:
            row[_ROW_HEAD + slot] = value
    return row


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _granule(code: list[Instruction]) -> int:
    """The smallest naturally aligned access that the kernel can make to shared memory, 16 bytes at most."""
    sizes = [16]
    for instruction in code:
        name = instruction.opcode.name
        if ADDRESS_SLOT in instruction.slots and (".shared." in name or ".generic." in name):
            sizes.append(instruction.bytes * instruction.elements)
        elif name == "cp.async":
            sizes.append(instruction.bytes)
    return min(sizes)
