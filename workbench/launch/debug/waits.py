"""Waits of a stopped launch: what its warps wait for, and which others could end the wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.launch.debug.code import KernelCode
from workbench.launch.debug.places import lane_ranges, lanes_of

_READY, _POLLED, _AT_BARRIER, _AT_COLLECTIVE = range(4)


@dataclass(frozen=True)
class WarpGroup:
    """Lanes of a warp that stand together before instruction ``pc``; ``waits`` says what for, "" if for nothing."""

    lanes: tuple[int, ...]
    pc: int
    place: str
    text: str
    waits: str = ""


@dataclass(frozen=True)
class WarpState:
    """A warp of a block: its groups of lanes, and the lanes that have ended."""

    warp: int
    groups: tuple[WarpGroup, ...]
    ended: tuple[int, ...]
    runs: bool = False

    def __str__(self) -> str:
        lines = [
            f"warp {self.warp}, lanes {lane_ranges(one.lanes)}: {one.place} {one.text}"
            + (f" ({one.waits})" if one.waits else " (runs)" if self.runs else "")
            for one in self.groups
        ]
        return "\n".join(lines) or f"warp {self.warp}: ended"


@dataclass(frozen=True)
class BarrierState:
    """A barrier at which threads have arrived: how many wait or have arrived of how many that it expects."""

    number: int
    waiting: int
    arrived: int
    expected: int


@dataclass(frozen=True)
class MbarrierState:
    """An mbarrier: arrivals and bytes that its phase still lacks, and bytes that are under way to it."""

    offset: int
    name: str
    missing_arrivals: int
    arrivals: int
    missing_bytes: int
    bytes_under_way: int
    parity: bool

    def __str__(self) -> str:
        lacks = [f"{self.missing_arrivals} of {self.arrivals} arrivals"] if self.missing_arrivals else []
        if self.missing_bytes != self.bytes_under_way:
            lacks.append(f"{self.missing_bytes} bytes, of which {self.bytes_under_way} come")
        return f"{self.name or f'the mbarrier at {self.offset}'} lacks {' and '.join(lacks) or 'nothing'}"


@dataclass(frozen=True)
class CopyState:
    """An asynchronous copy under way: the line that issued it, where it goes in shared memory, and how much."""

    kind: str
    place: str
    thread: int
    offset: int
    bytes: int
    group: int
    mbarrier: int


class WaitsOfBlock:
    """Warps, barriers, mbarriers and copies of one block."""

    def __init__(self, code: KernelCode, debugger: Any, block: int, name_of: Any):
        self.code, self.debugger, self.block, self._name_of = code, debugger, block, name_of

    @property
    def barriers(self) -> tuple[BarrierState, ...]:
        """Barriers at which threads have arrived."""
        return tuple(BarrierState(*row) for row in self.debugger.barriers(self.block))

    @property
    def copies(self) -> tuple[CopyState, ...]:
        """Copies under way."""
        rows = self.debugger.copies(self.block)
        return tuple(CopyState(kind, self.code.label(pc), *rest) for kind, pc, *rest in rows)

    def mbarrier(self, offset: int) -> MbarrierState | None:
        """Return the mbarrier at an offset of shared memory; None where there is none."""
        row = self.debugger.mbarrier(self.block, offset)
        return None if row is None else MbarrierState(offset, self._name_of(offset), *row)

    def mbarriers(self, shared_bytes: int) -> tuple[MbarrierState, ...]:
        """Return all mbarriers of the block."""
        found = (self.mbarrier(offset) for offset in range(0, shared_bytes - 7, 8))
        return tuple(one for one in found if one is not None)

    def warps(self, current: tuple[int, int, int, int] | None) -> tuple[WarpState, ...]:
        """Return the state of each warp; ``current`` is what runs: block, warp, pc and lanes."""
        states = []
        for number, (exist, exited, _, asked, splits) in enumerate(self.debugger.warps(self.block)):
            groups = [self._group(split, asked) for split in sorted(splits)]
            running = current is not None and current[:2] == (self.block, number)
            rest = exist & ~exited & ~sum(mask for _, mask, *_ in splits)
            if running and current is not None and rest:
                groups.insert(0, self._at(current[2], rest))
            states.append(WarpState(number, tuple(groups), lanes_of(exited), running))
        return tuple(states)

    def _at(self, pc: int, mask: int, waits: str = "") -> WarpGroup:
        return WarpGroup(lanes_of(mask), pc, self.code.label(pc), self.code.text_of(pc), waits)

    def _group(self, split: tuple[int, int, int, int], asked: int) -> WarpGroup:
        pc, mask, state, need = split
        if state == _AT_BARRIER:
            return self._at(pc, mask, f"waits at barrier {need}")
        if state == _AT_COLLECTIVE:
            return self._at(pc, mask, f"waits for lanes {lane_ranges(lanes_of(need & ~mask))} at a collective")
        if state == _POLLED:
            mbarrier = self.mbarrier(asked)
            return self._at(pc, mask, f"waits: {mbarrier}" if mbarrier else "waits for other warps")
        return self._at(pc, mask)

    def explained(self, current: tuple[int, int, int, int] | None) -> tuple[str, ...]:
        """Return a sentence for each group that waits: what for, and for whom."""
        warps = self.warps(current)
        barriers = {one.number: one for one in self.barriers}
        found = []
        for state in warps:
            for group in state.groups:
                if not group.waits:
                    continue
                who = f"warp {state.warp}, lanes {lane_ranges(group.lanes)}, {group.waits} at {group.place}"
                if "at barrier" in group.waits:
                    barrier = barriers[int(group.waits.rsplit(" ", 1)[1])]
                    arrived = barrier.waiting + barrier.arrived
                    who += f": {arrived} of {barrier.expected} threads have arrived; the others: "
                    who += _others(warps, group.waits)
                found.append(who)
        return tuple(found)


def _others(warps: Sequence[WarpState], waits: str) -> str:
    """Return where the lanes stand that do not wait for the same."""
    parts = [
        f"warp {state.warp}, lanes {lane_ranges(one.lanes)}, at {one.place}" + (f", {one.waits}" if one.waits else "")
        for state in warps
        for one in state.groups
        if one.waits != waits
    ]
    parts += [f"warp {state.warp}, lanes {lane_ranges(state.ended)}, have ended" for state in warps if state.ended]
    return "; ".join(parts) or "none is left"
