"""Totals of a trace, each beside the best value that it could have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.base.frames import data_frame
from workbench.base.tables import Table, Tabular
from workbench.errors import UnknownNameError

if TYPE_CHECKING:
    import pandas

    from workbench.analysis.totals import RunTotals
    from workbench.toolchain import CompiledKernel

OF_RUN = (
    "blocks that ran", "warp instructions", "active lanes", "global requests", "sectors per request", "bytes moved",
    "bytes used", "used fraction", "distinct bytes", "reuse", "reuse in blocks", "reuse between blocks",
    "bytes by bulk copies", "shared requests", "shared wavefronts", "barrier waits", "slow paths", "tensor products",
    "scale bytes", "tensor cores", "findings", "predicted µs",
)  # fmt: skip
"""Names of the facts of a run; those that do not apply are left out of a summary."""
OF_KERNEL = ("registers", "shared bytes", "blocks per multiprocessor", "occupancy")
"""Names of the facts of each kernel; where there are several, "of" and the kernel's name follow."""

_COLUMNS = ("fact", "value", "at best", "what it means")


@dataclass(frozen=True)
class Fact:
    """One total of a trace.

    ``best`` is its value if the same bytes were moved with nothing wasted, or None if there is no such bound.
    """

    name: str
    value: float
    best: float | None
    meaning: str
    form: str = ",.0f"

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Name, value, best value, and meaning, as the cells of a table."""
        best = "" if self.best is None else format(self.best, self.form)
        return self.name, format(self.value, self.form), best, self.meaning


@dataclass(frozen=True)
class Summary(Tabular):
    """Totals of a trace: ``facts`` has each one, ``brief`` sums them up in a few lines."""

    title: str
    facts: tuple[Fact, ...]
    brief: tuple[str, ...]

    def __getitem__(self, name: str) -> Fact:
        """Return the fact of that name; UnknownNameError lists the names there are."""
        facts = {fact.name: fact for fact in self.facts}
        if name not in facts:
            raise UnknownNameError("fact", repr(name), ", ".join(facts), "Facts that do not apply are not listed.")
        return facts[name]

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per fact, as a pandas DataFrame."""
        rows = [{"fact": f.name, "value": f.value, "at best": f.best, "what it means": f.meaning} for f in self.facts]
        return data_frame(rows)

    @property
    def headline(self) -> str:
        """The title of the trace."""
        return self.title

    def tables(self) -> list[Table]:
        """Return a table of one row per fact."""
        return [Table(_COLUMNS, [fact.texts for fact in self.facts], "lrrl", title=self.title)]

    def __repr__(self) -> str:
        return f"<summary of {self.title}: {len(self.facts)} facts>"


def summarise(trace: RunTotals) -> Summary:
    """Return the totals of a trace.

    Facts of global and shared memory appear only where the run touched them, those of barriers only where warps waited.
    """
    report = trace.report
    facts = [
        Fact("warp instructions", trace.instructions, None, "of the PTX; machine code may have more or fewer"),
        Fact("active lanes", trace.active_lanes, 32, "per warp instruction", ".1f"),
    ]
    if report.sampled and report.sampled.blocks < report.sampled.of:
        meaning = f"of {report.sampled.of:,}; counts are of these, the predicted time is of all"
        facts.insert(0, Fact("blocks that ran", report.sampled.blocks, None, meaning))
    brief = [f"{trace.instructions:,} warp instructions, {trace.active_lanes:.1f} of 32 lanes active"]
    if trace.global_requests:
        facts += _global(trace)
        between = f", for {trace.reuse_between_blocks:.1f} blocks" if trace.reuse_between_blocks else ""
        brief.append(
            f"global: {trace.global_requests:,} requests, {trace.sectors_per_request:.1f} sectors each (ideal "
            f"{trace.ideal_sectors_per_request:.1f}), {trace.used_fraction:.0%} of {trace.bytes_moved:,} bytes used; "
            f"{trace.unique_bytes:,} different bytes; the average one moves {trace.reuse:.1f} times{between}"
        )
    if trace.landed_bytes:
        filled, spared = trace.filled_bytes, trace.multicast_bytes
        facts.append(
            Fact(
                "bytes by bulk copies", trace.landed_bytes, trace.landed_bytes - filled,
                f"to shared memory: {filled:,} filled in outside the tensor, {spared:,} read for another block",
            )
        )  # fmt: skip
        brief.append(
            f"bulk copies: {trace.landed_bytes:,} bytes to shared memory, {filled:,} filled in outside the tensor, "
            f"{spared:,} by multicast"
        )
    if trace.shared_wavefronts:
        wavefronts, ideal = trace.shared_wavefronts, trace.shared_ideal_wavefronts
        facts.append(Fact("shared requests", trace.shared_requests, None, "warp requests to shared memory"))
        facts.append(Fact("shared wavefronts", wavefronts, ideal, "passes through the 32 banks"))
        brief.append(f"shared: {trace.shared_requests:,} requests, {wavefronts:,} wavefronts (ideal {ideal:,})")
    if trace.barrier_waits:
        facts.append(Fact("barrier waits", trace.barrier_waits, 0, "warp instructions spent waiting, all warps"))
        brief.append(f"barriers: {trace.barrier_waits:,} warp instructions of waiting")
    if trace.slow_paths:
        meaning = "divisions and roots, by warps, with operands that need the compiler's subroutine"
        facts.append(Fact("slow paths", trace.slow_paths, 0, meaning))
        brief.append(f"slow paths of divisions and roots: {trace.slow_paths:,}")
    if trace.products:
        facts.append(Fact("tensor products", trace.products, None, "multiply-adds of tcgen05.mma"))
        scales = f", {trace.scale_bytes:,} bytes of scales" if trace.scale_bytes else ""
        brief.append(f"tensor memory: {trace.products:,} multiply-adds{scales}")
    if trace.scale_bytes:
        facts.append(Fact("scale bytes", trace.scale_bytes, None, "scale factors that these read"))
    if report.has_checks:
        facts.append(Fact("findings", len(report.findings), 0, "of the checks; see report.findings"))
    brief.append(f"checks: {trace.checks_brief}")
    for kernel in trace.kernels:
        found, line = _resources(kernel, several=len(trace.kernels) > 1)
        facts += found
        brief.append(line)
    if trace.kernels and report.has_statistics:
        predicted = trace.prediction()
        meaning = f"on {predicted.device}, bound by {predicted.bound_by}; from the counts, not measured"
        facts.append(Fact("predicted µs", 1e6 * predicted.seconds, None, meaning, ".2f"))
        brief.append(str(predicted))
        if trace.products:
            share = predicted.parts.get("tensor", 0.0) / predicted.seconds
            meaning = f"of the busiest multiprocessor's throughput on {predicted.device} in that time"
            facts.append(Fact("tensor cores", share, 1, meaning, ".1%"))
            brief.append(f"tensor cores: {share:.1%} of their throughput in that time")
    return Summary(trace.title, tuple(facts), tuple(brief))


