"""What a launch did: totals, facts per PTX instruction, findings; plain dataclasses, so that pandas takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.base.memory_counts import MemoryCounts, total
from workbench.ptx.decode import readable

if TYPE_CHECKING:
    from workbench.ptx.naming import Scope
    from workbench.ptx.recording import RecordedParts, Recording
    from workbench.ptx.sample import Sampled


@dataclass(frozen=True, slots=True)
class LineFacts:
    """One PTX instruction that was executed, summed over all warps.

    ``executions`` counts warp instructions, ``active_lanes`` the lanes in them. For memory instructions ``requests``
    are the warp requests, ``bytes`` what their lanes asked for. In global memory ``sectors`` are the 32-byte sectors
    they touch (so many bytes move: ``bytes_moved``), ``distinct_bytes`` the bytes of them that some lane uses, and
    ``ideal_sectors`` how many would do if those bytes lay together, each counted per request. In shared memory
    ``wavefronts`` are the passes through the 32 banks and ``ideal_wavefronts`` those without bank conflicts: one per 32
    lanes of 4 bytes or less, 16 of 8 or 8 of 16 with an active lane, and half as many for a load of 8 or 16 bytes in
    which every lane asks for the same address as lane ^ 1, or lane ^ 2 (source: core/access.hpp). In constant memory
    ``wavefronts`` are the different addresses of a request, which its cache answers one by one. Of bulk copies to
    shared memory ``bytes`` are read and ``landed_bytes`` arrive in all blocks: ``filled_bytes`` of them lie outside
    the tensor, and what is more beyond ``bytes`` multicasts save. ``barrier_waits`` is the waiting that a barrier
    caused: warp instructions by the logical clock of WarpSpan, summed over all warps and blocks. Of divisions,
    reciprocals and roots ``slow_paths`` are the executions in which the operands of a lane need the compiler's
    subroutine, such as a division of zero (source: core/slow_path.hpp). ``source`` and
    ``source_line`` say where the code stands, ``kernel_source`` and ``kernel_line`` which line of the kernel's own
    file uses it (they differ for what is inlined from a header). Counts are those of PTX; ptxas may
    merge or split accesses.
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
    distinct_bytes: int
    ideal_sectors: int
    landed_bytes: int
    filled_bytes: int
    slow_paths: int

    def place(self, *, inlined: bool) -> tuple[str, int]:
        """The file and the line where the code stands, or without ``inlined`` those of the kernel's own file."""
        return (self.source, self.source_line) if inlined else (self.kernel_source, self.kernel_line)

    @property
    def counts(self) -> MemoryCounts:
        """The same as counts that add up to those of a source line and of the launch."""
        in_global = self.space == "global"
        in_shared = self.wavefronts > 0 and self.space != "constant"
        return MemoryCounts(
            instructions=self.executions,
            lanes=self.active_lanes,
            global_load_requests=self.requests * (in_global and self.is_load),
            global_load_sectors=self.sectors * self.is_load,
            global_store_requests=self.requests * (in_global and self.is_store),
            global_store_sectors=self.sectors * self.is_store,
            global_requests=self.requests * in_global,
            global_sectors=self.sectors,
            global_ideal_sectors=self.ideal_sectors,
            bytes_requested=self.bytes * in_global,
            bytes_used=self.distinct_bytes,
            shared_requests=self.requests * in_shared,
            shared_wavefronts=self.wavefronts * in_shared,
            shared_ideal_wavefronts=self.ideal_wavefronts * in_shared,
            landed_bytes=self.landed_bytes,
            filled_bytes=self.filled_bytes,
            copied_bytes=self.bytes * (self.landed_bytes > 0),
            barrier_waits=self.barrier_waits,
            slow_paths=self.slow_paths,
        )

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors of global memory that the requests touch."""
        return self.counts.bytes_moved

    @property
    def used_fraction(self) -> float:
        """Distinct bytes that lanes use, of the bytes moved; 0 without global traffic."""
        return self.counts.used_fraction or 0.0

    @property
    def sectors_per_request(self) -> float:
        """0 without requests."""
        return self.counts.sectors_per_request or 0.0

    @property
    def ideal_sectors_per_request(self) -> float:
        """0 without requests."""
        return self.counts.ideal_sectors_per_request or 0.0


def mix_of(facts: Iterable[LineFacts]) -> dict[str, int]:
    """Warp instructions by class, the largest first."""
    totals: dict[str, int] = {}
    for one in facts:
        totals[one.group] = totals.get(one.group, 0) + one.executions
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class BufferFacts:
    """What moved between memory and one buffer, in bytes; everything in whole 32-byte sectors.

    ``moved`` counts each request's sectors: what the L1 caches are asked for. ``by_blocks`` counts a sector once per
    block that touches it: what L2 is asked for if each block's L1 keeps all it read. ``unique`` counts it once: what
    must cross DRAM. An atomic reads and writes. ``name`` is the argument's ("argument 0"), ``size`` in bytes.
    Constant memory has a path of its own and is not in these.

    ``read_again`` are the bytes that a block reads again, by what one of its warps reads in between: element 0 nothing,
    element k from 2 ** (k - 1) to 2 ** k - 1 sectors. (Warps are taken to advance alike.)
    """

    name: str
    size: int
    read_moved: int
    read_by_blocks: int
    read_unique: int
    written_moved: int
    written_by_blocks: int
    written_unique: int
    read_again: tuple[int, ...] = field(default=(), compare=False, repr=False)

    @property
    def read_reuse_in_blocks(self) -> float:
        """How often a block asks again, on average, for what it has read; 0 if nothing is read."""
        return self.read_moved / self.read_by_blocks if self.read_by_blocks else 0.0

    @property
    def read_reuse_between_blocks(self) -> float:
        """By how many blocks, on average, a byte is read (the L2-level reuse); 0 if nothing is read."""
        return self.read_by_blocks / self.read_unique if self.read_unique else 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem in a kernel. ``line``/``source`` say where, ``other_line``/``other_source`` the other side of a race.

    ``kernel_line``/``kernel_source`` (and with ``other_``) are the line of the kernel's own file that uses the code,
    which differs for what is inlined from a header. Where the compiler names no line, the next instruction's that has
    one stands for it, and ``near`` (``other_near``) is true.

    ``block`` and ``thread`` are (x, y, z) of the first occurrence, ``count`` how often it happened. ``other_block`` is
    that of the other side where it is another one, else ``other_thread`` is the other side's thread, if there is one.
    However many instructions the compiler made of a line (or of two that race), there is one finding; ``places`` says
    of how many instructions, or pairs of them. ``scope`` is how far the problem reaches: sides in different blocks and
    global memory are of the "grid", warps and shared memory of a "block", lanes of one "warp".
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
    kernel_line: int | None = None
    kernel_source: str = ""
    other_kernel_line: int | None = None
    other_kernel_source: str = ""
    near: bool = False
    other_near: bool = False
    other_block: tuple[int, int, int] | None = None
    other_thread: tuple[int, int, int] | None = None
    places: int = 1
    scope: Scope = "grid"

    @property
    def sides(self) -> tuple[frozenset[tuple[object, ...]], bool]:
        """Where it is and where its other side is, whichever came first, and whether that is in the same block.

        A place is a source line, else a line of the PTX.
        """
        here = self.source, self.line, self.kernel_source, self.kernel_line
        there = self.other_source, self.other_line, self.other_kernel_source, self.other_kernel_line
        both = here if self.line else (self.ptx_line,), there if self.other_line else (self.other_ptx_line,)
        return frozenset(both), self.other_block is None

    def __str__(self) -> str:
        return self.message


@dataclass(repr=False)
class LaunchReport:
    """The outcome of one launch. Counts are exact and do not depend on how many threads ran it.

    ``printed`` is what the kernel's printf wrote, block by block (it also goes to Python's stdout).
    ``instructions`` are warp instructions, ``thread_instructions`` the lanes in them. ``lines`` and everything derived
    from it need ``statistics=True``; ``findings`` needs ``checks=True``, as do ``notes``, what the rules forbid or
    warn of and GPUs put up with; ``recording`` needs ``record_block=``. ``buffer_bytes`` are the bytes of all buffers
    the launch can reach, ``shadow_bytes`` those that checks kept about them: at most 3 for one, in whole 32-byte
    sectors. (What checks know of a block's shared memory comes on top: 4 bytes for one, and up to 64 where it is
    accessed in smaller pieces than 16 bytes.)
    ``blocks_run`` is the number of blocks that ran, and that all counts are of: a sample has fewer than the grid.
    ``sampled_instructions`` are the warp instructions of each block (x, y, z) of a sample, and ``sampled`` says how
    good a sample it is, where the device chose it.
    ``parts_recorded`` are some blocks by themselves, where somebody had them recorded. ``footprint`` are the bytes that
    a checked launch of a kernel with ``griddepcontrol.launch_dependents`` wrote and read, for
    `LaunchOptions.overlapped` of the one that depends on it.
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
    notes: list[Finding] = field(default_factory=list, repr=False)
    buffers: tuple[BufferFacts, ...] = field(default=(), repr=False)
    buffer_bytes: int = 0
    shadow_bytes: int = 0
    blocks_run: int = 0
    sampled_instructions: Mapping[tuple[int, int, int], int] = field(default_factory=dict, repr=False)
    sampled: Sampled | None = field(default=None, repr=False)
    has_statistics: bool = False
    has_checks: bool = False
    printed: str = field(default="", repr=False)
    recording: Recording | None = field(default=None, repr=False)
    parts_recorded: RecordedParts | None = field(default=None, repr=False)
    footprint: Any = field(default=None, repr=False, compare=False)

    @property
    def parts(self) -> tuple[LaunchReport, ...]:
        """The report of each launch, where this one is of several; else itself."""
        return (self,)

    @cached_property
    def counts(self) -> MemoryCounts:
        """All instructions together, those too that have no line."""
        return replace(
            total(line.counts for line in self.lines), instructions=self.instructions, lanes=self.thread_instructions
        )

    @property
    def global_load_requests(self) -> int:
        """Warp requests that load from global memory; atomics are neither loads nor stores."""
        return self.counts.global_load_requests

    @property
    def global_load_sectors(self) -> int:
        """The sectors that they touch, each request's counted."""
        return self.counts.global_load_sectors

    @property
    def global_store_requests(self) -> int:
        """Warp requests that store to global memory."""
        return self.counts.global_store_requests

    @property
    def global_store_sectors(self) -> int:
        """The sectors that they touch, each request's counted."""
        return self.counts.global_store_sectors

    @property
    def sectors_per_request(self) -> float:
        """32-byte sectors per global request, loads and stores together; 0 if there was none."""
        return self.counts.sectors_per_request or 0.0

    @property
    def ideal_sectors_per_request(self) -> float:
        """What it would be if the bytes of each request lay together; 0 if there was none."""
        return self.counts.ideal_sectors_per_request or 0.0

    @property
    def global_bytes_requested(self) -> int:
        """Bytes that lanes asked for, each lane's counted."""
        return self.counts.bytes_requested

    @property
    def global_bytes_distinct(self) -> int:
        """Bytes that lanes asked for, counted once per request."""
        return self.counts.bytes_used

    @property
    def global_bytes_moved(self) -> int:
        """Bytes of the sectors of all requests, loads and stores."""
        return self.counts.bytes_moved

    @property
    def unique_bytes_read(self) -> int:
        """Distinct 32-byte sectors read over the whole launch, in bytes: what must come from DRAM."""
        return sum(buffer.read_unique for buffer in self.buffers)

    @property
    def unique_bytes_written(self) -> int:
        """Likewise for what is written."""
        return sum(buffer.written_unique for buffer in self.buffers)

    @property
    def read_reuse_between_blocks(self) -> float:
        """By how many blocks, on average, a byte is read: what L2 is asked for against what must come from DRAM."""
        return sum(b.read_by_blocks for b in self.buffers) / self.unique_bytes_read if self.unique_bytes_read else 0.0

    @property
    def barrier_waits(self) -> int:
        """Waiting at barriers, in warp instructions by the logical clock of WarpSpan."""
        return self.counts.barrier_waits

    @property
    def shared_requests(self) -> int:
        """Warp requests to shared memory."""
        return self.counts.shared_requests

    @property
    def shared_wavefronts(self) -> int:
        """Passes through the 32 banks that they take."""
        return self.counts.shared_wavefronts

    @property
    def shared_ideal_wavefronts(self) -> int:
        """Passes without bank conflicts."""
        return self.counts.shared_ideal_wavefronts

    @property
    def shared_conflicts(self) -> int:
        """Wavefronts beyond the ideal."""
        return self.counts.shared_conflicts

    @property
    def mix(self) -> dict[str, int]:
        """Warp instructions by class, the largest first."""
        return mix_of(self.lines)

    def __repr__(self) -> str:
        """Without the time, so that a notebook's output is the same again."""
        found = f", {len(self.findings)} findings" if self.has_checks else ""
        return f"<launch of {str(self).splitlines()[0]}{found}>"

    def __str__(self) -> str:
        shape = "x".join(map(str, self.grid)), "x".join(map(str, self.block))
        out = [f"{readable(self.kernel)}: grid {shape[0]}, block {shape[1]}, {self.instructions:,} warp instructions"]
        if self.has_statistics:
            out.append(
                f"  global: {self.global_load_requests:,} loads, {self.global_store_requests:,} stores, "
                f"{self.sectors_per_request:.2f} sectors/request (ideal {self.ideal_sectors_per_request:.2f}); "
                f"unique bytes read {self.unique_bytes_read:,}, "
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
