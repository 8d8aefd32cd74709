"""Launching a decoded kernel, and turning the core's numbers into a report or an error."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.base.memory_counts import SECTOR_BYTES
from workbench.errors import ArgumentError, KernelFault, KernelTimeout
from workbench.ptx import passed_phases, recorder
from workbench.ptx.buffers import Buffer, pack
from workbench.ptx.decode import locate
from workbench.ptx.findings import NOTES, TRITONS_OWN, called, describe, folded, of_tritons_code, widest_first
from workbench.ptx.host_memory import without_memory
from workbench.ptx.kernel import DecodedKernel
from workbench.ptx.machine import core
from workbench.ptx.options import UNDEFINED_BITS, LaunchOptions, Shape, coordinates, options_of
from workbench.ptx.parse import Entry
from workbench.ptx.report import BufferFacts, Finding, LaunchReport, LineFacts

if TYPE_CHECKING:
    from workbench.ptx.assemble import Decoded
    from workbench.ptx.device_heap import DeviceHeap
    from workbench.ptx.program import Program

MAX_THREADS = 1024
MAX_CLUSTER = 16  # blocks; more than 8 are not portable
MAX_SHARED_BYTES = 227 * 1024  # per block on sm_90, the largest of the architectures compiled for
_PROCESSORS = os.cpu_count() or 1  # asked for once: it takes as long as a tenth of a small launch
_WORKSPACE, _WORKSPACE_BYTES = 0x0F00_0000_0000, 64  # where the barrier of a cooperative launch lies
_LIMITS = ((1 << 31) - 1, 65535, 65535)
_COUNTS = np.dtype(core.COUNTS)
_SPACES = ("global", "shared", "local", "constant")
_BULK_STORE = "global.shared"
_Row = tuple[int, int, int, bool, int]


def _shape(name: str, value: Shape, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    sizes = (value,) if isinstance(value, int | np.integer) else tuple(value)
    allowed = f"1 to 3 sizes, each from 1 to {', '.join(map(str, limits))}"
    if not 1 <= len(sizes) <= 3 or not all(isinstance(n, int | np.integer) for n in sizes):
        raise ArgumentError(name, repr(value), allowed, "Pass an int or a tuple of up to three.")
    full = x, y, z = (*map(int, sizes), 1, 1)[:3]
    if not all(1 <= n <= limit for n, limit in zip(full, limits, strict=True)):
        raise ArgumentError(name, repr(value), allowed, "An empty or too large launch is an error on the GPU too.")
    return x, y, z


def _sectors(address: int, size: int) -> int:
    return (address + size + SECTOR_BYTES - 1) // SECTOR_BYTES - address // SECTOR_BYTES


def _index_of_block(name: str, value: Shape, grid: tuple[int, int, int]) -> int:
    place = (value,) if isinstance(value, int | np.integer) else tuple(value)
    place += (0,) * (3 - len(place))
    if len(place) != 3 or not all(
        isinstance(n, int | np.integer) and 0 <= n < size for n, size in zip(place, grid, strict=True)
    ):
        allowed = f"up to 3 coordinates (x, y, z) below {grid}"
        raise ArgumentError(name, repr(value), allowed, "Name a block of the grid, counted from 0.")
    return (int(place[2]) * grid[1] + int(place[1])) * grid[0] + int(place[0])


def _sampled(options: LaunchOptions, grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> list[int]:
    """The blocks to run, by index; none where all should."""
    if options.sample is None:
        return []
    if options.cooperative or cluster != (1, 1, 1):
        remedy = "Run all of them: they wait for each other."
        raise ArgumentError("sample", "blocks of a cooperative launch or of clusters", "None there", remedy)
    found = sorted({_index_of_block("sample", place, grid) for place in options.sample})
    if not found:
        raise ArgumentError("sample", "no block", "one or more", "Pass None to run all of them.")
    return found


def _found_before(kind: str, pc: int, other: int) -> dict[str, Any]:
    """A finding of the code itself, as the core reports one."""
    place = {"problem": kind, "pc": pc, "other_pc": other, "block": 0, "thread": 0}
    return place | {"other_block": -1, "other_thread": -1, "address": 0, "bytes": 0, "count": 1, "text": b""}


def _moved(buffer: Buffer, sectors: Sequence[int], again: bytes) -> BufferFacts:
    read, by_blocks, unique, written, written_by_blocks, written_unique = (SECTOR_BYTES * count for count in sectors)
    counts = np.trim_zeros(np.frombuffer(again, np.uint64), "b")
    return BufferFacts(
        buffer.name, buffer.size, read, by_blocks, unique, written, written_by_blocks, written_unique,
        tuple(SECTOR_BYTES * int(count) for count in counts),
    )  # fmt: skip


def _with_buffer(name_buffers: Callable[[], list[Buffer]], one: Buffer) -> list[Buffer]:
    return sorted([*name_buffers(), one], key=lambda buffer: buffer.address)


class Kernel(DecodedKernel):
    """One entry of a program, ready to launch."""

    def __init__(self, program: Program, entry: Entry, decoded: Decoded):
        super().__init__(program.module, entry, decoded)
        self.program = program
        self._counted: tuple[bytes, list[LineFacts]] = b"", []

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
        """Runs the kernel and returns what it did.

        ``args``: torch tensors or NumPy arrays (pointers), numbers, None (null pointer), bytes or a record array of one
        element (by-value structs). Addresses of other tensors and arrays may stand in them: a table of ``data_ptr()``
        values, a struct of pointers. ``shared_bytes`` is dynamic shared memory per block. ``named`` are fields of
        `LaunchOptions`, in the place of those of ``options``.

        Raises KernelFault for out-of-bounds and misaligned accesses, traps and deadlocks, KernelTimeout past a limit,
        ArgumentError for a launch that no GPU would take. With ``checks`` problems after which execution can go on are
        collected in ``report.findings`` instead.
        """
        options = options_of(options, named)
        params, buffers = pack(self.name, self.parameters, args, options.follow_addresses)
        variables = self.program.variable_buffers()
        buffers = [
            Buffer(name, address, storage.nbytes, storage.ctypes.data, True) for name, address, storage in variables
        ] + buffers
        unwritten = self._unwritten(options.uninitialised, buffers)
        buffers.sort(key=lambda buffer: buffer.address)
        marks = {b.name: np.zeros(_sectors(b.address, b.size), np.uint32) for b in buffers if b.name in unwritten}
        rows = [
            (b.address, b.size, b.host, b.writable, marks[b.name].ctypes.data if b.name in marks else 0)
            for b in buffers
        ]
        return self.launch_packed(grid, block, params, rows, lambda: buffers, options, shared_bytes)

    def launch_packed(
        self,
        grid: Shape,
        block: Shape,
        params: bytes,
        rows: Sequence[_Row],
        name_buffers: Callable[[], list[Buffer]],
        options: LaunchOptions,
        shared_bytes: int,
        heap: DeviceHeap | None = None,
    ) -> LaunchReport:
        """Likewise with parameters that are bytes already, and the memory that there is.

        ``rows``: (address, bytes, address in this process, writable, marks) of every range that the kernel may touch,
        the program's variables among them, by ascending address; ``name_buffers`` gives them names, and is asked only
        where something is to be told about them. Marks are the address of 32 bits for each sector, one for each byte
        that was written, which ``checks`` read and the kernel sets; 0 where all bytes count as written. ``heap`` is
        where malloc takes from in the place of the program's own.
        """
        if heap is None and (self.uses_heap or "heap" in vars(self.program)):
            heap = self.program.heap
        if heap is not None:
            row = heap.row
            name_buffers = functools.partial(_with_buffer, name_buffers, Buffer("the device heap", *row[:4], 0, heap))
            rows = sorted([*rows, row])
        grid, block = _shape("grid", grid, _LIMITS), _shape("block", block, (1024, 1024, 64))
        self._check_launch(block, shared_bytes)
        cluster, checks = self._cluster(options.cluster, grid), options.checks
        if options.cooperative:
            storage = np.zeros(_WORKSPACE_BYTES, np.uint8)
            barrier = Buffer("the grid's barrier", _WORKSPACE, storage.nbytes, storage.ctypes.data, True, 0, storage)
            rows = sorted([*rows, (barrier.address, barrier.size, barrier.host, True, 0)])
            name_buffers = functools.partial(_with_buffer, name_buffers, barrier)
        recorded = None if options.record_block is None else _index_of_block("record_block", options.record_block, grid)
        chosen = _sampled(options, grid, cluster)
        workers = options.threads or (1 if checks else _PROCESSORS)

        bound = core.BoundLaunch()
        bound.name, bound.grid, bound.block, bound.cluster = self.name, grid, block, cluster
        bound.dynamic_shared, bound.params, bound.buffers, bound.sample = shared_bytes, params, rows, chosen
        bound.threads, bound.statistics, bound.checks, bound.strict = (
            workers,
            options.statistics,
            checks,
            options.strict,
        )
        bound.last_warp_first, bound.copies_early = options.last_warp_first, options.copies_early
        bound.undefined = UNDEFINED_BITS[options.last_warp_first] if options.undefined is None else options.undefined
        bound.instruction_limit, bound.seconds_limit = options.instruction_limit or 0, options.seconds_limit or 0.0
        bound.record_limit, bound.workspace = recorder.MAX_REQUESTS, _WORKSPACE if options.cooperative else 0
        if checks and options.repeats:
            bound.unused = self.unused(block)
        if options.overlapped is not None:
            bound.overlapped = options.overlapped
        if heap is not None:
            bound.heap, bound.number_in_heap = heap.core, heap.begin(self)

        def run(recorded: int | None) -> dict[str, Any]:
            bound.recorded_block = -1 if recorded is None else recorded
            try:
                return self.decoded.core.launch(bound)
            except MemoryError as error:
                shared = self.shared_bytes + shared_bytes
                raise without_memory(
                    self.name, str(error), grid, block, self.decoded.local_bytes, shared, workers, options
                ) from error

        result = run(recorded)
        printed = result["printed"].decode(errors="replace")
        if printed:
            print(printed, end="")
        if result["fault"]:
            self._raise(result, grid, block, called(name_buffers(), options.names), options, run)
        report = LaunchReport(
            self.name, grid, block, result["instructions"], result["thread_instructions"], result["seconds"],
            result["threads"], self.shared_bytes + shared_bytes, has_statistics=options.statistics, has_checks=checks,
            printed=printed, buffer_bytes=sum(row[1] for row in rows), shadow_bytes=result["shadow_bytes"],
            footprint=result["footprint"], blocks_run=len(chosen) or grid[0] * grid[1] * grid[2],
            sampled_instructions={coordinates(i, grid): n for i, n in zip(chosen, result["sampled"], strict=True)},
        )  # fmt: skip
        buffers = name_buffers() if checks or options.statistics or recorded is not None else []
        if checks:
            told = called(buffers, options.names)
            problems = [*result["findings"], *(_found_before(*one) for one in self.decoded.misused)]
            if options.repeats:
                problems = [of_tritons_code(self, problem) for problem in problems]
            found = [describe(self, problem, grid, block, told) for problem in problems]
            found = folded(sorted(found, key=lambda f: (f.ptx_line, f.kind, f.other_ptx_line or 0)))
            if options.repeats and not options.strict:
                found = [finding for finding in found if finding.kind not in TRITONS_OWN]
            noted = frozenset() if options.strict else NOTES
            report.findings = [finding for finding in found if finding.kind not in noted]
            report.notes = [finding for finding in found if finding.kind in noted]
        if options.statistics:
            if self._counted[0] != result["counts"]:  # a launch that is repeated, to be timed, counts the same
                self._counted = result["counts"], self._lines(result["counts"])
            report.lines = [*self._counted[1]]
            report.buffers = tuple(
                _moved(buffer, sectors, again)
                for buffer, sectors, again in zip(buffers, result["sectors"], result["again"], strict=True)
            )
        if recorded is not None:
            warps = (block[0] * block[1] * block[2] + 31) // 32
            report.recording = recorder.unpack(self, coordinates(recorded, grid), warps, result, buffers)
        return report

    @staticmethod
    def _unwritten(positions: Sequence[int], buffers: list[Buffer]) -> set[str]:
        """Names of the buffers that the caller says nobody has written."""
        names = set()
        for position in positions:
            found = [buffer.name for buffer in buffers if f"argument {position}" in buffer.name.split("/")]
            if not found:
                arrays = ", ".join(buffer.name for buffer in buffers) or "none"
                raise ArgumentError("uninitialised", repr(position), f"positions of arrays: {arrays}", "Count from 0.")
            names.update(found)
        return names

    def _check_launch(self, block: tuple[int, int, int], shared_bytes: int) -> None:
        count = block[0] * block[1] * block[2]
        if count > MAX_THREADS:
            raise ArgumentError(
                "block", f"{count} threads", f"at most {MAX_THREADS}", "Use a smaller block and more of them."
            )
        bound = self.entry.max_threads
        if bound:
            most = 1
            for n in bound:
                most *= n
            if count > most:
                raise ArgumentError(
                    "block", f"{count} threads", f"at most {most}", "The kernel's __launch_bounds__ says so."
                )
        if not 0 <= shared_bytes <= MAX_SHARED_BYTES - self.shared_bytes:
            raise ArgumentError(
                "shared_bytes", f"{shared_bytes} dynamic and {self.shared_bytes} static bytes",
                f"at most {MAX_SHARED_BYTES} together", "Use smaller tiles.",
            )  # fmt: skip

    def _cluster(self, cluster: Shape | None, grid: tuple[int, int, int]) -> tuple[int, int, int]:
        """The blocks of a cluster along x, y, z."""
        required = self.entry.cluster
        if cluster is None and required is None:
            return 1, 1, 1
        shape = _shape("cluster", cluster, (MAX_CLUSTER,) * 3) if cluster is not None else required
        assert shape is not None  # one of the two
        if required and shape != required:
            raise ArgumentError(
                "cluster", shape, f"{required}", "The kernel's __cluster_dims__ says so; leave it away."
            )
        if shape[0] * shape[1] * shape[2] > MAX_CLUSTER:
            raise ArgumentError("cluster", shape, f"at most {MAX_CLUSTER} blocks", "Use a smaller cluster.")
        if any(blocks % size for blocks, size in zip(grid, shape, strict=True)):
            raise ArgumentError("grid", grid, f"a multiple of the cluster {shape}", "Launch whole clusters.")
        return shape

    def _raise(
        self, result: dict[str, Any], grid: tuple[int, int, int], block: tuple[int, int, int],
        buffers: Sequence[Buffer], options: LaunchOptions, run: Callable[[int], dict[str, Any]],
    ) -> None:  # fmt: skip
        finding = self._explained(describe(self, result["fault"], grid, block, buffers), result, block, run)
        if finding.kind == "timeout":
            if result["timed_out"]:
                limit, name = f"{options.seconds_limit:g} s", "seconds_limit"
            else:
                limit, name = f"{options.instruction_limit:,} warp instructions", "instruction_limit"
            remedy = f"{name}= sets another, None no limit"
            message = f"{finding.message} (limit: {limit}). An endless loop, or a limit that is too low: {remedy}."
            raise KernelTimeout(message, finding)
        earlier = widest_first(describe(self, row, grid, block, buffers) for row in result["findings"])
        before = f"\nFound before: {earlier[0].message}" if earlier else ""
        raise KernelFault(finding.message + before, finding)

    def _explained(
        self, finding: Finding, result: dict[str, Any], block: tuple[int, int, int], run: Callable[[int], dict]
    ) -> Finding:
        """A deadlock at an mbarrier with its reason, which a second run of the block tells, recorded."""
        if finding.kind != "deadlock" or not passed_phases.asks(finding.message):
            return finding
        again, fault = run(result["fault"]["block"]), result["fault"]
        if again["fault"] is None or any(again["fault"][name] != fault[name] for name in ("pc", "block", "thread")):
            return finding
        threads, warp = block[0] * block[1] * block[2], fault["thread"] // 32
        events = recorder.unpack(self, finding.block, (threads + 31) // 32, again, []).events
        places = {step.statement.line: step.statement.location for step in self.decoded.code if step.statement}
        why = passed_phases.why(
            finding.message, events, warp, min(threads - 32 * warp, 32),
            lambda event: locate(self.module, places.get(event.ptx_line)),
        )  # fmt: skip
        return replace(finding, message=finding.message + why)

    def _lines(self, raw: bytes) -> list[LineFacts]:
        counts = np.frombuffer(raw, _COUNTS)
        ran = np.flatnonzero(counts["executions"])
        lines: list[LineFacts] = []
        places: dict[int, tuple[str, int, str, int]] = {}  # by location; statements in a row share theirs
        for pc, row in zip(ran.tolist(), counts[ran].tolist(), strict=True):
            numbers = dict(zip(core.COUNTS["names"], row, strict=True))
            instruction = self.decoded.code[pc]
            statement = instruction.statement
            if statement is None:
                continue
            location, opcode = statement.location, instruction.opcode
            place = places.get(id(location))
            if place is None:
                place = places[id(location)] = *self.place_of(location), *self.place_of(location, in_kernel_file=True)
            space = opcode.group if opcode.group in _SPACES else ""
            if space == "global" and not numbers["sectors"] and numbers["wavefronts"]:
                space = "shared"  # a generic address that always pointed there
            lines.append(
                LineFacts(
                    pc,
                    statement.line,
                    statement.text,
                    *place,
                    opcode.group,
                    space,
                    opcode.name.startswith(("ld", "cp.async")) and not opcode.name.endswith(_BULK_STORE),
                    opcode.name.startswith("st") or opcode.name.endswith(_BULK_STORE),
                    **numbers,
                )
            )
        return sorted(lines, key=lambda line: (line.ptx_line, line.pc))
