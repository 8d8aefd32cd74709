"""The instructions at which orders are aimed: both sides of each pair of accesses that a checked run found unordered.

An order that is aimed lets warps wait before one of these instructions until all others have run as far ahead as their
barriers allow, so that the two accesses come in the other order, or far apart. Where the race is between lanes of a
warp, some of its lanes wait, until the others have to wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.ptx.naming import SCOPES
from workbench.ptx.report import Finding

if TYPE_CHECKING:
    from workbench.ptx.kernel import DecodedKernel

Aim = tuple[int, int]
"""The index of an instruction, and between whom its race is: 0 lanes of a warp, 1 warps of a block, 2 blocks."""

_MOST = 8
_PARTS = 4
"""Choices of the warps or lanes that wait at an instruction (core/schedule.hpp)."""
_KINDS = frozenset(
    (
        "shared race",
        "warp race",
        "global race",
        "uninitialised shared read",
        "volatile access without __syncwarp",
        "cp.async data read before wait",
        "write to shared memory that is being read",
    )
)
_BETWEEN = {scope: number for number, scope in enumerate(reversed(SCOPES))}


def aims_of(kernel: DecodedKernel, findings: Sequence[Finding]) -> list[Aim]:
    """Return the instructions that findings of a checked run name as sides of a race, without repetition."""
    wanted: dict[tuple[int, int], None] = {}
    for one in findings:
        if one.kind in _KINDS:
            for line in (one.ptx_line, one.other_ptx_line):
                if line:
                    wanted[line, _BETWEEN[one.scope]] = None
    if not wanted:
        return []
    places: dict[int, int] = {}
    for pc, step in enumerate(kernel.decoded.code):
        if step.statement is not None:
            places.setdefault(step.statement.line, pc)
    return [(places[line], between) for line, between in wanted if line in places][:_MOST]


def aimed(seed: int, aims: Sequence[Aim]) -> Sequence[Aim]:
    """Return the aims of the order of a seed: the first seeds take each part of each aim, the others are at random."""
    return aims if seed < _PARTS * len(aims) else ()
