"""What a launch did: totals, facts per PTX instruction, findings; plain dataclasses, so that pandas takes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.ptx.recording import Recording

SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class LineFacts:
    """One PTX instruction that was executed, summed over all warps.

    ``executions`` counts warp instructions, ``active_lanes`` the lanes in them. For memory instructions ``requests``
    are the warp requests, ``sectors`` the 32-byte sectors of global memory they touch, ``wavefronts`` the passes
    through the 32 banks of shared memory (``ideal_wavefronts``: the least for the same words), ``bytes`` what lanes
    asked for. ``barrier_waits`` is the waiting that a barrier caused: warp instructions by the logical clock of
    WarpSpan, summed over all warps and blocks. ``source`` and ``source_line`` say where the code stands,
    ``kernel_source`` and ``kernel_line`` which line of the kernel's own file uses it (they differ for what is inlined
    from a header). Counts are those of PTX; ptxas may merge or split accesses.
    """

    pc: int
    ptx_line: int
    text: str
    source: str
    source_line: int
    kernel_source: str
    kernel_line: int
    group: str
    space: str
    is_load: bool
    is_store: bool
    executions: int
    active_lanes: int
    requests: int
    sectors: int
    wavefronts: int
    ideal_wavefronts: int
    bytes: int
    barrier_waits: int


@dataclass(frozen=True, slots=True)
class LineSummary:
    """All PTX instructions of one source line together."""

    source: str
    source_line: int
    executions: int
    active_lanes: int
    requests: int
    sectors: int
    wavefronts: int
    ideal_wavefronts: int
    bytes: int
    barrier_waits: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem in a kernel. ``line``/``source`` say where, ``other_line``/``other_source`` the other side of a race.

    ``block`` and ``thread`` are (x, y, z) of the first occurrence, ``count`` how often it happened.
    """

    kind: str
    message: str
    kernel: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    address: int | None
    buffer: str | None
    line: int | None
    source: str
    other_line: int | None
    other_source: str
    ptx_line: int
    other_ptx_line: int | None
    count: int

    def __str__(self) -> str:
        return self.message


def _sum(lines: Iterable[LineFacts], field_name: str) -> int:
    return sum(getattr(line, field_name) for line in lines)


@dataclass(repr=False)
class LaunchReport:
    """The outcome of one launch. Counts are exact and do not depend on how many threads ran it.

    ``printed`` is what the kernel's printf wrote, block by block (it also goes to Python's stdout).
    ``instructions`` are warp instructions, ``thread_instructions`` the lanes in them. ``lines`` and everything derived
    from it need ``statistics=True``; ``findings`` needs ``checks=True``, ``recording``
    ``record_block=``.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    instructions: int
    thread_instructions: int
    seconds: float
    threads: int
    shared_bytes: int
    lines: list[LineFacts] = field(default_factory=list, repr=False)
    findings: list[Finding] = field(default_factory=list, repr=False)
    unique_bytes_read: int = 0
    unique_bytes_written: int = 0
    has_statistics: bool = False
    has_checks: bool = False
    printed: str = field(default="", repr=False)
    recording: Recording | None = field(default=None, repr=False)

    def _global(self, load: bool | None = None) -> list[LineFacts]:
        rows = [line for line in self.lines if line.space == "global" and line.requests]
        if load is None:
            return rows
        return [line for line in rows if (line.is_load if load else line.is_store)]

    @property
    def global_load_requests(self) -> int:
        return _sum(self._global(True), "requests")

    @property
    def global_load_sectors(self) -> int:
        return _sum(self._global(True), "sectors")

    @property
    def global_store_requests(self) -> int:
        return _sum(self._global(False), "requests")

    @property
    def global_store_sectors(self) -> int:
        return _sum(self._global(False), "sectors")

    @property
    def sectors_per_request(self) -> float:
        """32-byte sectors per global request, loads and stores together; 0 if there was none."""
        rows = self._global()
        requests = _sum(rows, "requests")
        return _sum(rows, "sectors") / requests if requests else 0.0

    @property
    def global_bytes_requested(self) -> int:
        return _sum(self._global(), "bytes")

    def _shared(self) -> list[LineFacts]:
        return [line for line in self.lines if line.wavefronts]

    @property
    def shared_requests(self) -> int:
        return _sum(self._shared(), "requests")

    @property
    def shared_wavefronts(self) -> int:
        return _sum(self._shared(), "wavefronts")

    @property
    def shared_ideal_wavefronts(self) -> int:
        return _sum(self._shared(), "ideal_wavefronts")

    @property
    def shared_conflicts(self) -> int:
        """Wavefronts beyond the ideal."""
        return self.shared_wavefronts - self.shared_ideal_wavefronts

    @property
    def mix(self) -> dict[str, int]:
        """Warp instructions by class, the largest first."""
        totals: dict[str, int] = {}
        for line in self.lines:
            totals[line.group] = totals.get(line.group, 0) + line.executions
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))

    def by_source_line(self) -> list[LineSummary]:
        """The facts summed per source line, in the order of files and lines."""
        rows: dict[tuple[str, int], list[LineFacts]] = {}
        for line in self.lines:
            rows.setdefault((line.source, line.source_line), []).append(line)
        names = (
            "executions", "active_lanes", "requests", "sectors", "wavefronts", "ideal_wavefronts", "bytes",
            "barrier_waits",
        )  # fmt: skip
        return [
            LineSummary(source, number, *(_sum(facts, name) for name in names))
            for (source, number), facts in sorted(rows.items())
        ]

    def __repr__(self) -> str:
        """Without the time, so that a notebook's output is the same again."""
        found = f", {len(self.findings)} findings" if self.has_checks else ""
        return f"<launch of {str(self).splitlines()[0]}{found}>"

    def __str__(self) -> str:
        shape = "x".join(map(str, self.grid)), "x".join(map(str, self.block))
        out = [f"{self.kernel}: grid {shape[0]}, block {shape[1]}, {self.instructions:,} warp instructions"]
        if self.has_statistics:
            out.append(
                f"  global: {self.global_load_requests:,} loads, {self.global_store_requests:,} stores, "
                f"{self.sectors_per_request:.2f} sectors/request; unique bytes read {self.unique_bytes_read:,}, "
                f"written {self.unique_bytes_written:,}"
            )
            out.append(
                f"  shared: {self.shared_requests:,} requests, {self.shared_wavefronts:,} wavefronts "
                f"({self.shared_conflicts:,} from bank conflicts)"
            )
            out.append("  mix: " + ", ".join(f"{name} {count:,}" for name, count in self.mix.items()))
        if self.has_checks:
            out.append(f"  findings: {len(self.findings) or 'none'}")
            out.extend(f"    {finding}" for finding in self.findings)
        return "\n".join(out)