def _global(trace: RunTotals) -> list[Fact]:
    report = trace.report
    loads, stores = report.global_load_requests, report.global_store_requests
    atomics = trace.global_requests - loads - stores
    kinds = f"{loads:,} loads, {stores:,} stores" + (f", {atomics:,} atomics" if atomics else "")
    distinct = f"{report.unique_bytes_read:,} read, {report.unique_bytes_written:,} written: the least for DRAM"
    ideal = trace.ideal_sectors_per_request
    rows: tuple[tuple[str, float | None, float | None, str, str], ...] = (
        ("global requests", trace.global_requests, None, kinds, ",.0f"),
        ("sectors per request", trace.sectors_per_request, ideal, "of 32 bytes", ".2f"),
        ("bytes moved", trace.bytes_moved, 32 * trace.global_ideal_sectors, "32 for every sector of a request", ",.0f"),
        ("bytes used", trace.bytes_used, None, "that lanes asked for, each once per request", ",.0f"),
        ("used fraction", trace.used_fraction, 1.0, "bytes used of bytes moved", ".1%"),
        ("distinct bytes", trace.unique_bytes, None, distinct, ",.0f"),
        ("reuse", trace.reuse, None, "bytes moved for each distinct one: what the caches answer", ".2f"),
        ("reuse in blocks", trace.reuse_in_blocks, None, "times a block reads what it has read: L1", ".2f"),
        ("reuse between blocks", trace.reuse_between_blocks, None, "blocks that read the same byte: L2", ".2f"),
    )
    return [Fact(name, value, best, meaning, form) for name, value, best, meaning, form in rows if value is not None]


def _resources(kernel: CompiledKernel, several: bool) -> tuple[list[Fact], str]:
    """Return the static facts of one kernel, from its cubin, and a line that sums them up."""
    held = kernel.occupancy
    assert kernel.threads_per_block is not None  # else it has no occupancy
    shared = kernel.static_shared_bytes + kernel.dynamic_shared_bytes
    of = f" of {kernel.label}" if several else ""
    fits = ", ".join(f"{count} by {name}" for name, count in held.fits.items())
    facts = [
        Fact(f"registers{of}", kernel.registers, None, f"per thread; {kernel.spill_bytes} bytes spilled"),
        Fact(f"shared bytes{of}", shared, None, f"per block; {kernel.dynamic_shared_bytes:,} of them dynamic"),
        Fact(f"blocks per multiprocessor{of}", held.blocks_per_sm, None, f"on {kernel.arch}: {fits}"),
        Fact(f"occupancy{of}", held.fraction, 1.0, f"{held.warps_per_sm} warps, limited by {held.limited_by}", ".0%"),
    ]
    spilled = f", {kernel.spill_bytes:,} bytes spilled" if kernel.spill_bytes else ""
    line = (
        f"occupancy{of} on {kernel.arch}: {held.fraction:.0%}, {held.blocks_per_sm} blocks of "
        f"{-(-kernel.threads_per_block // 32)} warps, limited by {held.limited_by} ({kernel.registers} registers, "
        f"{shared:,} bytes shared{spilled})"
    )
    return facts, line
