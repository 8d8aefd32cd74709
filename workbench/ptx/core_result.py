"""Result of a launch as the core returns it, bound to named fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from workbench.ptx.extents import Extent

_Text = bytes


@dataclass(frozen=True, slots=True)
class CoreFinding:
    """A problem that the core found, or one found in the code before the launch.

    ``problem`` is its name in the core, ``pc`` the instruction, ``block`` and ``thread`` the indices of its side.
    ``other_pc``, ``other_block`` and ``other_thread`` are the other side's; -1 if there is none. ``bytes`` is the size
    of the access at ``address``, ``count`` the number of occurrences. ``exchanged`` is True if the warp exchanged
    values between the two sides. ``least`` and ``most`` bound the addresses of all occurrences. ``extent`` is the
    extent that the access leaves.
    """

    problem: str
    pc: int
    other_pc: int
    block: int = 0
    thread: int = 0
    other_block: int = -1
    other_thread: int = -1
    address: int = 0
    bytes: int = 0
    count: int = 1
    exchanged: bool = False
    least: int = 0
    most: int = 0
    text: _Text = b""
    extent: Extent | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        """Instruction, block and thread of the problem."""
        return self.pc, self.block, self.thread


class CoreResult(NamedTuple):
    """Result of one launch on the core.

    ``fault`` is the problem that ended the launch, ``seconds`` the elapsed and ``cpu_seconds`` the processor time,
    ``threads`` the number of OS threads that ran blocks, ``sampled`` the warp instructions of each sampled block. The
    rest is raw. ``counts``, ``sectors``, ``again`` and ``unread`` need statistics; ``requests``, ``spans``, ``events``
    and ``truncated`` a recorded block; ``schedule`` a schedule (see `workbench.ptx.schedules.order_of`).
    """

    instructions: int
    thread_instructions: int
    sampled: Sequence[int]
    seconds: float
    threads: int
    timed_out: bool
    cpu_seconds: float
    idle: bool
    findings: Sequence[CoreFinding]
    footprint: Any
    shadow_bytes: int
    first_written: Sequence[int]
    accesses: bytes
    printed: bytes
    fault: CoreFinding | None
    counts: bytes = b""
    sectors: Sequence[tuple[int, ...]] = ()
    again: Sequence[bytes] = ()
    unread: Sequence[tuple[int, int, int]] = ()
    requests: bytes = b""
    spans: bytes = b""
    events: bytes = b""
    truncated: bool = False
    schedule: tuple[int, tuple[int, int, int], tuple[int, int, int]] | None = None


def with_findings(made: dict[str, Any]) -> dict[str, Any]:
    """Return the core's dict of a launch with `CoreFinding` in the place of the dicts of problems."""
    found, fault = made["findings"], made["fault"]
    return made | {"findings": [CoreFinding(**one) for one in found], "fault": fault and CoreFinding(**fault)}
