"""Counts of a launch that a prediction needs, as plain numbers, from what the PTX machine reports of it.

They do not depend on the figures of a GPU, except for recorded blocks, which are timed on one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from workbench.analysis.atomics import queue_of
from workbench.analysis.device_models import DeviceModel
from workbench.analysis.prediction.block_time import CodeRates, pipeline_counts
from workbench.analysis.prediction.chain import dependent_chain
from workbench.analysis.prediction.machine_counts import Lines, Ran, machine_counts
from workbench.analysis.prediction.tensor_flops import flop_counts
from workbench.errors import MissingToolError
from workbench.toolchain import CompiledKernel, sass_codes, sass_flow
from workbench.toolchain.occupancy import occupancy

if TYPE_CHECKING:
    from workbench.base.trials.values import Counts, MachineCounts
    from workbench.ptx import LaunchReport

_SECTOR = 32
_WARP = 32


def counts_of(report: LaunchReport, kernels: Sequence[CompiledKernel], model: DeviceModel) -> Counts:
    """Return the plain numbers that a prediction needs of a run, as a store can keep them.

    ``report`` is a ``LaunchReport`` with statistics, ``kernels`` the ``CompiledKernel`` of each launch in it. For
    several launches the counts are sums, and ``"parts"`` has those of each launch. Clocks of recorded blocks are those
    on GPUs of the ``model``'s architecture.
    """
    if len(kernels) == 1:
        return launch_counts(report, kernels[0], model=model)
    counts = _ptx_counts(report, kernels[0], *_extent(report))
    counts["parts"] = [launch_counts(part, kernel) for part, kernel in zip(report.parts, kernels, strict=True)]
    counts["tensor_flops"] = sum(part["tensor_flops"] for part in counts["parts"])
    return counts


def launch_counts(
    report: LaunchReport,
    kernel: CompiledKernel,
    *,
    block_threads: int | None = None,
    grid_blocks: int | None = None,
    copies: int = 1,
    model: DeviceModel | None = None,
) -> Counts:
    """Return `counts_of` for one launch.

    ``block_threads`` and ``grid_blocks`` replace the report's own block and grid, if it was taken with others. If a
    sample of the blocks ran, the counts are scaled to all of them. With ``copies`` they are those of a launch of as
    many times the blocks, which do the same work on as much more memory, such as further sequences of a batch. With a
    ``model``, recorded blocks are timed, and the bytes that blocks share are taken from the blocks that ran, as a
    sample of those that run at the same time.
    """
    *_, scale, warps = extent = _extent(report, block_threads, grid_blocks, copies)
    counts = _ptx_counts(report, kernel, *extent, copies)
    parts = getattr(report, "parts_recorded", None)
    whole = parts if parts is not None and not any(one.truncated for one in parts.recordings) else None
    if whole is not None and model and (code := _machine_code(kernel)):
        rates = CodeRates(code, _executed(report), kernel.ptx, model)
        resident = occupancy(model.arch, extent[0], counts["registers"], counts["shared_bytes"]).blocks_per_sm
        mean = report.instructions / (report.blocks_run or extent[1])
        counts["pipeline"] = pipeline_counts(whole, report.grid, mean, rates, model, max(resident, 1))
        counts["sharing"] = _sharing(report)
    machine = machine_counts_of(report, kernel, warps)
    if report.sampled is not None:
        counts["sample"] = report.sampled.to_dict()
    if waiting := queue_of(report, kernel):
        counts["atomic_queue"] = round(scale * waiting)
    if machine is not None:
        machine["instructions"] = round(scale * machine["instructions"])
        machine["local_bytes"] = round(scale * machine["local_bytes"])
        machine["pipes"] = {name: round(scale * count) for name, count in machine["pipes"].items()}
        counts["machine"] = machine
    return counts


def _extent(
    report: LaunchReport, threads: int | None = None, blocks: int | None = None, copies: int = 1
) -> tuple[int, int, float, int]:
    """Return the threads of a block, the blocks, how many blocks each executed one stands for, and executed warps."""
    given = blocks is not None
    threads = math.prod(_tuple(report.block)) if threads is None else threads
    blocks = math.prod(_tuple(report.grid)) if blocks is None else blocks
    run = getattr(report, "blocks_run", 0) or blocks
    blocks *= copies
    scale = blocks / run if run < blocks and not given else 1
    return threads, blocks, scale, (run if scale > 1 else blocks) * -(-threads // _WARP)


def _ptx_counts(
    report: LaunchReport, kernel: CompiledKernel, threads: int, blocks: int, scale: float, warps: int, copies: int = 1
) -> Counts:
    """Return the `launch_counts` that need no machine code."""
    return {
        "grid_blocks": blocks,
        "block_threads": threads,
        "registers": kernel.registers,
        "shared_bytes": kernel.static_shared_bytes + kernel.dynamic_shared_bytes,
        "spill_bytes": kernel.spill_bytes,
        "stack_bytes": getattr(kernel, "stack_bytes", 0),
        "warp_instructions": round(scale * report.instructions),
        "thread_instructions": round(scale * report.thread_instructions),
        "mix": {name: round(scale * count) for name, count in report.mix.items() if count},
        "global_load_requests": round(scale * report.global_load_requests),
        "global_load_sectors": round(scale * report.global_load_sectors),
        "global_store_requests": round(scale * report.global_store_requests),
        "global_store_sectors": round(scale * report.global_store_sectors),
        "global_bytes_requested": round(scale * report.global_bytes_requested),
        "shared_requests": round(scale * report.shared_requests),
        "shared_wavefronts": round(scale * report.shared_wavefronts),
        "shared_ideal_wavefronts": round(scale * report.shared_ideal_wavefronts),
        "shared_conflicts": round(scale * report.shared_conflicts),
        "operand_wavefronts": round(scale * report.operand_wavefronts),
        **_bytes(report, scale, copies),
        **flop_counts(report.lines, scale),
        "chain": dependent_chain(report.lines, warps).to_dict(),
    }


def _bytes(report: LaunchReport, scale: float, copies: int) -> Counts:
    """Return global bytes that blocks read and write: distinct in the launch, distinct per block, and read again."""
    buffers = getattr(report, "buffers", ())
    read: float = report.unique_bytes_read
    written: float = report.unique_bytes_written
    if scale > 1:  # blocks that did not run read other bytes, but no more than there are
        sizes = [copies * _up(one.size, _SECTOR) for one in buffers]
        read = sum(min(scale * one.read_unique, size) for one, size in zip(buffers, sizes, strict=True))
        written = sum(min(scale * one.written_unique, size) for one, size in zip(buffers, sizes, strict=True))
    found: Counts = {"unique_bytes_read": round(read), "unique_bytes_written": round(written)}
    if buffers:
        again = [round(scale * sum(each)) for each in zip_longest(*(one.read_again for one in buffers), fillvalue=0)]
        found["block_bytes_read"] = round(scale * sum(one.read_by_blocks for one in buffers))
        found["read_again"] = again
    return found


def _sharing(report: LaunchReport) -> float:
    """Return the exponent by which blocks share reads: n blocks read n ** (1 - exponent) times one block's bytes."""
    blocks, each = report.blocks_run, sum(one.read_by_blocks for one in report.buffers)
    together = sum(one.read_unique for one in report.buffers)
    return math.log(each / together) / math.log(blocks) if blocks > 1 and together else 0.0


