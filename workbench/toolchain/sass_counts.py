"""Static counts of machine code: which instructions ptxas made, and of which line of the PTX.

``ptxas -lineinfo`` keeps two tables in a cubin: the source line of each instruction, which for Triton does not say
where an inlined function was called, and its line in the PTX (``.nv_debug_line_sass``), whose own locations are
complete. The second is read here; whoever has the PTX leads it on to the source.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from workbench.toolchain import sass

if TYPE_CHECKING:
    from workbench.toolchain.kernel import CompiledKernel

_PTX_LINE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt[^"]*", line (\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(?:\s+(.*?))?\s*;")
_LABEL = re.compile(r"^(\.L\w+):")
_WIDTHS = {"U8": "8", "S8": "8", "U16": "16", "S16": "16", "64": "64", "128": "128"}
_SIZED = ("LDG", "LDS", "LDL", "LD", "STG", "STS", "STL", "ST", "LDGSTS")


def class_of(mnemonic: str) -> str:
    """The class by which a SASS instruction is counted: its base name, and for loads and stores the bits per lane.

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
    """Static instructions of a kernel by line of its PTX (0: ptxas names none) and class.

    The padding behind the end (NOP, a branch to itself) is left out. Raises MissingToolError where there is no
    disassembler, or no machine code.
    """
    return count(sass.disassemble_by_ptx_line(kernel))


def count(text: str) -> dict[int, Counter[str]]:
    """The same, of what ``nvdisasm -gp`` prints for one kernel."""
    counts: dict[int, Counter[str]] = {}
    line, label = 0, ""
    for row in text.splitlines():
        if match := _PTX_LINE.match(row):
            line = int(match[1])
        elif match := _LABEL.match(row):
            label = match[1]
            continue
        elif match := _INSTRUCTION.match(row):
            to_itself = bool(label) and match[1] == "BRA" and f"({label})" in (match[2] or "")
            if match[1] != "NOP" and not to_itself:
                counts.setdefault(line, Counter())[class_of(match[1])] += 1
        label = ""
    return counts
