"""Results of straight-line machine code in exact arithmetic: the text of nvdisasm, interpreted."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from ptx_float_cases import NAN, flush, operate
from ptx_support import WIDTHS

from workbench.toolchain import tools

_OPERATIONS = {"MUL": ("mul", 2), "ADD": ("add", 2), "FMA": ("fma", 3)}
_ONE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F80_0000, "f64": 0x3FF0_0000_0000_0000}

Values = list[int]
"""The bits of a register in every thread; of a packed one the lower halves, then the upper ones."""


def machine_code(ptx: str, folder: Path, arch: str, *options: str) -> dict[str, list[str]]:
    """Assemble PTX and return the instructions of each kernel."""
    (folder / "k.ptx").write_text(ptx)
    cubin = folder / "k.cubin"
    tools.run_program([tools.find_program("ptxas"), f"-arch={arch}", *options, folder / "k.ptx", "-o", cubin])
    return instructions_of(cubin)


def instructions_of(cubin: Path) -> dict[str, list[str]]:
    """Return the instructions of each kernel of a cubin."""
    command = [tools.find_program("nvdisasm"), "-c", cubin]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^\.text\.(\w+):", shown, flags=re.MULTILINE)
    return {
        name: re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", code)
        for name, code in zip(parts[1::2], parts[2::2], strict=True)
    }


class SassRun:
    """One run of a kernel's machine code, for operands of one ``kind``, packed in pairs or not."""

    def __init__(self, kind: str, packed: bool, inputs: Sequence[Values], spacing: int):
        self.kind, self.packed, self._inputs, self._spacing = kind, packed, inputs, spacing
        self._registers: dict[str, Values] = {}
        self._top = WIDTHS[kind] - 1
        self.stored: dict[int, Values] = {}

    def run(self, code: Sequence[str]) -> dict[int, Values]:
        """Run the code; return the stored values by their place."""
        for line in code:
            self._step(line)
        return self.stored

    def _step(self, line: str) -> None:
        name, rest = re.match(r"([A-Z0-9_.]+)\s*(.*)", line).groups()
        base, operands = name.split(".")[0], [part.strip() for part in rest.split(",")] if rest else []
        if base == "LDG":
            self._registers[operands[0]] = self._inputs[self._place(operands[1])]
        elif base == "STG":
            self.stored[self._place(operands[0])] = self._value(operands[1])
        elif base == "HFMA2" and operands[1:3] == ["-RZ", "RZ"] and not self.packed:  # a constant
            high, low = (int(np.float16(float(one)).view(np.uint16)) for one in operands[3:])
            self._registers[operands[0]] = [high << 16 | low] * self._threads
        elif (found := re.fullmatch(r"[FDH](MUL|ADD|FMA)2?", base)) is not None:
            operation, count = _OPERATIONS[found[1]]
            sources = list(self._sources(operands[1:]))
            assert len(sources) == count, line
            self._registers[operands[0]] = [
                self._computed(operation, name, each) for each in zip(*sources, strict=True)
            ]
        elif "MOV" in name and operands[-1] in self._registers:
            self._registers[operands[0]] = self._registers[operands[-1]]
        elif "MOV" in name and operands[-1].startswith("0x"):
            self._registers[operands[0]] = [int(operands[-1], 16)] * self._threads
        else:  # addresses, and the end
            assert base[0] not in "FDH", line
            self._registers.pop(operands[0] if operands else "", None)

    def _place(self, address: str) -> int:
        offset = re.search(r"\+(0x[0-9a-f]+)\]", address)
        return int(offset[1], 16) // self._spacing if offset else 0

    def _sources(self, operands: Sequence[str]) -> Iterator[Values]:
        rest = list(operands)
        while rest:
            operand = rest.pop(0)
            if self.packed and re.match(r"-?[\d.]", operand):  # a number for each half
                high, low = (self._number(one) for one in (operand, rest.pop(0)))
                yield [*[low] * (self._threads // 2), *[high] * (self._threads // 2)]
            else:
                yield self._value(operand)

    @property
    def _threads(self) -> int:
        return len(self._inputs[0])

    def _value(self, operand: str) -> Values:
        operand = re.sub(r"\.(reuse|H0_H0)\b", "", operand)
        if operand.startswith("-"):
            return [bits ^ 1 << self._top for bits in self._value(operand[1:])]
        if operand.startswith("|"):
            return [bits & ~(1 << self._top) for bits in self._value(operand.strip("|"))]
        if operand in ("RZ", "URZ"):
            return [0] * self._threads
        if re.match(r"[\d.]", operand):
            return [self._number(operand)] * self._threads
        return self._registers[operand]

    def _number(self, text: str) -> int:
        form = {"f16": "<e", "bf16": "<f", "f32": "<f", "f64": "<d"}[self.kind]
        return int.from_bytes(struct.pack(form, float(text)), "little") >> 16 * (self.kind == "bf16")

    def _computed(self, operation: str, name: str, values: tuple[int, ...]) -> int:
        flushes = ".FTZ" in name
        if flushes:
            values = tuple(flush(one, self.kind) for one in values)
        found = operate(operation, self.kind, "rn", values)
        if found is NAN:
            return 0 if ".SAT" in name else (1 << self._top) - 1
        assert isinstance(found, int)
        made = flush(found, self.kind) if flushes else found
        if ".SAT" in name:
            made = 0 if made >> self._top else min(made, _ONE[self.kind])
        return made
