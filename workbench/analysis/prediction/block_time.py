"""Time of a block whose warps wait for each other at mbarriers, and of a launch of such blocks.

The recording of a block has the steps of its warps and the warps they waited for. The machine code says how long the
steps take: the clocks and latencies of the assembler's schedule, and the units that an instruction keeps busy. Warps
share the units of their scheduler; all warps of a block share the tensor cores and the path that brings them bytes.
The figures are a device model's. Left out: instruction fetch and the start of a block.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workbench.analysis.device_models import DeviceModel
from workbench.analysis.prediction.machine_counts import Lines, executed, pipe_of
from workbench.toolchain.sass_flow import Block, Instruction, kind_of

if TYPE_CHECKING:
    from workbench.base.trials.values import PipelineCounts
    from workbench.ptx.recording import RecordedParts, Recording

_WARP = 32
_APART = 1 << 20  # more than the offset of any mbarrier
_SPECIAL_LATENCY = 20
"""Clocks until a special function or a conversion answers (abdelkhalik-2022: MUFU and F2I, 18 to 23)."""

_UNITS = {
    "issue": "issue_slots",
    "fma": "fp32_lanes",
    "alu": "integer_lanes",
    "fp16": "fp16_lanes",
    "fp64": "fp64_lanes",
    "special": "special_lanes",
    "memory": "memory_lanes",
}
"""Units of a scheduler, each with the `DeviceModel` figure that says how much of it a multiprocessor has."""

_LABEL, _BRANCH = re.compile(r"\s*(\$?[\w$]+):"), re.compile(r"\bbra(?:\.uni)?\s+(\$?[\w$]+)")


class CodeRates:
    """Rates of a kernel's instructions on a multiprocessor, as `Recording.pipeline` wants them.

    Args:
        blocks: the machine code.
        lines: the executed lines of the PTX.
        ptx: the text of the PTX.
        model: the GPU.
    """

    schedulers = 4

    def __init__(self, blocks: Sequence[Block], lines: Lines, ptx: str, model: DeviceModel):
        self.copy_bytes = model.l2_bytes_per_clock_sm
        clocks, busy = defaultdict[int, float](float), defaultdict[int, list[float]](lambda: [0.0] * len(_UNITS))
        for block, times, calling in executed(blocks, lines):
            for one, passed, taken in self._timed(block, model):
                line = calling or one.line
                clocks[line] += times * passed
                for unit, cycles in taken.items():
                    busy[line][unit] += times * cycles
        self._lines = sorted(lines)
        self._sums = [(0.0,) * (len(_UNITS) + 2)]
        for line in self._lines:
            row = lines[line].executions, clocks[line], *busy[line]
            self._sums.append(tuple(before + now for before, now in zip(self._sums[-1], row, strict=True)))
        self._loops = sorted(_loops(ptx), key=lambda loop: loop[1] - loop[0])

    def stretch(self, before: int, line: int, instructions: int) -> tuple[float, Sequence[float]]:
        """Return mean clocks and unit cycles of the instructions between PTX lines (`workbench.ptx.pipeline.Rates`)."""
        parts = [(before + 1, line or self._lines[-1])]
        if line and line <= before:  # around a loop
            first, last = next(
                ((low, high) for low, high in self._loops if low <= line and before <= high), (line, before)
            )
            parts = [(before + 1, last), (first, line)]
        executed, clocks, *busy = (sum(each) for each in zip(*map(self._between, parts), strict=True))
        if not executed:
            return float(instructions), ()
        share = instructions / executed
        return clocks * share, [cycles * share for cycles in busy]

    def _between(self, part: tuple[int, int]) -> tuple[float, ...]:
        low, high = self._sums[bisect_left(self._lines, part[0])], self._sums[bisect_right(self._lines, part[1])]
        return tuple(max(0.0, b - a) for a, b in zip(low, high, strict=True))

    def _timed(self, block: Block, model: DeviceModel) -> Iterator[tuple[Instruction, float, Mapping[int, float]]]:
        """Yield each instruction with its clocks after the one before, and the cycles that it keeps units busy.

        The clocks are those of one warp that runs alone. The warp waits for a unit that its own instructions keep busy.
        """
        waits = {
            "global": model.l2_latency_clocks,
            "shared": model.shared_latency_clocks,
            "special": _SPECIAL_LATENCY,
        }
        places, now, free, ready = list(_UNITS), 0.0, [0.0] * len(_UNITS), [0.0] * 6
        cycles = [self.schedulers / model.issue_slots]
        cycles += [self.schedulers * _WARP / getattr(model, figure) for figure in list(_UNITS.values())[1:]]
        for one in block.instructions:
            begun, pipe = now, pipe_of(one.base)
            taken = {0: cycles[0]}
            if pipe in _UNITS:
                at = places.index(pipe)
                taken[at] = cycles[places.index("alu") if pipe == "fma" and one.base.startswith("I") else at]
                now = max(now, free[at])
                free[at] = now + taken[at]
            now = max([now, *(ready[barrier] for barrier in range(6) if one.waits >> barrier & 1)])
            if one.sets < 6:
                ready[one.sets] = max(ready[one.sets], now + waits[kind_of(one.base)])
            now += max(one.stall, 1)
            yield one, now - begun, taken


def _loops(ptx: str) -> list[tuple[int, int]]:
    """Return the (first, last) PTX line of each loop, found by its backward branch."""
    labels, found = {}, []
    for number, text in enumerate(ptx.splitlines(), 1):
        label, branch = _LABEL.match(text), _BRANCH.search(text)
        if label:
            labels[label[1]] = number
        if branch and branch[1] in labels:
            found.append((labels[branch[1]], number))
    return found


def pipeline_counts(
    parts: RecordedParts,
    grid: Sequence[int],
    instructions: float,
    rates: CodeRates,
    model: DeviceModel,
    resident: int,
) -> PipelineCounts:
    """Return the plain numbers that a prediction needs of the recorded blocks of a launch.

    Args:
        parts: the `RecordedParts` of the launch.
        grid: its blocks along x, y and z.
        instructions: mean warp instructions of a block; recorded blocks with fewer count for more.
        rates: rates of the kernel's code on the model.
        model: the GPU; copies have the latency of its DRAM.
        resident: blocks that a multiprocessor holds; each recorded block is timed among as many copies of itself.
    """
    latency, beside = (
        math.ceil(model.dram_latency_clocks),
        min(resident, -(-math.prod(grid) // int(model.multiprocessors))),
    )
    share = instructions * len(parts.instructions) / sum(parts.instructions)
    clocks = [round(share * _together(one, beside).pipeline(latency, rates).end) for one in parts.recordings]
    return {"clocks": clocks, "cut": list(parts.cut), "grid": list(grid)}


def _together(recording: Recording, count: int) -> Recording:
    """Return a recording of ``count`` copies of the block as one block, each copy with its own warps and mbarriers."""
    warps = -(-recording.warps // CodeRates.schedulers) * CodeRates.schedulers
    events = [
        replace(event, warp=event.warp + copy * warps, at=event.at + copy * _APART)
        for copy in range(count)
        for event in recording.events
        if event.warp >= 0
    ]
    return replace(recording, warps=count * warps, events=tuple(events), mbarriers={}) if count > 1 else recording


def launch_clocks(pipeline: PipelineCounts, at_once: int) -> float:
    """Return the clocks of a launch with these `pipeline_counts`.

    Each block takes as long as the block that was recorded in its part of the grid. Blocks begin in the order of the
    grid, each as soon as one of ``at_once`` places is free.
    """
    x, y, z = (np.arange(size) * cut // size for size, cut in zip(pipeline["grid"], pipeline["cut"], strict=True))
    part = (z[:, None, None] * pipeline["cut"][1] + y[:, None]) * pipeline["cut"][0] + x
    each = np.array(pipeline["clocks"], float)[part.ravel()]
    places = [0.0] * min(at_once, len(each))
    for clocks in each.tolist():
        heapq.heapreplace(places, places[0] + clocks)
    return max(places)
