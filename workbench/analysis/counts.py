"""Instruction counts by class: executed PTX instructions, and the machine instructions that ptxas made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.analysis.places import Place, PtxPlaces, source_text
from workbench.base.frames import data_frame
from workbench.base.tables import WIDTH, Table, Tabular, cut, wrap
from workbench.toolchain.sass_counts import counts_by_ptx_line

if TYPE_CHECKING:
    import pandas

    from workbench.toolchain import CompiledKernel

_MEMORY = ("LDG", "LDS", "LDL", "LD.", "STG", "STS", "STL", "ST.", "ATOM", "RED")
TELLING = (*_MEMORY, "HMMA", "IMMA", "DMMA", "QMMA", "BAR", "SHFL", "MUFU")
"""Prefixes of the classes that say most about a line: memory, tensor cores, barriers, shuffles, special functions."""


class InstructionCounts(Tabular, Mapping[str, int]):
    """Instructions by class, the most frequent first. A class that did not occur counts 0.

    ``title`` says what was counted.
    """

    def __init__(self, title: str, counts: Mapping[str, int]):
        self.title = title
        self._counts = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def __getitem__(self, name: str) -> int:
        return self._counts.get(name, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, name: object) -> bool:
        return name in self._counts

    @property
    def total(self) -> int:
        """Number of instructions in all classes."""
        return sum(self._counts.values())

    def share(self, name: str) -> float:
        """Return the fraction of all instructions that are of this class."""
        return self[name] / self.total if self._counts else 0.0

    def starting(self, *beginnings: str) -> InstructionCounts:
        """Return only the classes whose names start with one of the prefixes: ``counts.starting("LDG", "STG")``."""
        return InstructionCounts(self.title, {name: n for name, n in self.items() if name.startswith(beginnings)})

    @property
    def brief(self) -> str:
        """The counts in one line: ``"4 LDG.128, 1 BAR"``."""
        return ", ".join(f"{count:,} {name}" for name, count in self.items())

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per class, as a pandas DataFrame."""
        rows = [{"class": name, "instructions": count, "share": self.share(name)} for name, count in self.items()]
        return data_frame(rows, columns=["class", "instructions", "share"])

    def tables(self) -> list[Table]:
        """Return a table of one row per class."""
        rows = [(name, f"{count:,}", f"{self.share(name):.1%}") for name, count in self.items()]
        return [Table(("class", "instructions", "share"), rows, "lrr", title=f"{self.title}: {self.total:,}")]

    def __repr__(self) -> str:
        return f"<{self.title}: {self.brief or 'none'}>"


@dataclass(frozen=True)
class MachineCode(Tabular):
    """Machine code (SASS) of the traced kernels: static counts by class, in total and per source line.

    ``by_line`` maps (path, line) to counts. Code inlined from other files counts at the kernel's line that calls it, as
    in the trace. ``text`` is the whole SASS.
    """

    counts: InstructionCounts
    by_line: Mapping[Place, InstructionCounts]
    kernels: tuple[CompiledKernel, ...]

    @property
    def text(self) -> str:
        """The SASS of every kernel."""
        return "\n".join(kernel.sass for kernel in self.kernels)

    def at(self, path: str, line: int) -> InstructionCounts:
        """Return the counts of one line; they are empty where no machine code comes from it."""
        return self.by_line.get((path, line), InstructionCounts(_TITLE, {}))

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per line and class, as a pandas DataFrame."""
        return data_frame(
            [
                {"file": Path(path).name, "line": line, "class": name, "instructions": count}
                for (path, line), counts in self.by_line.items()
                for name, count in counts.items()
            ],
            columns=["file", "line", "class", "instructions"],
        )

    @property
    def _title(self) -> str:
        made = ", ".join(f"{kernel.label} for {kernel.arch}" for kernel in self.kernels)
        return f"machine code of {made}, static: {self.counts.total:,} instructions"

    def _rows(self) -> list[tuple[str, ...]]:
        several = len({path for path, line in self.by_line if line}) > 1
        rows = []
        for (path, line), counts in self.by_line.items():
            place = f"{Path(path).name}:{line}" if several and line else str(line)
            rows.append((place, source_text(path, line).strip(), str(counts.total), counts.brief))
        return [*rows, ("all", "", str(self.counts.total), self.counts.brief)]

    def tables(self) -> list[Table]:
        """Return a table of one row per source line."""
        return [Table(_HEADS, self._rows(), "rcrl", title=self._title)]

    def __str__(self) -> str:
        short = [(place, cut(source, 28), number, brief) for place, source, number, brief in self._rows()]
        lines = str(Table(_HEADS, short, "rlrl")).splitlines()
        return "\n".join([*wrap(self._title), *(cut(line, WIDTH) for line in lines)])

    def __repr__(self) -> str:
        return f"<{self._title}: {self.counts.starting(*TELLING).brief}>"


_TITLE = "machine instructions"
_HEADS = ("line", "source", "all", "by class")


def machine_code(kernels: Sequence[CompiledKernel], *, inlined: bool = False) -> MachineCode:
    """Count the machine code of kernels by source line. ``inlined`` is that of ``lines_of``.

    Raises MissingToolError without a disassembler.
    """
    by_line: dict[Place, Counter[str]] = {}
    for kernel in kernels:
        places = PtxPlaces(kernel, inlined=inlined)
        for ptx_line, counts in counts_by_ptx_line(kernel).items():
            by_line.setdefault(places.of_machine_code(ptx_line), Counter()).update(counts)
    everything = sum(by_line.values(), Counter())
    return MachineCode(
        InstructionCounts(_TITLE, everything),
        {place: InstructionCounts(_TITLE, counts) for place, counts in sorted(by_line.items())},
        tuple(kernels),
    )
