"""Least time of one warp, from the longest chain of dependent instructions through an executed kernel.

A roofline of throughputs says nothing about a kernel that has too few warps to hide latency. One warp needs at least
the longest chain of instructions in which each uses the result of the one before. It is found from the machine's
execution counts: PTX instructions that follow each other and ran equally often form a stretch, the longest path over
the registers is found within it, and stretches run one after the other.

Left out on purpose: values carried from one stretch to the next (loads issued a whole iteration ahead look exposed,
except ``cp.async``, whose waits say how many groups may still be in flight) and memory as a carrier of values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.base.trials.values import ChainSteps


# Relative weights only choose *which* path is the longest; its clocks come from a device model afterwards.
_GLOBAL, _SHARED, _ARITHMETIC = 470, 29, 4
# In units of the latency of one 32-bit operation; measured values for Ampere lie near these (abdelkhalik-2022).
_SPECIAL_UNITS, _TENSOR_UNITS = 5, 8

_INSTRUCTION = re.compile(r"(?:@!?(%[\w$]+)\s+)?([a-z][\w.:]*)\s*([^;]*)")
_REGISTER = re.compile(r"%[\w$]+(?:\.[xyz])?")
_WITHOUT_RESULT = {
    "st",
    "bar",
    "barrier",
    "bra",
    "brx",
    "ret",
    "exit",
    "red",
    "cp",
    "membar",
    "fence",
    "trap",
    "prefetch",
}
_SPECIAL = {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div"}
_WAIT = re.compile(r"cp\.async\.wait_group(?:\.sync\.aligned)?\s+(\d+)")


@dataclass(frozen=True)
class Chain:
    """Steps of the dependent chain that one warp goes through, on average over the warps of a launch."""

    global_loads: float = 0.0
    shared_accesses: float = 0.0
    arithmetic: float = 0.0
    barriers: float = 0.0

    def to_dict(self) -> ChainSteps:
        """Return the chain as a store keeps it, rounded to a thousandth."""
        return {
            "global_loads": round(self.global_loads, 3),
            "shared_accesses": round(self.shared_accesses, 3),
            "arithmetic": round(self.arithmetic, 3),
            "barriers": round(self.barriers, 3),
        }


def dependent_chain(lines: Iterable, warps: int) -> Chain:
    """Return the chain of a launch of ``warps`` warps.

    ``lines`` are those of a ``LaunchReport``; their ``text``, ``executions`` and ``ptx_line`` are read.
    """
    totals = [0.0, 0.0, 0.0, 0.0]
    stretch: list[tuple] = []
    times = 0
    for line in sorted(lines, key=lambda line: line.ptx_line):
        opcode = _INSTRUCTION.match(line.text.strip())
        if opcode is None or not line.executions:
            continue
        if stretch and line.executions != times:
            _add(totals, stretch, times)
            stretch = []
        stretch.append(opcode.groups())
        times = line.executions
        wait = _WAIT.search(line.text)
        if wait:
            totals[0] += times / (int(wait[1]) + 1)
        elif "cp.async.wait_all" in line.text:
            totals[0] += times
        if opcode[2].startswith(("bar.", "barrier.")):
            totals[3] += times
    if stretch:
        _add(totals, stretch, times)
    return Chain(*(total / max(warps, 1) for total in totals))


def _add(totals: list[float], stretch: list[tuple], times: int) -> None:
    """Add the longest path through a stretch of (guard, opcode, operands), run ``times`` times."""
    ready: dict[str, tuple] = {}
    start = (0, 0, 0, 0)
    longest = start
    for guard, opcode, operands in stretch:
        kind = opcode.split(".", 1)[0]
        results, sources = _registers(kind, operands)
        if guard:
            sources.append(guard)
        clocks, loads, shared, arithmetic = max((ready.get(name, start) for name in sources), default=start)
        step = _step(kind, opcode)
        end = (
            clocks + step[0] * _GLOBAL + step[1] * _SHARED + step[2] * _ARITHMETIC,
            loads + step[0],
            shared + step[1],
            arithmetic + step[2],
        )
        for name in results:
            ready[name] = end
        longest = max(longest, end)
    for at in range(3):
        totals[at] += longest[at + 1] * times


def _registers(kind: str, operands: str) -> tuple[list[str], list[str]]:
    if kind in _WITHOUT_RESULT:
        return [], _REGISTER.findall(operands)
    if operands.startswith("{"):
        cut = operands.find("}") + 1
    else:
        cut = operands.find(",")
        cut = len(operands) if cut < 0 else cut
    return _REGISTER.findall(operands[:cut]), _REGISTER.findall(operands[cut:])


def _step(kind: str, opcode: str) -> tuple[int, int, int]:
    """Return an instruction's part of its chain: (global loads, shared accesses, units of arithmetic latency)."""
    if kind in ("ld", "ldu", "atom"):
        if ".global" in opcode:
            return 1, 0, 0
        if ".shared" in opcode or ".local" in opcode:
            return 0, 1, 0
        return 0, 0, 1 if ".param" in opcode or ".const" in opcode else 2
    if kind in ("shfl", "ldmatrix", "vote", "match"):
        return 0, 1, 0
    if kind in ("mma", "wmma", "wgmma", "tcgen05"):
        return 0, 0, _TENSOR_UNITS
    if kind in _SPECIAL:
        return 0, 0, _SPECIAL_UNITS
    # A move or a conversion of address spaces is renamed away by the assembler.
    if kind in ("mov", "cvta") or kind in _WITHOUT_RESULT:
        return 0, 0, 0
    return 0, 0, 1
