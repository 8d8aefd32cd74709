"""Atomics on global memory whose lanes meet at one address, and the code that the compiler makes of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.ptx.report import LaunchReport, LineFacts
from workbench.toolchain.sass_counts import counts_by_ptx_line

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

_ATOMIC = re.compile(r"(?:@!?%\w+\s+)?(?:atom|red)\.[\w.:]*?\b(?P<type>[a-z]+)(?P<bits>\d+)(?P<pair>x2)?(?=\s)")
_IN_THE_WARP = (
    "REDUX",
    "POPC",
)  # by which ptxas reduces the operands of lanes at one address


@dataclass(frozen=True)
class AtomicLine:
    """One atomic instruction of a launch, summed over all warps.

    ``requests`` are warp instructions, ``operations`` those of their lanes, ``lanes`` how many of them meet at an
    address in a request, on average. ``reached`` are the operations that memory executes: of lanes that the compiler
    reduces in the warp first (``reduced``) one for each request.
    """

    facts: LineFacts
    is_float: bool
    requests: int
    operations: int
    lanes: float
    reduced: bool

    @property
    def reached(self) -> int:
        """Operations that memory executes."""
        return round(self.operations / self.lanes) if self.reduced else self.operations


def atomics_of(report: LaunchReport, kernel: CompiledKernel) -> Iterator[AtomicLine]:
    """Yield the atomics of a launch (with statistics) on global memory."""
    made: Mapping[int, Counter[str]] | None = None
    for facts in report.lines:
        found = _ATOMIC.match(facts.text) if facts.distinct_bytes and not facts.is_load and not facts.is_store else None
        if found is None:
            continue
        made = machine_code_by_ptx_line(kernel) if made is None else made
        classes = made.get(facts.ptx_line, Counter())
        size = int(found["bits"]) // 8 * (2 if found["pair"] else 1)
        operations = facts.bytes // size
        yield AtomicLine(
            facts, "f" in found["type"], facts.requests, operations, facts.bytes / facts.distinct_bytes,
            any(classes[name] for name in _IN_THE_WARP),
        )  # fmt: skip


def queue_of(report: LaunchReport, kernel: CompiledKernel) -> int:
    """Return how many operations of atomics wait at the busiest sector: all, if they spread evenly over the sectors.

    The sectors are those of buffers that the launch reads and writes, as atomics do.
    """
    reached = sum(one.reached for one in atomics_of(report, kernel))
    sectors = sum(min(one.read_unique, one.written_unique) for one in getattr(report, "buffers", ())) // 32
    return -(-reached // max(sectors, 1))


def machine_code_by_ptx_line(kernel: CompiledKernel) -> Mapping[int, Counter[str]]:
    """Return `counts_by_ptx_line`, or nothing without a disassembler or for code that the assembler refuses."""
    try:
        return counts_by_ptx_line(kernel)
    except WorkbenchError:
        return {}
