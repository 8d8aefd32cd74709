"""Hints on what to try next: the lines and totals of a trace that waste most, each with its evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.analysis.atomics import AtomicLine, atomics_of
from workbench.analysis.lines import TracedLine
from workbench.analysis.totals import RunTotals
from workbench.analysis.traffic import inputs
from workbench.analysis.vector_parts import partly_used
from workbench.ptx.report import LineFacts

if TYPE_CHECKING:
    from workbench.analysis.device_models import DeviceModel
    from workbench.toolchain.remarks import AssemblerRemark

LEAST = 0.1
"""Least share of all bytes, wavefronts, instructions or waits that is worth a hint."""
_FEW = 0.5
"""Share of the bytes that keep the memory busy; fewer bytes in flight are worth a hint."""
_CROWD = 4
"""Lanes that meet at an address, on average, from which on it is worth a hint."""
_RARE = 0.01
"""Share of the warp instructions that atomics have, below which they are not worth a hint."""
_SLOW_PATH = 25
"""Approximate machine instructions of a warp in the slow path of a division: those of 0 / 0, with the call."""


@dataclass(frozen=True)
class Hint:
    """One thing to try, with its evidence.

    ``cost`` is the share that is wasted: of all bytes moved, wavefronts, instructions, or instructions spent waiting.
    ``line`` is the source line concerned, None for the whole kernel.
    """

    name: str
    line: TracedLine | None
    cost: float
    evidence: str
    remedy: str

    def __str__(self) -> str:
        where = f"line {self.line.line}, " if self.line else ""
        return f"{where}{self.name}: {self.evidence}. {self.remedy}".rstrip()


def hints_of(trace: RunTotals, model: DeviceModel) -> tuple[Hint, ...]:
    """Return the hints of a trace: on lines, costliest first and none below `LEAST`, then on the whole kernel."""
    found = [hint for line in trace.lines for hint in _of_line(trace, line)] + list(_of_accesses(trace))
    found = [hint for hint in found if hint.cost >= LEAST]
    return (*sorted(found, key=lambda hint: -hint.cost), *_of_kernel(trace, model))


def _of_line(trace: RunTotals, line: TracedLine) -> Iterator[Hint]:
    if line.global_requests:
        unused = line.bytes_moved - line.bytes_used
        cost = unused / trace.bytes_moved
        sectors = f"{line.sectors_per_request:.3g} sectors a request"
        if (line.sectors_per_request or 0) < 1.01 * (line.ideal_sectors_per_request or 0):
            remedy = (
                "Its requests fill no whole sectors: let one bring what several do, or keep it for more of the work."
            )
        else:
            sectors += f" where {line.ideal_sectors_per_request:.3g} would do"
            remedy = "Let neighbouring lanes have neighbouring bytes: "
            remedy += "another layout, wider loads, or a tile in shared memory."
        evidence = (
            f"{sectors}, {line.used_fraction:.0%} of their bytes used; unused bytes are {cost:.0%} of all bytes moved"
        )
        yield Hint("bytes moved for nothing", line, cost, evidence, remedy)
    if line.shared_conflicts:
        cost = line.shared_conflicts / trace.shared_wavefronts
        evidence = (
            f"{line.shared_wavefronts:,} wavefronts where {line.shared_ideal_wavefronts:,} would do, "
            f"{cost:.0%} of all wavefronts"
        )
        yield Hint("bank conflicts", line, cost, evidence, "Pad the rows of the tile by one element, or swizzle them.")
    if line.barrier_waits:
        cost = line.barrier_waits / (trace.instructions + trace.barrier_waits)
        evidence = f"warps wait here for {line.barrier_waits:,} instructions, {cost:.0%} of the time of all warps"
        remedy = "Give the warps equal work before it, or let fewer of them meet."
        yield Hint("a barrier that everyone waits at", line, cost, evidence, remedy)
    if line.slow_paths:
        cost = _SLOW_PATH * line.slow_paths / (trace.instructions + _SLOW_PATH * trace.slow_paths)
        evidence = (
            f"{line.slow_paths:,} warp instructions have a lane with operands (zero, subnormal, infinite, near "
            f"overflow; integers of 2**32 and more) that call a subroutine, {cost:.0%} of the work"
        )
        remedy = "Skip such operands before, multiply by a reciprocal, or take an approximate or 32-bit division."
        yield Hint("slow paths of divisions and roots", line, cost, evidence, remedy)
    idle = 1 - line.active_lanes / 32
    if idle:
        cost = line.share * idle
        evidence = f"{line.active_lanes:.0f} of 32 lanes at work in {line.share:.0%} of the instructions"
        yield Hint("idle lanes", line, cost, evidence, "Spread the work over all lanes, or let whole warps skip it.")


def _of_kernel(trace: RunTotals, model: DeviceModel) -> Iterator[Hint]:
    if not trace.kernels:
        return
    kernel = trace.kernel
    if kernel.spill_bytes:
        evidence = f"{kernel.spill_bytes:,} bytes of each thread in local memory, with {kernel.registers} registers"
        yield Hint(
            "spilled registers", None, 1.0, evidence, "Keep less alive at a time: smaller tiles, less unrolling."
        )
    yield from _of_assembler(trace)
    yield from _of_buffers(trace)
    flight = _in_flight(trace, model)
    if flight is not None and flight[0] < _FEW * flight[1]:
        have, want, loads, blocks = flight
        times = "once" if loads == 1 else f"{loads:.3g} times"
        evidence = (
            f"{have / 1e3:.2g} kB of loads on their way per multiprocessor where {want / 1e3:.2g} kB keep the memory "
            f"of the {model.name} busy; {blocks:,} blocks, a warp waits {times} for loads"
        )
        remedy = "Have more loads under way before the first is used: unroll, wider vectors, cp.async, more warps."
        if blocks < model.multiprocessors:
            remedy = f"Make more blocks: {model.multiprocessors:.0f} multiprocessors have to share them."
        yield Hint("few bytes in flight", None, 1 - have / want, evidence, remedy)


def _of_accesses(trace: RunTotals) -> Iterator[Hint]:
    """Yield hints on atomics whose lanes meet, and on vectors of which a part is used."""
    lines = {(line.path, line.line): line for line in trace.lines}

    def line_of(facts: LineFacts) -> TracedLine | None:
        return lines.get(facts.place(inlined=False)) or lines.get(facts.place(inlined=True))

    for report, kernel in zip(trace.report.parts, trace.kernels, strict=True):
        for one in atomics_of(report, kernel):
            if one.lanes >= _CROWD and one.requests >= _RARE * trace.instructions:
                yield _of_atomic(one, line_of(one.facts), math.prod(report.grid), trace)
        for part in partly_used(report, kernel):
            used = ", ".join(f".{letter}" for letter in part.used)
            evidence = (
                f"of each vector of {part.elements} elements {used} {'is' if len(part.used) == 1 else 'are'} used. The "
                f"PTX counts one request of {part.facts.sectors_per_request:.3g} sectors; ptxas makes "
                + (f"{part.loads} loads" if part.loads > 1 else "a load")
                + f" of {part.bits // 8} bytes for each lane, with gaps: {part.loads * part.facts.requests:,} requests "
                f"of as many sectors"
            )
            remedy = "Keep the elements that are used together in arrays of their own (a structure of arrays)."
            cost = part.unused_bytes / trace.bytes_moved
            yield Hint("vectors used in part", line_of(part.facts), cost, evidence, remedy)


def _of_atomic(one: AtomicLine, line: TracedLine | None, blocks: int, trace: RunTotals) -> Hint:
    evidence = f"{one.lanes:.3g} lanes of a request meet at each address"
    if one.reduced:
        evidence += f"; ptxas lets each warp reduce their values first, so that {one.reached:,} operations reach memory"
        remedy = "Reduce in the block, in shared memory, so that one thread of each block adds."
        return Hint("atomics to one address", line, 1 - min(blocks / one.reached, 1), evidence, remedy)
    spared = one.operations - round(one.operations / one.lanes)
    evidence += f" and queue: {one.operations:,} operations, where one for each address and request would be "
    evidence += f"{one.operations - spared:,}"
    how = "__shfl_down_sync" if one.is_float else "__reduce_add_sync or __shfl_down_sync"
    remedy = f"Reduce in the warp first ({how}, cub::WarpReduce), then let one lane do the atomic."
    return Hint("atomics to one address", line, min(spared / trace.instructions, 1.0), evidence, remedy)


def _of_buffers(trace: RunTotals) -> Iterator[Hint]:
    """Yield a hint on each input whose last few elements no thread reads, in a run of one kernel."""
    if trace.report.sampled or len(trace.kernels) != 1:
        return
    for name, facts in inputs(trace.kernels[0], trace.report):
        count, first, last = facts.unread
        if not count or not facts.element or last + 1 != facts.size or last - first + 1 != count:
            continue
        if count <= LEAST * facts.size:
            evidence = f"{facts.unread_elements} of {name}, the last ones, are read by no thread"
            remedy = "If they are not padding: round the grid up, and let the bound be the number of elements."
            yield Hint("elements that no thread reads", None, count / facts.size, evidence, remedy)


def _of_assembler(trace: RunTotals) -> Iterator[Hint]:
    lines = {(line.path, line.line): line for line in trace.lines}
    for kernel in trace.kernels:
        grouped: dict[tuple[str, int, str], list[AssemblerRemark]] = {}
        for remark in kernel.remarks:
            grouped.setdefault((remark.source, remark.line or 0, remark.said), []).append(remark)
        for (source, number, *_), same in grouped.items():
            times = f", {len(same)} times" if len(same) > 1 else ""
            yield Hint("said by ptxas", lines.get((source, number)), 1.0, same[0].said + times, same[0].remedy)


def _in_flight(trace: RunTotals, model: DeviceModel) -> tuple[float, float, float, int] | None:
    """Return an SM's bytes of loads under way, the bytes by Little's law, a warp's dependent loads, and the blocks.

    The figures are those of the kernel that does the main work; all its warps are taken to have the same share of the
    loads. None where the kernel has no loads or not one block fits.
    """
    from workbench.analysis.prediction.chain import dependent_chain

    report = trace.report.parts[0]
    blocks = math.prod(report.grid)
    warps = blocks * -(-math.prod(report.block) // 32)
    loads = dependent_chain(report.lines, warps).global_loads
    if not loads or not trace.occupancy.blocks_per_sm:
        return None
    resident = min(trace.occupancy.warps_per_sm, warps / model.multiprocessors)
    have = resident * 32 * report.global_load_sectors / warps / loads
    want = model.dram_bytes_per_second * model.dram_latency_clocks / model.clock_hz / model.multiprocessors
    return have, want, loads, blocks
