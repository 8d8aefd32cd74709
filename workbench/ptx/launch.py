"""Bind and run launches of a decoded kernel."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from workbench.base.memory_counts import SECTOR_BYTES
from workbench.errors import ArgumentError
from workbench.ptx import numerics, recorder
from workbench.ptx.bound import BoundLaunch
from workbench.ptx.buffers import Buffer, Row, place
from workbench.ptx.core_result import CoreResult, with_findings
from workbench.ptx.covering import Covering
from workbench.ptx.extents import Extent
from workbench.ptx.findings import called
from workbench.ptx.host_memory import without_memory
from workbench.ptx.kernel import DecodedKernel
from workbench.ptx.machine import core
from workbench.ptx.options import UNDEFINED_BITS, LaunchOptions, Shape, coordinates, options_of
from workbench.ptx.outcome import Outcome
from workbench.ptx.parse import ParsedModule, PtxEntry
from workbench.ptx.report import LaunchReport, LineFacts
from workbench.ptx.sample import with_corners
from workbench.ptx.schedules import order_of
from workbench.ptx.shapes import BlockLimits, BlockRules, Dimensions, dimensions
from workbench.ptx.signature import KernelSignature
from workbench.ptx.trusted import trusting

if TYPE_CHECKING:
    from workbench.ptx.assemble import Decoded
    from workbench.ptx.device_heap import DeviceHeap
    from workbench.ptx.module_memory import ModuleMemory

MAX_CLUSTER = 16  # blocks; more than 8 are not portable
_ONE_BLOCK = (1, 1, 1)
_PROCESSORS = os.cpu_count() or 1  # asked for once: it takes as long as a tenth of a small launch
_WORKSPACE, _WORKSPACE_BYTES = 0x0F00_0000_0000, 64  # address and size of the barrier of a cooperative launch


@dataclass(frozen=True)
class _MachineLimits:
    """Limits of the largest block among the architectures for which the machine runs code."""

    arch: str = "sm_90"
    threads_per_block: int = 1024
    shared_per_block: int = 227 * 1024


_LIMITS = _MachineLimits()


class MachineMemory(Protocol):
    """Protocol of the memory that a launch on the machine may touch."""

    @property
    def has_variables(self) -> bool:
        """True if it includes the variables of the program."""

    @property
    def of_host(self) -> Sequence[tuple[int, int]]:
        """Ranges (begin, end) that the host may change while the launch runs."""

    @property
    def heap(self) -> DeviceHeap | None:
        """Heap for malloc in kernels; None for the program's own."""

    @property
    def rows(self) -> list[Row]:
        """Ranges of memory by ascending address."""

    @property
    def extents(self) -> Mapping[int, Extent]:
        """Extents of arguments that a kernel may not leave, by position, where the buffers do not show them."""

    def named(self) -> Sequence[Buffer]:
        """Return the ranges as buffers with names, in the same order; called only for a message or a report."""
        ...


MachineLaunch: TypeAlias = "BoundLaunch[PtxKernel, MachineMemory]"


