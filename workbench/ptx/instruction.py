"""Decoded instructions, before their registers get slots.

A kernel of thousands of statements has a few hundred *shapes*: opcode, literals and widths of the registers. A family's
plan binds the first statement of a shape to an `Instruction`; its `Form` then serves all others. An `InstructionStep`
is one statement: a form and the registers that stand in its places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from workbench.ptx.machine import BRANCH, EXIT, FLAGS, NEGATED, OPCODES, RETURN, Opcode, core
from workbench.ptx.operands import Operand, Refused, Register, Symbols
from workbench.ptx.parse import Body, Prototype, Statement


@final
@dataclass(slots=True)
class Instruction:
    """A row of the core's code.

    ``slots`` maps columns of the row to operands, ``raw`` to plain numbers. A column in neither has no operand; without
    the flags' column no flag is set.
    """

    opcode: Opcode
    slots: dict[int, Operand]
    destinations: tuple[Register, ...] = ()
    raw: dict[int, int] = field(default_factory=dict)
    imm: int = 0
    elements: int = 1
    bytes: int = 0
    target: str = ""
    call: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # local offsets of a call's results and arguments
    prototype: Prototype | None = None  # of a call through a register
    contracts: str = ""  # "mul", "add" or "sub" if the assembler may fuse it: see contraction.py


_THROUGH = {
    *("mov.b16", "mov.b32", "mov.b64", "neg.f64", "neg.bf16"),
    *(f"{name}.f32" for name in ("neg", "neg.ftz", "abs", "abs.ftz")),
    *(f"neg{ftz}.f16{pair}" for ftz in ("", ".ftz") for pair in ("", "x2")),
}


class Form:
    """The common part of all statements of one shape. Registers are places: positions in a step's registers."""

    __slots__ = (
        "contracts", "ends", "fixed", "imm", "instruction", "kind", "opcode", "places", "reads", "registers", "writes",
    )  # fmt: skip

    def __init__(self, instruction: Instruction, registers: Sequence[Register]):
        place = {register: i for i, register in enumerate(registers)}
        self.instruction = instruction
        self.registers = len(registers)  # their number, the same in every step
        self.opcode, self.imm = instruction.opcode, instruction.imm
        self.kind = instruction.opcode.kind
        # "through" for what passes on a product, perhaps with another sign.
        self.contracts = instruction.contracts or ("through" if instruction.opcode.name in _THROUGH else "")
        self.ends = self.kind in (BRANCH, EXIT, RETURN)  # True if it ends a basic block
        self.fixed: list[tuple[int, Operand]] = []  # (column, operand) of constants and special registers
        self.places: list[tuple[int, int]] = []  # (column, place)
        self.writes = [place[register] for register in instruction.destinations]
        self.reads: list[int] = []
        for slot, operand in instruction.slots.items():
            if type(operand) is Register:
                self.places.append((slot, place[operand]))
                self.reads.append(place[operand])
            else:
                self.fixed.append((slot, operand))
        for written in self.writes:  # a destination's own slot is not a read; if it is also read, it has a second slot
            if written in self.reads:
                self.reads.remove(written)

    def with_imm(self, imm: int) -> Form:
        """Return the form with another immediate."""
        other = self._copy()
        other.imm = imm
        return other

    def with_flags(self, flags: int) -> Form:
        """Return the form with these flags of a memory access added to its own."""
        raw = self.instruction.raw
        other = self._copy()
        other.instruction = replace(self.instruction, raw=raw | {FLAGS: raw.get(FLAGS, 0) | flags})
        return other

    def _copy(self) -> Form:
        other = object.__new__(Form)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other


