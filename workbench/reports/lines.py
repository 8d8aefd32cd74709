"""The facts of a launch per line of source: the machine's counts per PTX instruction, summed where the code comes from.

Everything here is PTX-level. ptxas makes machine code of the PTX and may merge, split, move or drop instructions;
``workbench.reports.counts.machine_code`` counts what it made.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.ptx.report import SECTOR_BYTES, LaunchReport, LineFacts


class Ratios:
    """What follows from the counts of a line, or of a whole trace; None where nothing was counted."""

    if TYPE_CHECKING:  # fields of the one, properties of the other

        @property
        def global_requests(self) -> int: ...
        @property
        def global_sectors(self) -> int: ...
        @property
        def global_ideal_sectors(self) -> int: ...
        @property
        def bytes_used(self) -> int: ...
        @property
        def shared_wavefronts(self) -> int: ...
        @property
        def shared_ideal_wavefronts(self) -> int: ...
        @property
        def landed_bytes(self) -> int: ...
        @property
        def filled_bytes(self) -> int: ...
        @property
        def copied_bytes(self) -> int: ...

    @property
    def sectors_per_request(self) -> float | None:
        """32-byte sectors per request to global memory."""
        return self.global_sectors / self.global_requests if self.global_requests else None

    @property
    def ideal_sectors_per_request(self) -> float | None:
        """What it would be if the bytes of each request lay together."""
        return self.global_ideal_sectors / self.global_requests if self.global_requests else None

    @property
    def bytes_moved(self) -> int:
        """32 bytes for each sector of each request: what the L1 cache and those behind it have to answer."""
        return SECTOR_BYTES * self.global_sectors

    @property
    def used_fraction(self) -> float | None:
        """Distinct bytes that lanes use, of the bytes moved."""
        return self.bytes_used / self.bytes_moved if self.global_sectors else None

    @property
    def multicast_bytes(self) -> int:
        """Of the bytes that bulk copies bring those that were read for another block of the cluster."""
        return self.landed_bytes - self.filled_bytes - self.copied_bytes

    @property
    def shared_conflicts(self) -> int:
        """Wavefronts beyond the ideal."""
        return self.shared_wavefronts - self.shared_ideal_wavefronts


@dataclass(frozen=True)
class TracedLine(Ratios):
    """The facts of one source line, summed over all warps. A sector is 32 bytes; a request is one warp instruction."""

    path: str
    line: int
    text: str
    instructions: int
    """Warp instructions."""
    share: float
    """Of all warp instructions of the launch."""
    active_lanes: float
    """Lanes at work per warp instruction, at most 32."""
    global_requests: int
    global_sectors: int
    global_ideal_sectors: int
    """The fewest sectors that hold the bytes which each request uses."""
    bytes_used: int
    """Bytes of global memory that the lanes asked for, a byte that several lanes of a request share counted once."""
    shared_requests: int
    shared_wavefronts: int
    shared_ideal_wavefronts: int
    landed_bytes: int
    """What bulk copies (TMA) bring to shared memory, in all blocks."""
    filled_bytes: int
    """Of these what lies outside the tensor and is filled in."""
    copied_bytes: int
    """What the copies read for it in global memory."""
    barrier_waits: int
    """Warp instructions for which warps waited at this line's barriers, by the logical clock of a recording."""
    mix: dict[str, int] = field(default_factory=dict)
    """Warp instructions by class, the largest first."""

    @property
    def file(self) -> str:
        """The name of the file, without its folder."""
        return Path(self.path).name or "?"


def lines_of(report: LaunchReport, *, inlined: bool = False) -> tuple[TracedLine, ...]:
    """The facts of a report (with statistics) per line of the kernel's own file, in order.

    What a line takes from headers and from functions of other files is counted there; with ``inlined`` it is counted
    where it stands, in the header or the called function. Line 0 holds what the compiler attributes to none.
    """
    grouped: dict[tuple[str, int], list[LineFacts]] = {}
    for fact in report.lines:
        place = (fact.source, fact.source_line) if inlined else (fact.kernel_source, fact.kernel_line)
        grouped.setdefault(place, []).append(fact)
    return tuple(_line(source, number, facts, report) for (source, number), facts in sorted(grouped.items()))


def _line(source: str, number: int, facts: list[LineFacts], report: LaunchReport) -> TracedLine:
    instructions = total(facts, "executions")
    in_global = [fact for fact in facts if fact.space == "global" and fact.requests]
    in_shared = [fact for fact in facts if fact.wavefronts and fact.space != "constant"]
    mix: dict[str, int] = {}
    for fact in facts:
        mix[fact.group] = mix.get(fact.group, 0) + fact.executions
    return TracedLine(
        path=source,
        line=number,
        text=source_text(source, number),
        instructions=instructions,
        share=instructions / report.instructions if report.instructions else 0.0,
        active_lanes=total(facts, "active_lanes") / instructions if instructions else 0.0,
        global_requests=total(in_global, "requests"),
        global_sectors=total(in_global, "sectors"),
        global_ideal_sectors=total(in_global, "ideal_sectors"),
        bytes_used=total(in_global, "distinct_bytes"),
        shared_requests=total(in_shared, "requests"),
        shared_wavefronts=total(in_shared, "wavefronts"),
        shared_ideal_wavefronts=total(in_shared, "ideal_wavefronts"),
        landed_bytes=total(facts, "landed_bytes"),
        filled_bytes=total(facts, "filled_bytes"),
        copied_bytes=sum(fact.bytes for fact in facts if fact.landed_bytes),
        barrier_waits=total(facts, "barrier_waits"),
        mix=dict(sorted(mix.items(), key=lambda item: (-item[1], item[0]))),
    )


def total(facts: Iterable[object], name: str) -> int:
    """The sum of one field."""
    return sum(getattr(fact, name) for fact in facts)


def source_text(source: str, number: int) -> str:
    """One line of a source, of a cell of a notebook too; empty where it cannot be read."""
    if number == 0:
        return "(the compiler names no line)"
    linecache.checkcache(source)  # a .cu file is edited and traced again in the same process
    return linecache.getline(source, number).rstrip("\n")