class PtxKernel(DecodedKernel):
    """One entry of a program, ready to launch."""

    def __init__(
        self, program: ModuleMemory, module: ParsedModule, entry: PtxEntry, decoded: Decoded,
        variant: Callable[[bool, bool], PtxKernel],
    ):  # fmt: skip
        super().__init__(module, entry, decoded, program.global_address)
        self.program = program
        self._variant = variant
        self._counted: tuple[bytes, list[LineFacts]] = b"", []

    @property
    def for_exact(self) -> PtxKernel:
        """The kernel that runs where `LaunchOptions.exact` is set."""
        return self._variant(True, True)

    @functools.cached_property
    def signature(self) -> KernelSignature:
        """Signature of a launch, as far as the PTX determines it."""
        threads = self.entry.max_threads
        bound = None if not threads else math.prod(threads)
        blocks = BlockRules(self.name, static_shared=self.shared_bytes, threads=bound)
        return KernelSignature(blocks, self.parameters, bits=True, named=False)

    def launch(
        self,
        grid: Shape,
        block: Shape,
        args: Sequence[Any],
        options: LaunchOptions | None = None,
        *,
        shared_bytes: int = 0,
        **named: Any,
    ) -> LaunchReport:
        """Run the kernel and return the report.

        ``args`` are torch tensors or NumPy arrays (pointers), numbers, None (null pointer), and bytes or a record array
        of one element (structs by value). They may hold addresses of other tensors and arrays: a table of
        ``data_ptr()`` values, a struct of pointers. ``shared_bytes`` is dynamic shared memory per block. ``named`` are
        fields of `LaunchOptions` that replace those of ``options``.

        Raises KernelFault for out-of-bounds and misaligned accesses, traps and deadlocks, KernelTimeout past a limit,
        ArgumentError for a launch that no GPU would take. With ``checks``, problems after which execution can go on are
        collected in ``report.findings`` instead.
        """
        return self.run(self.bind(grid, block, args, options_of(options, named), shared_bytes=shared_bytes))

    def bind(
        self,
        grid: Shape,
        block: Shape,
        args: Sequence[Any],
        options: LaunchOptions,
        *,
        shared_bytes: int = 0,
        signature: KernelSignature | None = None,
        limits: BlockLimits = _LIMITS,
    ) -> MachineLaunch:
        """Check and pack a launch.

        ``signature`` replaces the kernel's own, where more is known than the PTX; ``limits`` are an architecture's.
        Raises ArgumentError for arguments and shapes that the kernel cannot take.
        """
        signature = signature or self.signature
        fields, arrays = signature.take(args)
        grid, block, shared_bytes = signature.blocks.check(grid, block, shared_bytes, limits)
        if signature.scratch_bytes:
            # Zeros, because a number in an argument that looks like an address is treated as one.
            scratch = np.zeros(signature.scratch_bytes * grid[0] * grid[1] * grid[2], np.uint8)
            arrays.append(signature.scratch_argument(scratch))
            args = [*args, scratch]
        memory = place(signature, fields, arrays, options.follow_addresses, options.first_address)
        return BoundLaunch(self, signature, grid, block, shared_bytes, signature.pack(fields), memory, options, args)

    def bind_packed(
        self, grid: Shape, block: Shape, parameters: bytes, memory: MachineMemory, options: LaunchOptions,
        shared_bytes: int,
    ) -> MachineLaunch:  # fmt: skip
        """Bind a launch whose parameters are packed already, over the given memory. Raises as `bind` does."""
        signature = self.signature
        grid, block, shared_bytes = signature.blocks.check(grid, block, shared_bytes, _LIMITS)
        return BoundLaunch(self, signature, grid, block, shared_bytes, parameters, memory, options)

    def run(self, launch: MachineLaunch) -> LaunchReport:
        """Run a bound launch and return the report. Raises as `launch` does."""
        options = launch.options
        if (options.exact or not options.fmad) and (other := self._variant(options.fmad, options.exact)) is not self:
            return other.run(launch)
        grid, heap = launch.grid, launch.memory.heap
        if heap is None and (self.uses_heap or "heap" in vars(self.program)):
            heap = self.program.heap
        barrier = np.zeros(_WORKSPACE_BYTES, np.uint8) if options.cooperative else None
        rows, named = self._memory(launch.memory, heap, barrier)
        marks = _marks(options.uninitialised, named()) if options.uninitialised else {}
        if marks:
            rows = [(*row[:4], marks[row[0]].ctypes.data) if row[0] in marks else row for row in rows]
        cluster = self._cluster(options.cluster, grid)
        recorded = None if options.record_block is None else _index_of_block("record_block", options.record_block, grid)
        chosen = [] if options.sample is None else _sampled(options, grid, cluster)
        bound = self._core_launch(launch, rows, cluster, chosen, heap)
        code, use = self.decoded.core, None
        extents: list[tuple[int, Extent]] = []
        if options.checks:
            code = self.following(grid, launch.block)
            if options.proved:
                code, bound.proved, use = trusting(code, self._coverings(launch, rows))
            if options.sample_proved and use is not None and not use.refused:
                if bound.proved and not chosen:
                    chosen = [_index_of_block("sample", one, grid) for one in with_corners(grid, options.sample_proved)]
                    bound.sample = chosen
                use = use.on_blocks(len(chosen), math.prod(grid))
            if not bound.proved:
                extents = self.extents.of_launch(launch.memory.extents)
                if unwritten := self.copy_sources.unwritten(launch.parameters, rows):
                    bound.unwritten_sources = unwritten
        if extents:
            bound.shared_extents = [(pc, *one.row) for pc, one in extents if one.in_shared]
            bound.global_extents = [(pc, *one.row) for pc, one in extents if not one.in_shared]

        def run(recorded: int | None) -> CoreResult:
            if recorded is not None:
                bound.recorded_block, bound.record_limit = recorded, recorder.MAX_REQUESTS
            try:
                made = code.launch(bound)
            except MemoryError as error:
                raise without_memory(self, launch, str(error), bound.threads) from error
            return CoreResult(**(with_findings(made) if made["findings"] or made["fault"] else made))

        if options.exact:
            code = self.exact(code)
        if options.debugger is not None and (debugger := options.debugger.attach(self, launch)) is not None:
            bound.debugger = debugger
        log = numerics.begin(options.numerics, bound) if options.numerics else None
        result = run(recorded)
        if options.debugger is not None:
            options.debugger.detach()
        outcome = Outcome(self, grid, launch.block, options, result, extents, launch.names)
        printed = result.printed.decode(errors="replace") if result.printed else ""
        if printed:
            print(printed, end="")
        order = order_of(options.schedule, *result.schedule) if result.schedule is not None else None
        if result.fault:
            error = outcome.error(result.fault, called(named(), launch.names, launch.values), run)
            error.order = order
            raise error
        report = LaunchReport(
            self.entry.name, grid, launch.block, result.instructions, result.thread_instructions,
            result.seconds, result.threads, self.decoded.static_shared + launch.shared_bytes,
            has_statistics=options.statistics, has_checks=options.checks, printed=printed,
            buffer_bytes=sum([row[1] for row in rows]), shadow_bytes=result.shadow_bytes,
            footprint=result.footprint, blocks_run=len(chosen) or grid[0] * grid[1] * grid[2],
            first_written=tuple(result.first_written), order=order,
            proof=use, accesses=result.accesses,
            numerics=log.take(self, grid, launch.block, called(named(), launch.names, launch.values)) if log else (),
        )  # fmt: skip
        if chosen:
            counted = zip(chosen, result.sampled, strict=True)
            report.sampled_instructions = {coordinates(index, grid): count for index, count in counted}
        if options.checks:
            outcome.add_findings(report, lambda: called(named(), launch.names, launch.values), launch.repeats)
        if options.statistics:
            if self._counted[0] != result.counts:  # repeated launches have equal counts
                self._counted = result.counts, outcome.lines()
            report.lines = [*self._counted[1]]
            outcome.add_buffers(report, named())
        if recorded is not None:
            outcome.add_recording(report, recorded, named())
        return report

    def _coverings(self, launch: MachineLaunch, rows: Sequence[Row]) -> Iterator[Covering]:
        return (Covering(one, self, launch, rows, self.program.variables) for one in launch.options.proved)

    def same_in_every_order(self, launch: MachineLaunch) -> bool:
        """Return True if a proof covers all of a launch, and no lane sees registers of others.

        Then no order of its threads, and no time at which its copies land, changes what it does.
        """
        if not launch.options.proved or self.collective or self.uses_heap or launch.memory.heap is not None:
            return False
        rows, _ = self._memory(launch.memory, None, None)
        return any(one.proof.whole and not one.refused for one in self._coverings(launch, rows))

    def _core_launch(
        self, launch: MachineLaunch, rows: Sequence[Row], cluster: Dimensions, sample: Sequence[int],
        heap: DeviceHeap | None,
    ) -> Any:  # fmt: skip
        """Return the launch in the core's form; fields with the core's defaults are not set."""
        bound, options = core.BoundLaunch(), launch.options
        bound.name, bound.grid, bound.block = self.entry.name, launch.grid, launch.block
        bound.dynamic_shared, bound.params, bound.buffers = launch.shared_bytes, launch.parameters, rows
        bound.threads = options.threads or (1 if options.checks else _PROCESSORS)
        bound.undefined = UNDEFINED_BITS[options.last_warp_first] if options.undefined is None else options.undefined
        if cluster != _ONE_BLOCK:
            bound.cluster = cluster
        if options.cooperative:
            bound.workspace = _WORKSPACE
        if heap is not None:
            bound.heap, bound.number_in_heap = heap.core, heap.begin(self)
        if sample:
            bound.sample = sample
        if options.statistics:
            bound.statistics = True
        if options.checks:
            bound.checks, bound.strict = True, options.strict
            if options.accesses:
                bound.accesses = True
            if launch.repeats:
                bound.unused = self.unused(launch.block)
            if options.overlapped is not None:
                bound.overlapped = options.overlapped
        if options.last_warp_first or options.copies_early:
            bound.last_warp_first, bound.copies_early = options.last_warp_first, options.copies_early
        if options.schedule is not None:
            bound.schedule = options.schedule
            if options.schedule_changes is not None:
                bound.schedule_changes = options.schedule_changes
            if options.aims:
                bound.aims = list(options.aims)
            if options.late_stores:
                bound.late_stores, bound.strict = list(options.late_stores), options.strict
        if options.clock_start:
            bound.clock_start = options.clock_start
        if options.multiprocessors != 1:
            bound.multiprocessors = options.multiprocessors
        if options.instruction_limit:
            bound.instruction_limit = options.instruction_limit
        if options.seconds_limit:
            bound.seconds_limit = options.seconds_limit
        if options.idle_limit:
            bound.idle_limit = options.idle_limit
        if launch.memory.of_host:
            bound.of_host = launch.memory.of_host
        return bound

    def _memory(
        self, memory: MachineMemory, heap: DeviceHeap | None, barrier: np.ndarray | None
    ) -> tuple[list[Row], Callable[[], Sequence[Buffer]]]:
        """Return all memory that a launch may touch, in the core's form, and a function that returns its buffers."""
        further: list[Buffer] = []
        if not memory.has_variables and self.program.variables:
            further += [
                Buffer(name, address, storage.nbytes, storage.ctypes.data, True)
                for name, address, storage in self.program.variable_buffers()
            ]
        if barrier is not None:
            further.append(Buffer("the grid's barrier", _WORKSPACE, barrier.nbytes, barrier.ctypes.data, True))
        if heap is None and not further:
            return memory.rows, memory.named
        rows: list[Row] = [(one.address, one.size, one.host, True, 0) for one in further]
        if heap is not None:
            rows.append(heap.row)
            further.append(Buffer("the device heap", *heap.row[:4]))
        return (
            sorted([*memory.rows, *rows]),
            lambda: sorted([*memory.named(), *further], key=lambda buffer: buffer.address),
        )

    def _cluster(self, cluster: Shape | None, grid: Dimensions) -> Dimensions:
        """Return the number of blocks of a cluster along x, y and z."""
        required = self.entry.cluster
        if cluster is None:
            if required is None:
                return _ONE_BLOCK
            shape = required
        else:
            shape = dimensions("cluster", cluster, (MAX_CLUSTER,) * 3)
        if required and shape != required:
            remedy = "The kernel's __cluster_dims__ says so; leave it away."
            raise ArgumentError("cluster", shape, f"{required}", remedy)
        if shape[0] * shape[1] * shape[2] > MAX_CLUSTER:
            raise ArgumentError("cluster", shape, f"at most {MAX_CLUSTER} blocks", "Use a smaller cluster.")
        if any(blocks % size for blocks, size in zip(grid, shape, strict=True)):
            raise ArgumentError("grid", grid, f"a multiple of the cluster {shape}", "Launch whole clusters.")
        return shape


