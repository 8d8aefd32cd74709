"""Assembly of a kernel and its functions to the core's form: layout, slots of the register file, rows of code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from workbench.ptx import calls, contraction, flow, products, tensor_loads
from workbench.ptx.allocate import Accesses, Slots, lives
from workbench.ptx.instruction import Form, Instruction, InstructionStep
from workbench.ptx.machine import ADDRESS, CALL, FLAGS, FRAGMENT, NEGATED, NO_SLOT, OPCODES, TRUE_SLOT, core
from workbench.ptx.operands import SPECIALS, Constant, DynamicShared, Operand, Register
from workbench.ptx.parse import ParsedModule, PtxEntry

_HEAD = core.ROW["names"][:ADDRESS]  # columns before the operands in a row of 32-bit numbers
_GUARD, _FLIP, _COUNTED, _TARGET = map(_HEAD.index, ("guard", "guard_flip", "counted", "target"))


@dataclass(slots=True)
class _Part:
    """The laid-out code of one unit. ``jumps`` are (pc, target pc), counted from the start of the unit."""

    unit: calls.Unit
    blocks: list[flow.BasicBlock]
    order: list[int]
    code: list[InstructionStep]
    jumps: list[tuple[int, int]]
    misused: list[products.Misuse]


@dataclass(frozen=True, slots=True)
class RegisterSlots:
    """Registers of a kernel or function, whose code is ``[begin, end)``.

    ``offsets`` are their slots by number, 0 for those that do not occur. ``first`` and ``last`` are the points, counted
    from ``begin``, between which each holds its value: instruction i reads at 2i and writes at 2i + 1.
    """

    begin: int
    end: int
    registers: list[Register]
    offsets: np.ndarray
    first: np.ndarray
    last: np.ndarray


class Decoded:
    """A kernel in the core's form, with the statement behind every pc (None for inserted steps).

    With ``fmad`` products and sums are contracted (see contraction.py). With ``keeps_registers`` steps keep their
    registers, and ``registers`` has the slots of each unit; a kernel that only runs does not need them.
    """

    def __init__(
        self, module: ParsedModule, entry: PtxEntry, address_of: Callable[[str], int], fmad: bool,
        keeps_registers: bool = False,
    ):  # fmt: skip
        units = calls.units(module, entry, address_of)
        parts = [_lay_out(unit, fmad) for unit in units]
        # A kernel that calls functions begins with a jump over them.
        head = [InstructionStep.of(Instruction(OPCODES["bra"], {}))] if len(units) > 1 else []
        code, begins = list(head), {}
        for part in parts:
            begins[part.unit.source.name] = len(code)
            code += part.code
        self.code = code
        shared_end = units[-1].symbols.shared_bytes
        self.shared_variables = {offset: name for name, offset in units[-1].symbols.shared.items()}
        self.shared_sizes = {units[-1].symbols.shared[name]: n for name, n in units[-1].symbols.shared_sizes.items()}
        # Dynamic shared memory begins where ptxas puts it: aligned for all extern arrays of the module.
        arrays = [one.align for one in module.variables.values() if one.space == "shared" and one.external]
        granule = max([16, *arrays])
        self.static_shared = -(-shared_end // granule) * granule
        self.local_bytes = calls.local_bytes(units)
        slots, saves, rows = Slots(), [], []
        fragments: list[list[int]] = []
        self.registers: list[RegisterSlots] = []
        for step in head:
            rows.append(_Table([step], slots).rows(np.zeros(0, np.int32), fragments))
            rows[0][0, _TARGET] = begins[entry.name]
        for part in parts:
            table, registers = _Table(part.code, slots), part.unit.symbols.registers
            accesses = table.accesses()
            offsets = slots.registers(part.blocks, part.order, accesses, registers)
            if keeps_registers:
                begin, spans = begins[part.unit.source.name], lives(part.blocks, part.order, accesses, len(registers))
                self.registers.append(RegisterSlots(begin, begin + len(part.code), registers, offsets, *spans))
            kept = np.flatnonzero(offsets).tolist() if part.unit.recursive else []
            saves.append(sorted({(int(offsets[n]), registers[n].width) for n in kept}))
            rows.append(table.rows(offsets, fragments))
            begin = begins[part.unit.source.name]
            for pc, to in part.jumps:
                rows[-1][pc, _TARGET] = begin + to
            if part.unit.callees:
                for pc, step in enumerate(part.code):
                    if step.form.kind == CALL and step.target in begins:
                        rows[-1][pc, _TARGET] = begins[step.target]
        constants = [(offset, operand.width, self._value(operand)) for operand, offset in slots.constants]
        constants.append((TRUE_SLOT, 0, 1))
        forms = dict.fromkeys(step.form for step in code)
        self.core = core.Kernel(
            np.concatenate(rows).tobytes(), (slots.size + 63) // 64 * 64, constants,
            [(SPECIALS[operand.name], offset) for operand, offset in slots.specials],
            self.static_shared, shared_end, self.local_bytes, entry.parameter_bytes, _granule(forms),
            NO_SLOT if slots.frame is None else slots.frame, saves, fragments,
        )  # fmt: skip

        self.misused = _misused(parts, code)
        self.slots: dict[Operand, int] = dict(slots.of) if keeps_registers else {}
        if not keeps_registers:
            for step in code:  # slots replace them now; dropping them saves memory, as a sweep keeps many programs
                step.registers, step.guard = (), None

    def written_at(self, pc: int) -> int:
        """Return the pc at which the statement of an instruction begins.

        It differs for a trap inserted behind it, and for the further elements of a vector's atomic.
        """
        if 0 <= pc < len(self.code) and self.code[pc].form.opcode.name.startswith(("trap", "atom.")):
            while pc and self.code[pc].start is None:
                pc -= 1
        return pc

    def _value(self, operand: Constant | DynamicShared) -> int:
        return operand.value if isinstance(operand, Constant) else self.static_shared + operand.offset


def _lay_out(unit: calls.Unit, fmad: bool) -> _Part:
    """Lay out the blocks of a unit one after the other, with the jumps that the order needs."""
    blocks = unit.blocks()
    order = flow.layout(blocks)
    misused = _misused_in(blocks, order)
    tensor_loads.insert_waits(blocks, misused)
    if fmad:
        contraction.contract(blocks, order, unit.symbols)
    code: list[InstructionStep] = []
    starts: dict[int, int] = {}
    branches: list[tuple[int, int]] = []
    for place, number in enumerate(order):
        block = blocks[number]
        starts[number] = len(code)
        following = order[place + 1] if place + 1 < len(order) else None
        if block.branch is not None:
            branches.append((len(code) + len(block.code) - 1, block.branch))
        if block.fall is not None and block.fall != following:
            branches.append((len(code) + len(block.code), block.fall))
            block.code.append(InstructionStep.of(Instruction(OPCODES["bra"], {})))
        elif block.fall is None and not block.code:
            block.code.append(InstructionStep.of(Instruction(OPCODES["exit"], {})))
        code += block.code
    return _Part(unit, blocks, order, code, [(pc, starts[number]) for pc, number in branches], misused)


def _misused_in(blocks: list[flow.BasicBlock], order: list[int]) -> list[products.Misuse]:
    found: list[products.Misuse] = []
    for module, concerns in ((products, products.is_product), (tensor_loads, tensor_loads.is_load)):
        if any(concerns(step.form) for number in order for step in blocks[number].code):
            found += module.misused(blocks, order)
    return found


def _misused(parts: list[_Part], code: list[InstructionStep]) -> list[tuple[str, int, int]]:
    """Return (kind of finding, pc, pc of the other side) for registers of products and loads touched too early."""
    found = [one for part in parts for one in part.misused]
    place = {id(step): pc for pc, step in enumerate(code)} if found else {}
    return [(one.kind, place[id(one.step)], place[id(one.other)]) for one in found]


class _Table:
    """The code of a unit as arrays: the form of each step, and the registers in its places."""

    def __init__(self, code: list[InstructionStep], slots: Slots):
        index: dict[Form, int] = {}
        self._form = np.array([index.setdefault(step.form, len(index)) for step in code], np.int64)
        self._rows = np.array([_row(form, slots) for form in index], np.int32)
        # Of operands that are too many for a row, those that are not registers.
        self._constants = [
            [(column, slots.take(operand)) for column, operand in form.fixed if column >= FRAGMENT] for form in index
        ]
        self._slots = _Lists([[slot for slot, _ in form.places] for form in index])
        self._places = _Lists([[place for _, place in form.places] for form in index])
        self._reads, self._writes = _Lists([form.reads for form in index]), _Lists([form.writes for form in index])
        counts = np.array([form.registers for form in index], np.int64)[self._form]
        self._begins = np.cumsum(counts) - counts
        self._registers = np.array([register.number for step in code for register in step.registers], np.int64)
        guarded = [(pc, step.guard.number, step.negated) for pc, step in enumerate(code) if step.guard is not None]
        self._guarded, self._guards, self._negated = np.array(guarded, np.int64).reshape(-1, 3).T
        self._inserted = np.array([pc for pc, step in enumerate(code) if step.start is None], np.int64)

    def _numbers(self, places: _Lists) -> tuple[np.ndarray, np.ndarray]:
        """Return (pc, register) for the given places of every step."""
        pc, place = places.of(self._form)
        return pc, self._registers[self._begins[pc] + place]

    def accesses(self) -> Accesses:
        read_pc, read = self._numbers(self._reads)
        written_pc, written = self._numbers(self._writes)
        pc, read = np.concatenate((read_pc, self._guarded)), np.concatenate((read, self._guards))
        by_pc = np.argsort(pc, kind="stable")
        kills = ~np.isin(written_pc, self._guarded)
        return Accesses(pc[by_pc], read[by_pc], written_pc, written, kills)

    def rows(self, offsets: np.ndarray, fragments: list[list[int]]) -> np.ndarray:
        """Return the core's rows for the given slots of registers; targets of branches are left open.

        Slots of operands that are too many for a row are appended to ``fragments``; the row's target is their index.
        """
        rows = self._rows[self._form]
        rows[self._guarded, _GUARD] = offsets[self._guards]
        rows[self._guarded, _FLIP] = -self._negated
        rows[self._inserted, _COUNTED] = 0
        pc, register = self._numbers(self._places)
        slot, offset = self._slots.of(self._form)[1], offsets[register]
        own = slot < FRAGMENT
        rows[pc[own], slot[own]] = offset[own]
        constant = np.flatnonzero(np.array([bool(each) for each in self._constants], bool)[self._form])
        for at in np.unique(np.concatenate((pc[~own], constant))).tolist():
            mine = (pc == at) & ~own
            rows[at, _TARGET] = len(fragments)
            found = [*zip(slot[mine].tolist(), offset[mine].tolist(), strict=True), *self._constants[self._form[at]]]
            fragments.append([place for _, place in sorted(found)])
        return rows


class _Lists:
    """Lists of numbers, concatenated in one array."""

    def __init__(self, lists: list[list[int]]):
        self._counts = np.array([len(each) for each in lists], np.int64)
        self._begins = np.cumsum(self._counts) - self._counts
        self._numbers = np.array(list(chain.from_iterable(lists)), np.int64)

    def of(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the lists ``which`` in turn, each with its position in ``which``."""
        counts = self._counts[which]
        position = np.repeat(np.arange(len(which)), counts)
        inside = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
        return position, self._numbers[self._begins[which][position] + inside]


