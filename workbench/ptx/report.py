"""The report of a launch: totals, facts per PTX instruction, findings; plain dataclasses, which pandas accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.base.memory_counts import MemoryCounts, total
from workbench.ptx.decode import readable

if TYPE_CHECKING:
    from workbench.ptx.naming import Scope
    from workbench.ptx.numerics import LaunchNumerics
    from workbench.ptx.proved import ProofUse
    from workbench.ptx.recording import RecordedParts, Recording
    from workbench.ptx.sample import Sampled


class RequestFigures:
    """Figures of the requests to global memory that ``counts`` sums up, loads and stores together."""

    __slots__ = ()

    @property
    def counts(self) -> MemoryCounts:
        """Memory counts of the requests."""
        raise NotImplementedError

    @property
    def sectors_per_request(self) -> float:
        """32-byte sectors per request to global memory; 0 without requests."""
        return self.counts.sectors_per_request or 0.0

    @property
    def ideal_sectors_per_request(self) -> float:
        """Sectors per request if the bytes of each request lay together; 0 without requests."""
        return self.counts.ideal_sectors_per_request or 0.0


@dataclass(frozen=True, slots=True)
class LineFacts(RequestFigures):
    """One PTX instruction that was executed, summed over all warps.

    ``executions`` counts warp instructions, ``active_lanes`` the lanes in them. For memory instructions ``requests``
    are the warp requests, ``bytes`` the bytes that their lanes ask for.

    In global memory ``sectors`` are the 32-byte sectors that the requests touch (``bytes_moved`` are their bytes),
    ``distinct_bytes`` the bytes in them that some lane uses, and ``ideal_sectors`` the sectors that would suffice if
    those bytes lay together, each counted per request. In shared memory ``wavefronts`` are the passes through the 32
    banks and ``ideal_wavefronts`` those without bank conflicts: one per 32 lanes of 4 bytes or less, 16 of 8 or 8 of 16
    with an active lane, and half as many for a load of 8 or 16 bytes in which every lane asks for the same address as
    lane ^ 1, or lane ^ 2 (source: core/checks/pattern.hpp). wgmma and tcgen05.mma, which have no requests, take one per
    128 bytes of their operands there. In constant memory ``wavefronts`` are the different addresses of a request, which
    its cache answers one by one.

    Bulk copies to shared memory read ``bytes``, and ``landed_bytes`` arrive in all blocks. ``filled_bytes`` of these
    lie outside the tensor; multicasts save the reads of the others beyond ``bytes``. ``barrier_waits`` is the waiting
    that a barrier caused: warp instructions by the logical clock of WarpSpan, summed over all warps and blocks.
    ``slow_paths`` are the executions of divisions, reciprocals and roots in which the operands of a lane need the
    compiler's subroutine, such as a division of zero (source: core/arithmetic/slow_path.hpp). ``products`` are the
    multiply-adds of tcgen05.mma, whose size is known at run time, and ``scale_bytes`` the bytes of the scale factors
    that it reads.

    ``source`` and ``source_line`` are the place of the code, ``kernel_source`` and ``kernel_line`` the line of the
    kernel's own file that uses it; they differ for code inlined from a header. Counts are those of PTX; ptxas may merge
    or split accesses.
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
    products: int
    scale_bytes: int

    def place(self, *, inlined: bool) -> tuple[str, int]:
        """Return file and line of the code; without ``inlined`` those of the kernel's own file that use it."""
        return (self.source, self.source_line) if inlined else (self.kernel_source, self.kernel_line)

    @property
    def counts(self) -> MemoryCounts:
        """Memory counts of the instruction, which add up to those of a source line and of the launch."""
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
            operand_wavefronts=self.wavefronts * (self.group == "tensor"),
            landed_bytes=self.landed_bytes,
            filled_bytes=self.filled_bytes,
            copied_bytes=self.bytes * (self.landed_bytes > 0),
            barrier_waits=self.barrier_waits,
            slow_paths=self.slow_paths,
            products=self.products,
            scale_bytes=self.scale_bytes,
        )

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors of global memory that the requests touch."""
        return self.counts.bytes_moved

    @property
    def used_fraction(self) -> float:
        """Fraction of the bytes moved that lanes use; 0 without global traffic."""
        return self.counts.used_fraction or 0.0


def mix_of(facts: Iterable[LineFacts]) -> dict[str, int]:
    """Return the number of warp instructions by class, the largest first."""
    totals: dict[str, int] = {}
    for one in facts:
        totals[one.group] = totals.get(one.group, 0) + one.executions
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class BufferFacts:
    """Traffic between memory and one buffer in bytes, always in whole 32-byte sectors.

    ``moved`` counts the sectors of each request: the demand on the L1 caches. ``by_blocks`` counts a sector once per
    block that touches it: the demand on L2 if each block's L1 keeps all it read. ``unique`` counts a sector once: the
    least traffic of DRAM. An atomic reads and writes. ``name`` is the argument's ("argument 0"), ``size`` in bytes.
    Constant memory has a path of its own and does not count here.

    ``read_again`` are the bytes that a block reads again, by the sectors that one of its warps reads in between:
    element 0 none, element k from 2 ** (k - 1) to 2 ** k - 1. (The model lets all warps advance alike.)

    ``unread`` are the number of bytes that no thread reads, and the offsets of the first and the last one; (0, 0, 0)
    for a buffer that is not read at all. ``element`` is the size of an element of a contiguous array, else 0.
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
    unread: tuple[int, int, int] = field(default=(0, 0, 0), compare=False)
    element: int = field(default=0, compare=False)

    @property
    def unread_elements(self) -> str:
        """Number of elements that no thread reads, with the total: "3 of 4,096 elements"; empty if there are none."""
        if not self.element or not self.unread[0]:
            return ""
        return f"{-(-self.unread[0] // self.element):,} of {self.size // self.element:,} elements"

    @property
    def read_reuse_in_blocks(self) -> float:
        """Average number of times that a block requests a sector that it reads; 0 if nothing is read."""
        return self.read_moved / self.read_by_blocks if self.read_by_blocks else 0.0

    @property
    def read_reuse_between_blocks(self) -> float:
        """Average number of blocks that read a byte (the L2-level reuse); 0 if nothing is read."""
        return self.read_by_blocks / self.read_unique if self.read_unique else 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem in a kernel, with the place of each side of a race.

    ``line`` and ``source`` are its place, ``other_line`` and ``other_source`` the place of a race's other side.
    ``kernel_line`` and ``kernel_source`` (and with ``other_``) are the line of the kernel's own file that uses the
    code, which differs for code inlined from a header. If the compiler names no line, the place is that of the next
    instruction that has one, and ``near`` (``other_near``) is True.

    ``block`` and ``thread`` are (x, y, z) of the first occurrence, ``count`` is the number of occurrences.
    ``other_block`` is the other side's block if it is another one, else ``other_thread`` is the other side's thread, if
    there is one. A line (or two lines that race) has one finding, however many instructions the compiler made of it;
    ``places`` is the number of these instructions, or pairs of them. ``scope`` is the reach of the problem: "grid" for
    sides in different blocks and for global memory, "block" for warps and shared memory, "warp" for lanes of a warp.
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
        """Places of both sides, without an order, and True if both are in the same block.

        A place is a source line, else a line of the PTX.
        """
        here = self.source, self.line, self.kernel_source, self.kernel_line
        there = self.other_source, self.other_line, self.other_kernel_source, self.other_kernel_line
        both = here if self.line else (self.ptx_line,), there if self.other_line else (self.other_ptx_line,)
        return frozenset(both), self.other_block is None

    def __str__(self) -> str:
        return self.message


