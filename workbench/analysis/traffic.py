"""Bytes moved between memory and each buffer, and how often the caches answer for the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.base.frames import data_frame
from workbench.base.tables import Table, Tabular
from workbench.errors import UnknownNameError

if TYPE_CHECKING:
    import pandas

    from workbench.ptx import BufferFacts, LaunchReport
    from workbench.toolchain import CompiledKernel

_COLUMNS = ("buffer", "bytes", "read", "in blocks", "between", "distinct", "written", "distinct")
_NOTE = (
    "Bytes in whole sectors. read, written: moved by all requests; in blocks: times a block reads the same (L1); "
    "between: blocks that read it (L2); distinct: what must cross DRAM."
)


@dataclass(frozen=True)
class Traffic(Tabular):
    """Memory traffic of the buffers of one or several launches.

    ``rows`` are pairs of an argument's or variable's name and its facts. Names that share memory stand together: "x/y".
    """

    title: str
    rows: tuple[tuple[str, BufferFacts], ...]

    def __getitem__(self, name: str) -> BufferFacts:
        """Return the traffic of the buffer of that name; UnknownNameError lists the names there are."""
        rows = dict(self.rows)
        if name not in rows:
            raise UnknownNameError("buffer", repr(name), ", ".join(rows), "Arguments are named as in the source.")
        return rows[name]

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per buffer, as a pandas DataFrame."""
        names = ["size", "read_moved", "read_by_blocks", "read_unique", "written_moved", "written_by_blocks"]
        names += ["written_unique", "read_reuse_in_blocks", "read_reuse_between_blocks"]
        return data_frame({"buffer": name} | {one: getattr(facts, one) for one in names} for name, facts in self.rows)

    def tables(self) -> list[Table]:
        """Return a table of one row per buffer."""
        rows = [
            (
                name,
                f"{facts.size:,}",
                f"{facts.read_moved:,}",
                f"{facts.read_reuse_in_blocks:.1f}" if facts.read_moved else "",
                f"{facts.read_reuse_between_blocks:.1f}" if facts.read_moved else "",
                f"{facts.read_unique:,}",
                f"{facts.written_moved:,}",
                f"{facts.written_unique:,}",
            )
            for name, facts in self.rows
        ]
        unread = [f"{facts.unread_elements} of {name}" for name, facts in self.rows if facts.unread_elements]
        note = _NOTE + (f" Read by no thread: {'; '.join(unread)}." if unread else "")
        return [Table(_COLUMNS, rows, "lrrrrrrr", title=self.title, note=note)]

    def __repr__(self) -> str:
        return f"<traffic of {self.title}: {', '.join(name for name, _ in self.rows) or 'none'}>"


def traffic(title: str, launches: Iterable[tuple[CompiledKernel, LaunchReport]]) -> Traffic:
    """Return the traffic of launches, under the names that the kernels' sources give their arguments.

    The program's variables appear only if the kernel touched them: compilers place many that no code refers to.
    """
    launches = list(launches)
    rows = []
    for kernel, report in launches:
        prefix = f"{kernel.label}: " if len(launches) > 1 else ""
        rows += [(prefix + _named(facts.name, kernel), facts) for facts in report.buffers if _shown(facts)]
    return Traffic(title, tuple(rows))


def inputs(kernel: CompiledKernel, report: LaunchReport) -> Iterator[tuple[str, BufferFacts]]:
    """Yield the arguments that a launch reads and does not write, with their names in the source."""
    for facts in report.buffers:
        one = facts.name.startswith("argument ") and "/" not in facts.name
        if one and facts.read_moved and not facts.written_moved:
            yield _named(facts.name, kernel), facts


def _shown(facts: BufferFacts) -> bool:
    return facts.name.startswith("argument ") or bool(facts.read_moved or facts.written_moved)


def _named(name: str, kernel: CompiledKernel) -> str:
    """Return "x/y" for the machine's "argument 0/argument 1"."""
    pieces = []
    for piece in name.split("/"):
        word, _, number = piece.partition(" ")
        known = word == "argument" and number.isdigit() and int(number) < len(kernel.parameters)
        pieces.append(kernel.parameters[int(number)].name if known else piece)
    return "/".join(pieces)
