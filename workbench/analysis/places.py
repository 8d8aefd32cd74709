"""Where the code of a kernel comes from: the line of the source of each line of its PTX, and of its machine code."""

from __future__ import annotations

import linecache
from bisect import bisect_left
from typing import TYPE_CHECKING

from workbench.ptx import Program

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

Place = tuple[str, int]
"""A source file's path and a line of it; ("", 0) where the compiler names none."""

NOWHERE: Place = ("", 0)


class PtxPlaces(dict[int, Place]):
    """PTX line -> place, of the lines with an instruction. ``inlined`` as for ``lines_of``."""

    def __init__(self, kernel: CompiledKernel, *, inlined: bool):
        super().__init__()
        decoded = Program.from_text(kernel.ptx).kernels[kernel.name]
        for pc, instruction in enumerate(decoded.decoded.code):
            if instruction.statement is not None:
                self.setdefault(instruction.statement.line, decoded.source_of(pc, in_kernel_file=not inlined))
        self._lines = sorted(self)

    def of_machine_code(self, ptx_line: int) -> Place:
        """The place of what ptxas made of a PTX line, 0 for none.

        It puts a kernel's prologue on its opening bracket, which is no instruction: it goes with the next one.
        """
        at = bisect_left(self._lines, ptx_line)
        return self[self._lines[at]] if ptx_line and at < len(self._lines) else NOWHERE


def source_text(source: str, number: int | None, nowhere: str = "(the compiler names no line)") -> str:
    """One line of a source, of a cell of a notebook too; empty where it cannot be read, ``nowhere`` for no line."""
    if not number:
        return nowhere
    linecache.checkcache(source)  # a .cu file is edited and traced again in the same process
    return linecache.getline(source, number).rstrip("\n")
