"""Facts of a launch per source line: the machine's counts per PTX instruction, summed by the line that it comes from.

All counts are PTX-level. ptxas makes machine code of the PTX and may merge, split, move or drop instructions;
``workbench.analysis.counts.machine_code`` counts what it made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from workbench.analysis.places import source_text
from workbench.base.memory_counts import MemoryCounts, total
from workbench.ptx.report import LaunchReport, LineFacts, mix_of


@dataclass(frozen=True)
class TracedLine(MemoryCounts):
    """Counts of one source line's instructions, summed over all warps."""

    path: str
    line: int
    text: str
    share: float
    """Fraction of all warp instructions of the launch."""
    mix: dict[str, int] = field(default_factory=dict)
    """Warp instructions by class, the most frequent first."""

    @property
    def file(self) -> str:
        """Name of the file, without its folder."""
        return Path(self.path).name or "?"


def lines_of(report: LaunchReport, *, inlined: bool = False) -> tuple[TracedLine, ...]:
    """Return the facts of a report (with statistics) per line of the kernel's own file, in order.

    Code from headers and from functions of other files counts at the line that uses it. With ``inlined`` it counts
    where it stands, in the header or the called function. Line 0 holds what the compiler attributes to no line.
    """
    grouped: dict[tuple[str, int], list[LineFacts]] = {}
    for fact in report.lines:
        grouped.setdefault(fact.place(inlined=inlined), []).append(fact)
    return tuple(_line(source, number, facts, report) for (source, number), facts in sorted(grouped.items()))


def _line(source: str, number: int, facts: list[LineFacts], report: LaunchReport) -> TracedLine:
    counts = total(fact.counts for fact in facts)
    share = counts.instructions / report.instructions if report.instructions else 0.0
    return TracedLine(source, number, source_text(source, number), share, mix_of(facts), **vars(counts))
