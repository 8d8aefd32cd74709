"""Static counts of SASS instructions, by PTX line and by loop.

``ptxas -lineinfo`` stores two tables in a cubin: the source line of each instruction, which for Triton does not say
where an inlined function was called, and its line in the PTX (``.nv_debug_line_sass``), whose own locations are
complete. This module uses the second; a caller with the PTX gets from its line to the source.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from workbench.errors import ArgumentError
from workbench.toolchain import disassembly

if TYPE_CHECKING:
    from workbench.toolchain.kernel import CompiledKernel

PTX_LINE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt[^"]*", line (\d+)')
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(?:\s+(.*?))?\s*;")
_WRITTEN = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;.*$")
_LABEL = re.compile(r"^(\.L\w+):")
_WIDTHS = {"U8": "8", "S8": "8", "U16": "16", "S16": "16", "64": "64", "128": "128"}
_TARGET = re.compile(r"\((\.L\w+)\)")
_SIZED = ("LDG", "LDS", "LDL", "LD", "STG", "STS", "STL", "ST", "LDGSTS")

ALU = frozenset({
    "BMSK", "F2FP", "FMNMX", "FSEL", "FSET", "FSETP", "I2FP", "I2I", "I2IP", "IABS", "IADD", "IADD3", "IMNMX",
    "ISETP", "LEA", "LOP", "LOP3", "MOV", "P2R", "PLOP3", "PRMT", "PSETP", "R2P", "SEL", "SGXT", "SHF", "SHL",
    "SHR", "VIADD", "VIMNMX",
})  # fmt: skip
"""Classes that the integer units execute (Nsight Compute's ALU pipeline): sums, shifts, logic, permutes, comparisons
and selections of any type, conversions of packed numbers; not IMAD, and not the uniform instructions (UIADD3)."""


def class_of(mnemonic: str) -> str:
    """Return the class by which a SASS instruction is counted: its base name; for loads and stores the bits per lane.

    ``LDG.E.128.CONSTANT`` is ``"LDG.128"``, ``LDS`` (one word) ``"LDS.32"``, ``HMMA.16816.F32`` ``"HMMA"``,
    ``MUFU.EX2`` ``"MUFU.EX2"``, ``LDSM.16.M88.4`` ``"LDSM.4"`` (matrices).
    """
    base, *modifiers = mnemonic.split(".")
    if base in _SIZED:
        return f"{base}.{next((_WIDTHS[one] for one in modifiers if one in _WIDTHS), '32')}"
    if base in ("LDSM", "STSM"):
        return f"{base}.{next((one for one in modifiers if one in ('2', '4')), '1')}"
    if base == "MUFU":
        return ".".join([base, *modifiers[:1]])
    return base


def counts_by_ptx_line(kernel: CompiledKernel) -> dict[int, Counter[str]]:
    """Count a kernel's static instructions by PTX line (0 if ptxas names none) and class.

    The padding after the end (NOP, a branch to itself) is left out. Raises MissingToolError without a disassembler or
    without machine code.
    """
    return count(disassembly.disassemble_by_ptx_line(kernel))


def count(text: str) -> dict[int, Counter[str]]:
    """Count the instructions in what ``nvdisasm -gp`` prints for one kernel, by PTX line and class, without padding."""
    counts: dict[int, Counter[str]] = {}
    for one in rows_of(text):
        if one.name:
            counts.setdefault(one.line, Counter())[one.name] += 1
    return counts


class SassRow(NamedTuple):
    """An instruction as nvdisasm prints it, its class (see `class_of`; empty for a label), and its line in the PTX."""

    text: str
    name: str
    line: int


def rows_of(text: str) -> Iterator[SassRow]:
    """Yield the instructions and labels in nvdisasm's output for one kernel, without padding.

    The padding after the end is NOP and a branch to itself. Without ``-gp`` all lines are 0.
    """
    line, label = 0, ""
    for row in text.splitlines():
        if match := PTX_LINE.match(row):
            line = int(match[1])
        elif match := _LABEL.match(row):
            if label:
                yield SassRow(label, "", line)
            label = match[1]
        elif match := INSTRUCTION.match(row):
            to_itself = bool(label) and match[1] == "BRA" and f"({label})" in (match[2] or "")
            if match[1] != "NOP" and not to_itself:
                if label:
                    yield SassRow(label, "", line)
                yield SassRow(_WRITTEN.sub(r"\1", row), class_of(match[1]), line)
            label = ""


def loop_counts(kernel: CompiledKernel, of: str) -> Counter[str]:
    """Count the static instructions, by class, in a kernel's main loop.

    That is the loop with the most instructions of the class ``of``, such as "HMMA"; the shortest if there are several.
    A loop is the code between a backward branch and its target, parts that a run may skip included. Raises
    ArgumentError if no loop has such an instruction, MissingToolError without a disassembler or without machine code.
    """
    found = [loop for loop in loops(kernel.sass) if loop[of]]
    if not found:
        allowed = f"a class of instructions in a loop of {kernel.label}"
        raise ArgumentError("of", repr(of), allowed, "kernel.sass shows its machine code.")
    return min(found, key=lambda loop: (-loop[of], loop.total()))


def loops(text: str) -> list[Counter[str]]:
    """Count the instructions, by class, of every loop in what nvdisasm prints for one kernel."""
    labels: dict[str, int] = {}
    code: list[str] = []
    found = []
    for row in text.splitlines():
        if match := _LABEL.match(row):
            labels[match[1]] = len(code)
        elif match := INSTRUCTION.match(row):
            code.append(class_of(match[1]))
            target = _TARGET.search(match[2] or "")
            first = labels.get(target[1]) if target and code[-1] == "BRA" else None
            if first is not None and first < len(code) - 1:  # a branch to itself is padding
                found.append(Counter(code[first:]))
    return found


def alu_clocks(counts: Mapping[str, int]) -> int:
    """Return the clocks for which one warp's instructions keep its scheduler's `ALU` busy: two for each.

    Source: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions": 64 results per clock and
    multiprocessor from compute capability 8.0 to 9.0, so 16 for each of its four schedulers.
    """
    return 2 * sum(number for name, number in counts.items() if name in ALU)
