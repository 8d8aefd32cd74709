"""PTX modules ready to launch: kernels decoded when first asked for, device variables kept between launches."""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from workbench.errors import UnknownNameError
from workbench.ptx import flow, parse
from workbench.ptx.allocate import TRUE_SLOT, Slots, lives
from workbench.ptx.decode import decode
from workbench.ptx.instruction import Instruction
from workbench.ptx.machine import ADDRESS_SLOT, BRANCH, OPCODES, Opcode, core
from workbench.ptx.operands import SPECIALS, Constant, DynamicShared, Register, Special, Symbols
from workbench.ptx.parse import TYPE_SIZES, Entry, Module, Parameter, Statement

_GLOBALS_BASE = 0x6000_0000_0000
_ALIGNMENT = 512
_ROW_HEAD = 9
_FORMATS = {"f32": "<f", "f64": "<d"}


class Executed(NamedTuple):
    """What reports need of one instruction; ``statement`` is None for inserted jumps."""

    opcode: Opcode
    statement: Statement | None


class Decoded:
    """A kernel in the core's form, and for every pc the statement it came from (None for inserted jumps)."""

    def __init__(self, program: Program, entry: Entry):
        module = program.module
        symbols = Symbols(entry, module.variables, program.global_address)
        items = decode(module, entry, symbols)
        try:
            blocks = flow.split_blocks(items)
        except KeyError as missing:
            raise parse.PtxSyntaxError(
                f"kernel {entry.name}: a branch to the label {missing}, which does not exist"
            ) from None
        order = flow.layout(blocks)
        code, targets = _linearise(blocks, order)
        # Operands are of no use once they have slots, and a sweep keeps many programs.
        self.code = [Executed(instruction.opcode, instruction.statement) for instruction in code]
        self.static_shared = (symbols.shared_bytes + 15) // 16 * 16
        self.local_bytes = (symbols.local_bytes + 15) // 16 * 16
        slots = Slots()
        rows = _rows(blocks, order, code, targets, symbols, slots)
        constants = [(offset, operand.width, self._value(operand)) for operand, offset in slots.constants]
        constants.append((TRUE_SLOT, 0, 1))
        self.core = core.Kernel(
            rows.tobytes(), (slots.size + 63) // 64 * 64, constants,
            [(SPECIALS[operand.name], offset) for operand, offset in slots.specials],
            self.static_shared, self.local_bytes, entry.parameter_bytes, _granule(code),
        )  # fmt: skip

    def _value(self, operand: Constant | DynamicShared) -> int:
        return operand.value if isinstance(operand, Constant) else self.static_shared + operand.offset


def _linearise(blocks: list[flow.Block], order: list[int]) -> tuple[list[Instruction], dict[int, int]]:
    """Blocks one after the other with the jumps that the order needs; also the pc at which each block begins."""
    code: list[Instruction] = []
    starts: dict[int, int] = {}
    for place, number in enumerate(order):
        block = blocks[number]
        starts[number] = len(code)
        following = order[place + 1] if place + 1 < len(order) else None
        if block.fall is not None and block.fall != following:
            block.code.append(Instruction(OPCODES["bra"], {}, raw={-1: block.fall}))
        elif block.fall is None and not block.code:
            block.code.append(Instruction(OPCODES["exit"], {}))
        code.extend(block.code)
    return code, starts


def _rows(blocks, order, code, starts, symbols: Symbols, slots: Slots) -> array:
    for instruction in code:
        for operand in instruction.slots.values():
            kind = type(operand)
            if kind is Constant or kind is DynamicShared:
                slots.constant(operand)
            elif kind is Special:
                slots.special(operand)
    offsets = slots.registers(lives(blocks, order, symbols.registers), symbols.registers)
    rows, of = array("i"), slots.of
    empty = [0] * (_ROW_HEAD + core.SLOTS)
    for instruction in code:
        row = empty.copy()
        row[0] = instruction.opcode.index
        guard = instruction.guard
        row[1] = TRUE_SLOT if guard is None else offsets[guard.number]
        row[2] = -1 if instruction.negated else 0
        row[3] = 1 if instruction.statement is not None else 0
        row[4], row[5] = instruction.elements, instruction.bytes
        row[6] = -1
        imm = instruction.imm
        row[7] = _signed(imm)
        row[8] = _signed(imm >> 32)
        for slot, operand in instruction.slots.items():
            row[_ROW_HEAD + slot] = offsets[operand.number] if type(operand) is Register else of[operand]
        for slot, value in instruction.raw.items():
            if slot >= 0:
                row[_ROW_HEAD + slot] = value
        if instruction.opcode.kind == BRANCH:
            row[6] = starts[instruction.raw[-1]]
        rows.extend(row)
    return rows


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