def _row(form: Form, slots: Slots) -> list[int]:
    """Return the part that the rows of all steps of this form have in common."""
    made = form.instruction
    head = {
        "opcode": form.opcode.number, "guard": TRUE_SLOT, "guard_flip": 0, "counted": 1, "elements": made.elements,
        "bytes": made.bytes, "target": NO_SLOT, "immediate_low": _signed(form.imm),
        "immediate_high": _signed(form.imm >> 32),
    }  # fmt: skip
    row = [*map(head.__getitem__, _HEAD), *[NO_SLOT] * (FRAGMENT - ADDRESS)]
    row[FLAGS] = row[NEGATED] = 0
    for column, operand in form.fixed:
        if column < FRAGMENT:
            row[column] = slots.take(operand)
    for column, value in made.raw.items():
        row[column] = value
    return row


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _granule(forms: dict[Form, None]) -> int:
    """Return the bytes of the smallest naturally aligned access of the kernel to shared memory, 16 at most."""
    sizes = [16]
    for form in forms:
        name, made = form.opcode.name, form.instruction
        if ADDRESS in made.slots and (".shared." in name or ".generic." in name):
            fragment = name.startswith("wmma.")  # its elements are registers, with an access each or less
            sizes.append(made.bytes * (1 if fragment else made.elements))
        elif name.startswith("cp.async") and made.bytes:
            sizes.append(made.bytes)
    return min(sizes)
