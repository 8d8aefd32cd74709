"""Places where a launch stands still."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.ptx.report import Finding

Status = Literal["stopped", "fault", "ended"]
Coordinates = tuple[int, int, int]


@dataclass(frozen=True)
class DebugPlace:
    """A place in the history of a launch: a warp is about to execute an instruction.

    ``index`` is the number of instructions that all warps have issued before. ``lanes`` are those that execute the
    instruction. ``file``, ``line`` and ``text`` are its source line (0 and "" where the compiler names none), ``ptx``
    and ``ptx_line`` the instruction. ``why`` says why the launch stands there, ``finding`` what checks found there or
    what ended the launch.
    """

    status: Status
    index: int
    why: str = ""
    block: Coordinates = (0, 0, 0)
    warp: int = -1
    lanes: tuple[int, ...] = ()
    pc: int = -1
    file: str = ""
    line: int = 0
    text: str = ""
    ptx: str = ""
    ptx_line: int = 0
    finding: Finding | None = None

    @property
    def name(self) -> str:
        """File and line, or the line in the PTX."""
        if self.line:
            return f"{Path(self.file).name}:{self.line}"
        return f"PTX line {self.ptx_line}" if self.ptx_line else ""

    def __str__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        if self.pc < 0:
            return f"{self.status} after {self.index:,} instructions{why}"
        who = f"block {self.block}, warp {self.warp}, lanes {lane_ranges(self.lanes)}"
        return f"{self.name}: {self.text or self.ptx}{why}\n  {self.ptx}\n  {who}, instruction {self.index:,}"


def lane_ranges(lanes: tuple[int, ...]) -> str:
    """Return "0-31" or "0, 4-7" for lanes; "none" without any."""
    parts: list[list[int]] = []
    for lane in lanes:
        if parts and lane == parts[-1][-1] + 1:
            parts[-1].append(lane)
        else:
            parts.append([lane])
    return ", ".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else str(one[0]) for one in parts) or "none"


def lanes_of(mask: int) -> tuple[int, ...]:
    """Return the lanes of a mask."""
    return tuple(lane for lane in range(32) if mask >> lane & 1)
