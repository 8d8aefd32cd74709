"""The outcome of a launch: turns the core's result into a report, or into the error that ended the launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.base.busy import told
from workbench.base.memory_counts import SECTOR_BYTES
from workbench.errors import KernelFault, KernelTimeout
from workbench.ptx import endless_waits, passed_phases, recorder
from workbench.ptx.buffers import Buffer
from workbench.ptx.core_result import CoreFinding, CoreResult
from workbench.ptx.decode import locate
from workbench.ptx.extents import SHARED_END, Extent
from workbench.ptx.findings import (
    ALWAYS_NOTES,
    LATER_BLOCK,
    NOTES,
    TRITONS_OWN,
    describe,
    folded,
    loads_ahead,
    named,
    of_choices,
    of_confirmed,
    of_tritons_code,
    widest_first,
)
from workbench.ptx.kernel import DecodedKernel
from workbench.ptx.machine import core
from workbench.ptx.options import LaunchOptions, coordinates
from workbench.ptx.report import BufferFacts, Finding, LaunchReport, LineFacts
from workbench.ptx.shapes import Dimensions

_COUNTS = np.dtype(core.COUNTS)
_SPACES = ("global", "shared", "local", "constant")
_BULK_STORE = "global.shared"


@dataclass(slots=True)
class Outcome:
    """The core's ``result`` of one launch of a kernel."""

    kernel: DecodedKernel
    grid: Dimensions
    block: Dimensions
    options: LaunchOptions
    result: CoreResult
    extents: Sequence[tuple[int, Extent]] = ()
    """Extents of accesses by pc, with which the launch ran."""
    names: Sequence[str] = ()
    """Names of the arguments."""

    def add_findings(self, report: LaunchReport, named: Callable[[], Sequence[Buffer]], repeats: bool) -> None:
        """Add the findings of the checks, and the notes, to the report; ``named`` returns the buffers."""
        kernel, strict = self.kernel, self.options.strict
        problems = [*self.result.findings, *(CoreFinding(*one) for one in kernel.decoded.misused)]
        if not problems:
            return
        buffers = named()
        if not strict:
            problems = [problem for problem in problems if not loads_ahead(kernel, problem)]
        if repeats:
            problems = [of_tritons_code(kernel, problem) for problem in problems]
        problems = [of_confirmed(kernel, of_choices(kernel, problem)) for problem in problems]
        found = [self._described(problem, buffers) for problem in problems]
        found = folded(sorted(found, key=lambda f: (f.ptx_line, f.kind, f.other_ptx_line or 0)))
        if repeats and not strict:
            found = [finding for finding in found if finding.kind not in TRITONS_OWN]
        noted = ALWAYS_NOTES if strict else NOTES
        report.findings = [finding for finding in found if finding.kind not in noted]
        report.notes = [finding for finding in found if finding.kind in noted]

    def add_buffers(self, report: LaunchReport, buffers: Sequence[Buffer]) -> None:
        """Add the traffic of each buffer to the report."""
        result = self.result
        counted = zip(buffers, result.sectors, result.again, result.unread, strict=True)
        report.buffers = tuple(_moved(*counts) for counts in counted)

    def add_recording(self, report: LaunchReport, recorded: int, buffers: Sequence[Buffer]) -> None:
        """Add the recording of the block with index ``recorded`` to the report."""
        place, warps = coordinates(recorded, self.grid), (self._threads + 31) // 32
        report.recording = recorder.unpack(self.kernel, place, warps, self.result, buffers)

    def lines(self) -> list[LineFacts]:
        """Return the counts of each executed instruction."""
        kernel = self.kernel
        counts = np.frombuffer(self.result.counts, _COUNTS)
        ran = np.flatnonzero(counts["executions"])
        lines: list[LineFacts] = []
        places: dict[int, tuple[str, int, str, int]] = {}  # by location; statements in a row share theirs
        for pc, row in zip(ran.tolist(), counts[ran].tolist(), strict=True):
            numbers = dict(zip(core.COUNTS["names"], row, strict=True))
            instruction = kernel.decoded.code[pc]
            statement = instruction.statement
            if statement is None:
                continue
            location, opcode = statement.location, instruction.opcode
            place = places.get(id(location))
            if place is None:
                here = kernel.module.place_of(location)
                in_kernel = kernel.module.place_of(location, in_kernel_file=True)
                place = places[id(location)] = *here, *in_kernel
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

    def error(self, fault: CoreFinding, buffers: Sequence[Buffer], run: Callable[[int], CoreResult]) -> KernelFault:
        """Return the error of the ``fault`` that ended the launch; ``run`` runs it again and records one block."""
        finding = self._explained(fault, self._described(fault, buffers), run)
        if finding.kind == "timeout":
            options = self.options
            if self.result.idle:
                limit = f"{options.idle_limit:g} s of processor time in which no thread ended and no barrier completed"
                name = "seconds_limit"
            elif self.result.timed_out:
                assert options.seconds_limit is not None
                spent = self.result.cpu_seconds, self.result.seconds
                limit, name = (
                    f"{options.seconds_limit:g} s; stopped after {told(options.seconds_limit, *spent)}",
                    "seconds_limit",
                )
            else:
                limit, name = f"{options.instruction_limit:,} warp instructions", "instruction_limit"
            remedy = f"{name}= sets another, None no limit"
            message = f"{finding.message} (limit: {limit}). An endless loop, or a limit that is too low: {remedy}."
            return KernelTimeout(message, finding)
        described = [self._described(row, buffers) for row in self.result.findings]
        earlier = widest_first(finding for finding in described if finding.kind != LATER_BLOCK)
        if fault.problem == "endless_wait":
            finding = replace(finding, message=finding.message + endless_waits.HOST_COMES_LATER)
        before = f"\nFound before: {earlier[0].message}" if earlier else ""
        return KernelFault(finding.message + before, finding)

    @property
    def _threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    def _described(self, row: CoreFinding, buffers: Sequence[Buffer]) -> Finding:
        if row.problem in ("outside_extent", "between_elements"):
            in_shared = row.address < SHARED_END
            extent = next(one for pc, one in self.extents if pc == row.pc and one.in_shared == in_shared)
            row = replace(row, extent=extent._replace(name=named(extent.name, self.names)))
        return describe(self.kernel, row, self.grid, self.block, buffers)

    def _explained(self, fault: CoreFinding, finding: Finding, run: Callable[[int], CoreResult]) -> Finding:
        """Return a deadlock at an mbarrier with its reason, which a second, recorded run of the block reveals."""
        if finding.kind != "deadlock" or self.options.debugger is not None or not passed_phases.asks(finding.message):
            return finding
        kernel, again = self.kernel, run(fault.block)
        if again.fault is None or again.fault.place != fault.place:
            return finding
        threads, warp = self._threads, fault.thread // 32
        events = recorder.unpack(kernel, finding.block, (threads + 31) // 32, again, []).events
        places = {step.statement.line: step.statement.location for step in kernel.decoded.code if step.statement}
        why = passed_phases.why(
            finding.message, events, warp, min(threads - 32 * warp, 32),
            lambda event: locate(kernel.module, places.get(event.ptx_line)),
        )  # fmt: skip
        return replace(finding, message=finding.message + why)


def _moved(buffer: Buffer, sectors: Sequence[int], again: bytes, unread: tuple[int, int, int]) -> BufferFacts:
    read, by_blocks, unique, written, written_by_blocks, written_unique = (SECTOR_BYTES * count for count in sectors)
    counts = np.trim_zeros(np.frombuffer(again, np.uint64), "b")
    return BufferFacts(
        buffer.name, buffer.size, read, by_blocks, unique, written, written_by_blocks, written_unique,
        tuple(SECTOR_BYTES * int(count) for count in counts), unread, buffer.element,
    )  # fmt: skip
