"""Slots of the register file: virtual registers whose lives do not overlap share one, so that a warp's registers stay
in the first caches.

A life is the span of the laid-out code from the first to the last point where the register is live. Lanes that
diverge do not disturb each other: a slot has its own place for every lane.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.ptx.flow import Block
from workbench.ptx.operands import Constant, DynamicShared, Frame, Operand, Register, Special

TRUE_SLOT = 0  # a predicate that always holds; the guard of unguarded instructions
_FIRST_FREE = 64
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Accesses:
    """Who reads and writes which register: arrays of equal length, in order of the pc, per kind of access."""

    read_pc: np.ndarray
    read: np.ndarray  # numbers of registers
    written_pc: np.ndarray
    written: np.ndarray
    kills: np.ndarray  # of the writes, those that happen in every lane: the instruction has no guard


def lives(
    blocks: list[Block], order: Sequence[int], accesses: Accesses, registers: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first and last time of every register, _NEVER and -1 if it does not occur. Instruction i reads at 2i and
    writes at 2i + 1."""
    first, last = np.full(registers, _NEVER), np.full(registers, -1)
    for number, time in ((accesses.read, 2 * accesses.read_pc), (accesses.written, 2 * accesses.written_pc + 1)):
        np.minimum.at(first, number, time)
        np.maximum.at(last, number, time)
    lengths = np.array([len(blocks[number].code) for number in order], np.int64)
    ends = np.cumsum(lengths)
    # What a block reads before it writes it comes from elsewhere; only such registers live across blocks.
    block_of = np.repeat(np.arange(len(order)), lengths)
    place, number, killed_place, killed = _exposed(block_of, accesses, registers)
    across, dense = np.unique(number, return_inverse=True)
    upward, kills = [0] * len(order), [0] * len(order)
    for at, bit in zip(place.tolist(), dense.tolist(), strict=True):
        upward[at] |= 1 << bit
    inside = np.isin(killed, across)
    for at, bit in zip(killed_place[inside].tolist(), np.searchsorted(across, killed[inside]).tolist(), strict=True):
        kills[at] |= 1 << bit
    live_in, live_out = _flow(blocks, order, upward, kills)
    # A register is also live from where a block takes it over to where the last one hands it on.
    entered, enters = _first_blocks(live_in)
    left, leaves = _first_blocks(live_out[::-1])
    np.minimum.at(first, across[entered], 2 * (ends - lengths)[enters])
    np.maximum.at(last, across[left], 2 * ends[::-1][leaves])
    return first, last


def _exposed(block_of: np.ndarray, accesses: Accesses, registers: int) -> tuple[np.ndarray, ...]:
    """(block, register) of what is read before it is written, and of what is written in every lane."""
    killed_pc = accesses.written_pc[accesses.kills]
    # One key per block and register; np.unique finds the first access of each.
    kills, at = np.unique(block_of[killed_pc] * registers + accesses.written[accesses.kills], return_index=True)
    reads, read_at = np.unique(block_of[accesses.read_pc] * registers + accesses.read, return_index=True)
    kill_pc = np.append(killed_pc[at], _NEVER)
    match = np.searchsorted(kills, reads)
    match[match == len(kills)] = -1
    is_killed = np.append(kills, -1)[match] == reads
    exposed = reads[~is_killed | (accesses.read_pc[read_at] <= kill_pc[match])]
    return exposed // registers, exposed % registers, kills // registers, kills % registers


def _flow(
    blocks: list[Block], order: Sequence[int], upward: list[int], kills: list[int]
) -> tuple[list[int], list[int]]:
    """What is live at the begin and at the end of every block, as bit masks, by place in the order."""
    place = {number: at for at, number in enumerate(order)}
    successors = [[place[following] for following in blocks[number].successors] for number in order]
    live_in, live_out = [0] * len(order), [0] * len(order)
    changed = True
    while changed:
        changed = False
        for at in range(len(order) - 1, -1, -1):
            out = 0
            for following in successors[at]:
                out |= live_in[following]
            live_out[at] = out
            entering = upward[at] | (out & ~kills[at])
            if entering != live_in[at]:
                live_in[at] = entering
                changed = True
    return live_in, live_out


def _first_blocks(masks: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Every bit that occurs, and the place of the first mask that has it."""
    bits, places, seen = [], [], 0
    for at, mask in enumerate(masks):
        mask &= ~seen
        seen |= mask
        while mask:
            low = mask & -mask
            bits.append(low.bit_length() - 1)
            places.append(at)
            mask ^= low
    return np.array(bits, np.int64), np.array(places, np.int64)


class Slots:
    """The offset of every operand in the register file."""

    def __init__(self) -> None:
        self.of: dict[Operand, int] = {}  # of all but registers
        self.size = _FIRST_FREE

    def take(self, operand: Operand) -> int:
        """The slot of a constant, a special register or the frame."""
        offset = self.of.get(operand)
        if offset is None:
            offset = self.of[operand] = self._take(operand.width)
        return offset

    @property
    def constants(self) -> list[tuple[Constant | DynamicShared, int]]:
        return [(operand, at) for operand, at in self.of.items() if isinstance(operand, Constant | DynamicShared)]

    @property
    def specials(self) -> list[tuple[Special, int]]:
        return [(operand, at) for operand, at in self.of.items() if isinstance(operand, Special)]

    @property
    def frame(self) -> int | None:
        return self.of.get(Frame())

    def registers(self, first: np.ndarray, last: np.ndarray, registers: list[Register]) -> np.ndarray:
        """Linear scan; returns the offset by register number (0 for registers that do not occur)."""
        offsets = [0] * len(registers)
        free: dict[int, list[int]] = {0: [], 2: [], 4: [], 8: []}
        active: list[tuple[int, int]] = []
        occurring = np.flatnonzero(last >= 0)
        occurring = occurring[np.argsort(first[occurring], kind="stable")]
        begins, ends = first[occurring].tolist(), last[occurring].tolist()
        for number, begin, end in zip(occurring.tolist(), begins, ends, strict=True):
            while active and active[0][0] < begin:
                ended = heapq.heappop(active)[1]
                free[registers[ended].width].append(offsets[ended])
            width = registers[number].width
            offsets[number] = free[width].pop() if free[width] else self._take(width)
            heapq.heappush(active, (end, number))
        return np.array(offsets, np.int32)

    def _take(self, width: int) -> int:
        # Predicates take 4 bytes, everything else whole cache lines.
        offset = self.size
        if width:
            offset = (offset + 63) // 64 * 64
            self.size = offset + 32 * max(width, 2)
        else:
            self.size = offset + 4
        return offset