class Program(Mapping):
    """A PTX module. ``program.kernels`` maps names to kernels; device variables live as long as the program."""

    def __init__(self, text: str):
        self.module: Module = parse.parse(text)
        self.variables: dict[str, np.ndarray] = {}
        self._addresses: dict[str, int] = {}
        self._kernels: dict[str, object] = {}
        self._place_variables()

    @staticmethod
    def from_text(text: str) -> Program:
        """The program of a PTX text, kept in the process by content.

        Every kernel is decoded when it is first asked for. Raises UnsupportedInstructionError at once if no kernel of
        the module can run, else when the kernel in question is asked for.
        """
        return _program(text)

    @property
    def kernels(self) -> Mapping[str, object]:
        return self

    def __getitem__(self, name: str):
        if name not in self.module.entries:
            names = ", ".join(self.module.entries) or "none"
            raise UnknownNameError("kernel", repr(name), names, "Use one of the names in program.kernels.")
        if name not in self._kernels:
            from workbench.ptx.launch import Kernel

            self._kernels[name] = Kernel(self, self.module.entries[name], Decoded(self, self.module.entries[name]))
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.module.entries)

    def __len__(self) -> int:
        return len(self.module.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.module.entries

    def __repr__(self) -> str:
        return f"Program({', '.join(self.module.entries)})"

    def parameters(self, name: str) -> tuple[Parameter, ...]:
        return self.module.entries[name].parameters

    def global_address(self, name: str) -> int:
        return self._addresses[name]

    def variable_buffers(self) -> list[tuple[str, int, np.ndarray]]:
        """(name, address, storage) of every device variable."""
        return [(name, self._addresses[name], storage) for name, storage in self.variables.items()]

    def _place_variables(self) -> None:
        address = _GLOBALS_BASE
        placed = [v for v in self.module.variables.values() if v.space in ("global", "const")]
        for variable in placed:
            self._addresses[variable.name] = address
            self.variables[variable.name] = np.zeros(max(variable.size, 1), np.uint8)
            address += (variable.size + 2 * _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        for variable in placed:
            if variable.initial:
                _initialise(self, variable)


def _initialise(program: Program, variable: parse.Variable) -> None:
    storage, size = program.variables[variable.name], TYPE_SIZES[variable.type]
    position = 0
    for token in variable.initial.replace("{", " ").replace("}", " ").split(","):
        token = token.strip()
        if not token:
            continue
        value = parse.parse_number(token)
        if value is None:
            name = token.removeprefix("generic(").rstrip(")").split("+")[0].strip()
            if name not in program._addresses:
                raise parse.PtxSyntaxError(f"variable {variable.name}: cannot read the initial value {token!r}")
            value = program._addresses[name] + (int(token.split("+")[1].rstrip(") ")) if "+" in token else 0)
        if variable.type in _FORMATS:
            raw = struct.pack(_FORMATS[variable.type], value)
        else:
            raw = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        if position + size > variable.size:
            raise parse.PtxSyntaxError(
                f"variable {variable.name}: more initial values than its {variable.size} bytes hold"
            )
        storage[position : position + size] = np.frombuffer(raw, np.uint8)
        position += size


@functools.lru_cache(maxsize=64)
def _program(text: str) -> Program:
    program = Program(text)
    if len(program.module.entries) == 1:
        program[next(iter(program.module.entries))]
    return program