def _index_of_block(name: str, value: Shape, grid: Dimensions) -> int:
    place = (value,) if isinstance(value, int | np.integer) else tuple(value)
    place += (0,) * (3 - len(place))
    if len(place) != 3 or not all(
        isinstance(n, int | np.integer) and 0 <= n < size for n, size in zip(place, grid, strict=True)
    ):
        allowed = f"up to 3 coordinates (x, y, z) below {grid}"
        raise ArgumentError(name, repr(value), allowed, "Name a block of the grid, counted from 0.")
    return (int(place[2]) * grid[1] + int(place[1])) * grid[0] + int(place[0])


def _sampled(options: LaunchOptions, grid: Dimensions, cluster: Dimensions) -> list[int]:
    """Return the indices of the blocks to run."""
    assert options.sample is not None
    if options.cooperative or cluster != _ONE_BLOCK:
        remedy = "Run all of them: they wait for each other."
        raise ArgumentError("sample", "blocks of a cooperative launch or of clusters", "None there", remedy)
    found = sorted({_index_of_block("sample", place, grid) for place in options.sample})
    if not found:
        raise ArgumentError("sample", "no block", "one or more", "Pass None to run all of them.")
    return found


def _marks(positions: Sequence[int], buffers: Sequence[Buffer]) -> dict[int, np.ndarray]:
    """Return marks for buffers without content, by address: a bit for each byte that the kernel writes."""
    marks = {}
    for position in positions:
        found = [buffer for buffer in buffers if f"argument {position}" in buffer.name.split("/")]
        if not found:
            arrays = ", ".join(buffer.name for buffer in buffers) or "none"
            raise ArgumentError("uninitialised", repr(position), f"positions of arrays: {arrays}", "Count from 0.")
        for one in found:
            sectors = (one.address + one.size + SECTOR_BYTES - 1) // SECTOR_BYTES - one.address // SECTOR_BYTES
            marks[one.address] = np.zeros(sectors, np.uint32)
    return marks
