"""Source lines that the lines of a kernel's PTX, and of its machine code, come from."""

from __future__ import annotations

import linecache
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from workbench.ptx import Program

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

Place = tuple[str, int]
"""Path of a source file and a line of it; ("", 0) where the compiler names none."""

NOWHERE: Place = ("", 0)


class HostPlace(NamedTuple):
    """A place in host code: file and line, or only the name of a function (line 0)."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}" if self.line else self.function


class PtxPlaces(dict[int, Place]):
    """Source places of the PTX lines that have an instruction, by line number. ``inlined`` is that of ``lines_of``."""

    def __init__(self, kernel: CompiledKernel, *, inlined: bool):
        super().__init__()
        decoded = Program.from_text(kernel.ptx).kernels[kernel.name]
        for pc, instruction in enumerate(decoded.decoded.code):
            if instruction.statement is not None:
                self.setdefault(instruction.statement.line, decoded.source_of(pc, in_kernel_file=not inlined))
        self._lines = sorted(self)

    def of_machine_code(self, ptx_line: int) -> Place:
        """Return the place of the machine code that ptxas made of a PTX line; 0 stands for no line.

        ptxas attributes a kernel's prologue to its opening bracket, which is not an instruction: the next instruction's
        place is returned.
        """
        at = bisect_left(self._lines, ptx_line)
        return self[self._lines[at]] if ptx_line and at < len(self._lines) else NOWHERE


def source_text(source: str, number: int | None, nowhere: str = "(the compiler names no line)") -> str:
    """Return one line of a source file or notebook cell.

    The text is empty where the source cannot be read, and ``nowhere`` if there is no line number.
    """
    if not number:
        return nowhere
    linecache.checkcache(source)  # a .cu file is edited and traced again in the same process
    return linecache.getline(source, number).rstrip("\n")
