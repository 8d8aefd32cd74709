"""The code of a kernel as a debugger sees it: lines, the registers that live at an instruction, their types."""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.analysis.places import source_text
from workbench.errors import ArgumentError, UnknownNameError
from workbench.launch.debug.register_types import FLOATS, result_and_source_types
from workbench.ptx import PtxKernel
from workbench.ptx.assemble import Decoded, RegisterSlots
from workbench.ptx.instruction import InstructionStep
from workbench.ptx.operands import Register

_ASSIGNED = re.compile(r"(?<![\w.\]])([A-Za-z_]\w*)\s*(?:[-+*/|&^]|<<|>>)?=(?![=])")
_UNTYPED = {0: "pred", 2: "b16", 4: "b32", 8: "b64"}


@dataclass(frozen=True, slots=True)
class RegisterSlot:
    """A register of a kernel: its slot in a warp's register file, its width in bytes (0: a predicate) and its type.

    ``type`` is the PTX type by which instructions use it: ``f32``, ``s32``, ``f16x2``, ``pred``; ``b32`` where none
    tells.
    """

    name: str
    slot: int
    width: int
    type: str


class KernelCode:
    """Lines and registers of a kernel. Registers share slots, so that each has its value only while it is live."""

    def __init__(self, kernel: PtxKernel, fmad: bool = True):
        self.kernel = kernel
        self.decoded = Decoded(
            kernel.module, kernel.entry, kernel.program.global_address, fmad and kernel.module.contracts, True
        )
        self.steps: Sequence[InstructionStep] = self.decoded.code
        self.places = tuple(kernel.source_of(pc, in_kernel_file=True) for pc in range(len(self.steps)))

    # -- lines -------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def file(self) -> str:
        """Path of the file with most of the kernel's instructions; "" if the compiler names no lines."""
        counts: dict[str, int] = defaultdict(int)
        for path, line in self.places:
            counts[path] += bool(line)
        return max(counts, key=lambda path: counts[path]) if any(counts.values()) else ""

    @functools.cached_property
    def line_numbers(self) -> list[int]:
        """A number for each instruction's line, the same for equal lines; 0 for none."""
        numbers: dict[tuple[str, int], int] = {}
        return [numbers.setdefault(place, len(numbers) + 1) if place[1] else 0 for place in self.places]

    @functools.cached_property
    def pcs_by_line(self) -> Mapping[tuple[str, int], list[int]]:
        """Instructions of each (file, line)."""
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        for pc, place in enumerate(self.places):
            if place[1]:
                found[place].append(pc)
        return found

    @property
    def pcs_with_line(self) -> list[int]:
        """Instructions that the compiler attributes to a line."""
        return [pc for pc, (_, line) in enumerate(self.places) if line]

    def pcs_of_line(self, line: int, file: str = "") -> list[int]:
        """Return the instructions of a line; ``file`` may be the end of a path, and is the kernel's own without it.

        Raises ArgumentError for a line without code; names the nearest one that has some.
        """
        paths = {path for path, _ in self.pcs_by_line}
        wanted = [path for path in paths if _ends_with(path, file)] if file else [self.file]
        if not wanted or not paths:
            raise UnknownNameError(
                "file", repr(file), ", ".join(sorted(map(repr, paths))) or "none",
                "Compile with line information to stop at lines; next_instruction() works without.",
            )  # fmt: skip
        pcs = sorted(pc for path in wanted for pc in self.pcs_by_line.get((path, line), ()))
        if not pcs:
            lines = sorted(number for path, number in self.pcs_by_line if path in wanted)
            after = next((one for one in lines if one >= line), lines[-1])
            raise ArgumentError(
                "line", line, f"lines with code: {_ranges(lines)}",
                f"The compiler kept no instruction of line {line}; stop at line {after}.",
            )  # fmt: skip
        return pcs

    def text_of(self, pc: int) -> str:
        """Return the source line of an instruction; "" where it cannot be read."""
        path, line = self.places[pc]
        return source_text(path, line).strip() if line else ""

    def instruction(self, pc: int) -> str:
        """Return the PTX of an instruction; "" for one that the machine inserted."""
        statement = self.steps[pc].statement if 0 <= pc < len(self.steps) else None
        return statement.text if statement else ""

    def ptx_line(self, pc: int) -> int:
        """Return the line of an instruction in the PTX; 0 for one that the machine inserted."""
        statement = self.steps[pc].statement if 0 <= pc < len(self.steps) else None
        return statement.line if statement else 0

    def label(self, pc: int) -> str:
        """Return an instruction's place, such as "softmax.cu:12"."""
        path, line = self.places[pc]
        return f"{Path(path).name}:{line}" if line else f"PTX line {self.ptx_line(pc)}"

    # -- registers ---------------------------------------------------------------------------------------------------

    def _unit(self, pc: int) -> RegisterSlots:
        for unit in self.decoded.registers:
            if unit.begin <= pc < unit.end:
                return unit
        return self.decoded.registers[-1]

    @functools.cached_property
    def _types(self) -> list[dict[str, str]]:
        """Types of registers by name, for each unit of code."""
        found: list[dict[str, str]] = [{} for _ in self.decoded.registers]
        uses: list[dict[str, str]] = [{} for _ in self.decoded.registers]
        for number, unit in enumerate(self.decoded.registers):
            for pc in range(unit.begin, unit.end):
                statement = self.steps[pc].statement
                if statement is None:
                    continue
                result, source = result_and_source_types(statement.opcode)
                for register in self.results(pc):
                    if result and _fits(result, register):
                        found[number].setdefault(register.name, result)
                for register in self.sources(pc):
                    if source and _fits(source, register):
                        uses[number].setdefault(register.name, source)
            found[number] = uses[number] | found[number]
        return found

    def _slot(self, unit: RegisterSlots, register: Register) -> RegisterSlot:
        types = self._types[self.decoded.registers.index(unit)]
        type_name = types.get(register.name, _UNTYPED[register.width])
        return RegisterSlot(register.name, int(unit.offsets[register.number]), register.width, type_name)

    def _steps_registers(self, pc: int, places: Sequence[int]) -> list[Register]:
        registers = self.steps[pc].registers
        return [registers[place] for place in places]

    def results(self, pc: int) -> list[Register]:
        """Return the registers that an instruction writes."""
        return self._steps_registers(pc, self.steps[pc].form.writes)

    def sources(self, pc: int) -> list[Register]:
        """Return the registers that an instruction reads, its guard first."""
        guard = self.steps[pc].guard
        return ([guard] if guard is not None else []) + self._steps_registers(pc, self.steps[pc].form.reads)

    def slots(self, pc: int, registers: Sequence[Register]) -> list[RegisterSlot]:
        """Return the slots of registers of an instruction."""
        unit = self._unit(pc)
        return [self._slot(unit, register) for register in registers]

    def is_live(self, pc: int, register: Register) -> bool:
        """Return True if a register has its value just before an instruction."""
        unit = self._unit(pc)
        at = 2 * (pc - unit.begin)
        return bool(unit.first[register.number] < at <= unit.last[register.number])

    def live(self, pc: int) -> Iterator[RegisterSlot]:
        """Yield the registers that have their values just before an instruction."""
        unit = self._unit(pc)
        at = 2 * (pc - unit.begin)
        for register in unit.registers:
            if unit.first[register.number] < at <= unit.last[register.number]:
                yield self._slot(unit, register)

    def register(self, name: str, pc: int) -> Register | None:
        """Return the register of a name, as PTX (``%f3``) or as the source writes it, at an instruction; else None."""
        if name.startswith("%"):
            return self._by_name(self._unit(pc)).get(name)
        return self._variable(name, pc)

    @functools.cached_property
    def _names(self) -> dict[int, dict[str, Register]]:
        return {unit.begin: {register.name: register for register in unit.registers} for unit in self.decoded.registers}

    def _by_name(self, unit: RegisterSlots) -> dict[str, Register]:
        return self._names[unit.begin]

    def known_names(self, pc: int) -> list[str]:
        """Return the names that `register` knows and that have a value at an instruction."""
        variables = [name for name in self.variables if self._variable(name, pc) is not None]
        return [*variables, *(slot.name for slot in self.live(pc))]

    @functools.cached_property
    def variables(self) -> Mapping[str, list[int]]:
        """Instructions that write a value of each variable.

        The compiler names no variables; a line with one assignment tells which register it is: what the last of its
        instructions in a row writes. Where these write different kinds of values, the most common kind counts.
        """
        found: dict[str, list[int]] = defaultdict(list)
        for (path, line), pcs in self.pcs_by_line.items():
            names = set(_ASSIGNED.findall(source_text(path, line).split("//")[0].split("#")[0]))
            if len(names) == 1:
                found[names.pop()] += [pc for pc in pcs if self._has_value(pc) and self._run_end(pc) == pc + 1]
        return {name: self._of_one_kind(sorted(pcs)) for name, pcs in found.items() if pcs}

    def _run_end(self, pc: int) -> int:
        """Return the end of the instructions in a row that belong to the line of one, and compute a value."""
        end = last = pc + 1
        while end < len(self.steps) and self.places[end] == self.places[pc]:
            end += 1
            last = end if self._has_value(end - 1) else last
        return last

    def _has_value(self, pc: int) -> bool:
        return any(register.width for register in self.results(pc))

    def _of_one_kind(self, pcs: list[int]) -> list[int]:
        kinds = {pc: self._kind(pc) for pc in pcs}
        most = Counter(kinds.values()).most_common(1)[0][0]
        return [pc for pc in pcs if kinds[pc] == most]

    def _kind(self, pc: int) -> tuple[int, bool]:
        slot = self.slots(pc, self.results(pc))[-1]
        return slot.width, slot.type in FLOATS

    def _variable(self, name: str, pc: int) -> Register | None:
        """Return the register that the latest line which assigns to a variable wrote, and that is live."""
        written = [
            (at, register)
            for at in self.variables.get(name, ())
            for register in self.results(at)
            if register.width and self.is_live(pc, register)
        ]
        if not written:
            return None
        before = [one for one in written if one[0] < pc]
        return max(before or written, key=lambda one: one[0])[1]

    def variable_of(self, register: Register | RegisterSlot, pc: int) -> str:
        """Return the variable that a register holds at an instruction; "" if the source does not tell."""
        for name, pcs in self.variables.items():
            if any(register.name == one.name for at in pcs for one in self.results(at)):
                found = self._variable(name, pc)
                if found is not None and found.name == register.name:
                    return name
        return ""

    def writers(self, register: Register, pc: int) -> list[int]:
        """Return the instructions that write a register, in the unit of an instruction."""
        unit = self._unit(pc)
        return [at for at in range(unit.begin, unit.end) if register in self.results(at)]


def _fits(type_name: str, register: Register) -> bool:
    bits = {"pred": 0, "f16x2": 32, "bf16x2": 32}.get(type_name)
    if bits is None:
        bits = int(re.sub(r"\D", "", type_name.removeprefix("bf").removeprefix("tf")) or 0)
        bits = max(bits, 16) if type_name != "tf32" else 32
    return bits == 8 * register.width


def _ends_with(path: str, end: str) -> bool:
    return path == end or Path(path).parts[-len(Path(end).parts) :] == Path(end).parts


def _ranges(lines: Sequence[int]) -> str:
    """Return "3-5, 9" for 3, 4, 5 and 9."""
    parts: list[list[int]] = []
    for line in lines:
        if parts and line == parts[-1][-1] + 1:
            parts[-1].append(line)
        else:
            parts.append([line])
    return ", ".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else str(one[0]) for one in parts)