@final
@dataclass(slots=True)
class InstructionStep:
    """One statement, or an instruction that the machine inserts.

    ``registers`` fill the places of its form; ``target`` is the label or the function that it leads to. The statement
    starts at offset ``start`` of the text; None if it was inserted.
    """

    form: Form
    registers: Sequence[Register]
    target: str = ""
    guard: Register | None = None
    negated: bool = False
    body: Body | None = None
    start: int | None = None

    @property
    def opcode(self) -> Opcode:
        """Opcode of the step's form."""
        return self.form.opcode

    @property
    def statement(self) -> Statement | None:
        """Statement in the text, parsed anew each time; None for an inserted step."""
        return None if self.body is None or self.start is None else self.body.statement(self.start)

    @classmethod
    def of(cls, instruction: Instruction) -> InstructionStep:
        """Return a step with a form of its own."""
        found = [operand for operand in instruction.slots.values() if type(operand) is Register]
        registers = list(dict.fromkeys(found))
        return cls(Form(instruction, registers), registers, instruction.target)


# A plan is made once per distinct opcode text and binds the operands of the first statement of each shape. Its result
# may depend on their literals and widths, and on any name that is not a register's; never on which register it is.
# Some PTX instructions become several of the machine's; the first of them stands for the statement, and a step among
# them may have a guard of its own.
Plan = Callable[[Symbols, list[str]], Instruction | Sequence[Instruction | InstructionStep]]
SinglePlan = Callable[[Symbols, list[str]], Instruction]


def opcode(name: str) -> Opcode:
    """Return the table's row of that name; raise Refused if there is none."""
    found = OPCODES.get(name)
    if found is None:
        raise Refused("the machine does not support this instruction")
    return found


def elementwise(row: Opcode, target: Register, *sources: Operand, imm: int = 0) -> Instruction:
    """Return the instruction that computes ``target`` from its sources, lane by lane."""
    slots = {core.Elementwise.destination: target} | dict(enumerate(sources, core.Elementwise.source))
    return Instruction(row, slots, (target,), imm=imm)


def comparison(row: Opcode, target: Register, a: Operand, b: Operand) -> Instruction:
    """Return the instruction that sets ``target`` where a comparison of two operands holds."""
    columns = core.Comparison
    return Instruction(row, {columns.result: target, columns.a: a, columns.b: b}, (target,))


def split_operands(text: str) -> list[str]:
    """Split at the commas outside braces, brackets and parentheses; ``a|b`` stays one operand."""
    if "{" not in text and "(" not in text:
        return [part.strip() for part in text.split(",")] if text else []
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return parts


def vector(token: str) -> list[str]:
    """Split ``{a, b}`` into its elements; return a scalar as a list of one."""
    if token[0] == "{":
        return [part.strip() for part in token[1:-1].split(",")]
    return [token]


def destination(symbols: Symbols, token: str, width: int | None = None) -> Register:
    """Return the register that a destination names."""
    register = symbols.register(token)
    if register is None:
        raise Refused(f"the destination {token}, which is not a register")
    if width is not None and register.width != width:
        raise Refused(f"the destination {token}, which has {8 * register.width} bits")
    return register


def unless_sink(symbols: Symbols, token: str, width: int | None = None) -> Register | None:
    """Return the register that a destination names, or None for the sink ``_``."""
    return None if token == "_" else destination(symbols, token, width)


def result(symbols: Symbols, token: str, width: int) -> Register:
    """Return the register of a destination that is always written: a temporary one for the sink ``_``."""
    return unless_sink(symbols, token, width) or symbols.temporary(width)


def source(symbols: Symbols, token: str, type_name: str, width: int | None = None) -> Operand:
    """Return a source operand; a register must have ``width`` bytes if that is given."""
    operand = symbols.operand(token, type_name)
    if width is not None and operand.width != width:
        raise Refused(f"the operand {token}, which has {8 * operand.width} bits where {8 * width} belong")
    return operand


def predicate(symbols: Symbols, token: str) -> tuple[Operand, dict[int, int]]:
    """Return the operand of ``p`` or ``!p``, and the raw column that says which, for instructions with both forms."""
    return source(symbols, token.lstrip("! "), "pred", 0), {NEGATED: -1 if token[0] == "!" else 0}


def expect(operands: list[str], *counts: int) -> None:
    """Raise Refused unless the number of operands is one of ``counts``."""
    if len(operands) not in counts:
        raise Refused(f"{len(operands)} operands, where {' or '.join(map(str, counts))} belong")