@dataclass(repr=False)
class LaunchReport(RequestFigures):
    """The report of one launch. Counts are exact and do not depend on the number of OS threads.

    ``instructions`` are warp instructions, ``thread_instructions`` the lanes in them. ``printed`` is the output of the
    kernel's printf, block by block (it also goes to Python's stdout).

    ``lines`` and all values derived from it need ``statistics=True``. ``findings`` and ``notes`` need ``checks=True``;
    notes are problems that the rules forbid or warn of, and that GPUs tolerate. ``recording`` needs ``record_block=``.

    ``buffer_bytes`` are the bytes of all buffers that the launch can reach, ``shadow_bytes`` the memory that the checks
    used for them: at most 3 bytes for one, in whole 32-byte sectors. (The checks of a block's shared memory take more:
    4 bytes for one, and up to 64 if it is accessed in smaller pieces than 16 bytes.)

    ``blocks_run`` is the number of blocks that ran, to which all counts belong: a sample has fewer than the grid.
    ``sampled_instructions`` are the warp instructions of each block (x, y, z) of a sample; ``sampled`` describes the
    quality of a sample that the device chose. ``parts_recorded`` are recordings of some single blocks, if they were
    made. ``footprint`` holds the bytes that a checked launch of a kernel with ``griddepcontrol.launch_dependents``
    wrote and read, for `LaunchOptions.overlapped` of the launch that depends on it. ``first_written`` are the addresses
    of buffers in which a checked launch wrote bytes that nothing had written, if that is followed. ``order`` is the
    order of blocks and warps of a launch with a schedule. ``proof`` is the use that a checked launch made of a proof.
    ``accesses`` are the bytes that a launch accessed, if that was asked for: rows of three 64-bit numbers, begin, end,
    and the instruction above eight bits, of which 1 stands for reads, 2 for writes, 4 for atomics alone.
    ``numerics`` has the infinities, NaN and conversions of a launch that followed them.
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
    first_written: tuple[int, ...] = field(default=(), repr=False, compare=False)
    order: Any = field(default=None, repr=False, compare=False)
    proof: ProofUse | None = field(default=None, repr=False, compare=False)
    accesses: bytes = field(default=b"", repr=False, compare=False)
    numerics: tuple[LaunchNumerics, ...] = field(default=(), repr=False, compare=False)

    @property
    def parts(self) -> tuple[LaunchReport, ...]:
        """Reports of the launches that this report joins; else this report alone."""
        return (self,)

    @cached_property
    def counts(self) -> MemoryCounts:
        """Memory counts of all instructions, including those without a line."""
        return replace(
            total(line.counts for line in self.lines), instructions=self.instructions, lanes=self.thread_instructions
        )

    @property
    def global_load_requests(self) -> int:
        """Warp requests that load from global memory; atomics are neither loads nor stores."""
        return self.counts.global_load_requests

    @property
    def global_load_sectors(self) -> int:
        """32-byte sectors that loads from global memory touch, counted for each request."""
        return self.counts.global_load_sectors

    @property
    def global_store_requests(self) -> int:
        """Warp requests that store to global memory."""
        return self.counts.global_store_requests

    @property
    def global_store_sectors(self) -> int:
        """32-byte sectors that stores to global memory touch, counted for each request."""
        return self.counts.global_store_sectors

    @property
    def global_bytes_requested(self) -> int:
        """Bytes of global memory that lanes asked for, counted for each lane."""
        return self.counts.bytes_requested

    @property
    def global_bytes_distinct(self) -> int:
        """Bytes of global memory that lanes asked for, counted once per request."""
        return self.counts.bytes_used

    @property
    def global_bytes_moved(self) -> int:
        """Bytes of the sectors of all requests to global memory, loads and stores."""
        return self.counts.bytes_moved

    @property
    def unique_bytes_read(self) -> int:
        """Distinct 32-byte sectors read over the whole launch, in bytes: the least that DRAM delivers."""
        return sum(buffer.read_unique for buffer in self.buffers)

    @property
    def unique_bytes_written(self) -> int:
        """Distinct 32-byte sectors written over the whole launch, in bytes."""
        return sum(buffer.written_unique for buffer in self.buffers)

    @property
    def read_reuse_between_blocks(self) -> float:
        """Average number of blocks that read a byte: the demand on L2 divided by the least traffic of DRAM."""
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
        """Passes through the 32 banks that requests to shared memory, and operands of wgmma and tcgen05.mma, take."""
        return self.counts.shared_wavefronts

    @property
    def shared_ideal_wavefronts(self) -> int:
        """Passes through the 32 banks that they would take without bank conflicts."""
        return self.counts.shared_ideal_wavefronts

    @property
    def operand_wavefronts(self) -> int:
        """Passes through the 32 banks that bring operands of wgmma and tcgen05.mma."""
        return self.counts.operand_wavefronts

    @property
    def shared_conflicts(self) -> int:
        """Wavefronts of shared memory beyond the ideal, caused by bank conflicts."""
        return self.counts.shared_conflicts

    @property
    def mix(self) -> dict[str, int]:
        """Warp instructions by class, the largest first."""
        return mix_of(self.lines)

    def __repr__(self) -> str:
        """Describe the launch without its time, so that a notebook's output stays the same."""
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