def machine_counts_of(report: LaunchReport, kernel: CompiledKernel, warps: float) -> MachineCounts | None:
    """Return `machine_counts` of a launch of ``warps`` warps, or None if the kernel has no readable machine code."""
    blocks = _machine_code(kernel)
    return machine_counts(blocks, _executed(report), warps) if blocks else None


def _machine_code(kernel: CompiledKernel) -> Sequence[sass_flow.SassBlock] | None:
    if getattr(kernel, "assembly", None) is None:
        return None
    try:
        return _blocks_of(kernel)
    except MissingToolError:
        return None


def _executed(report: LaunchReport) -> Lines:
    lines: dict[int, Ran] = {}
    for line in report.lines:
        opcode = re.sub(r"^@\S+\s+", "", line.text.strip()).split(".")[0].split()[0].rstrip(";")
        before = lines.get(line.ptx_line, Ran())
        lines[line.ptx_line] = Ran(opcode, max(before.executions, line.executions), before.slow_paths + line.slow_paths)
    return lines


@lru_cache(maxsize=64)
def _blocks_of(kernel: CompiledKernel) -> Sequence[sass_flow.SassBlock]:
    """Return the basic blocks of a kernel, cached: a client of the driver may have every launch of a loop timed."""
    return sass_codes.blocks_of_kernel(kernel)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _tuple(extent: int | tuple[int, ...]) -> tuple[int, ...]:
    return extent if isinstance(extent, tuple) else (extent,)
