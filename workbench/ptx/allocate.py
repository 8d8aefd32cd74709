"""Slots of the register file: virtual registers whose lives do not overlap share one, so that a warp's registers stay
in the first caches.

A life is the span of the laid-out code from the first to the last point where the register is live. Lanes that
diverge do not disturb each other: a slot has its own place for every lane.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from workbench.ptx.flow import Block
from workbench.ptx.instruction import Instruction
from workbench.ptx.operands import Constant, DynamicShared, Frame, Register, Special

TRUE_SLOT = 0  # a predicate that always holds; the guard of unguarded instructions
_FIRST_FREE = 64


def _uses(instruction: Instruction) -> list[Register]:
    destinations = instruction.destinations
    used = [
        operand
        for operand in instruction.slots.values()
        if type(operand) is Register and (operand not in destinations or _reads_too(instruction, operand))
    ]
    if instruction.guard is not None:
        used.append(instruction.guard)
    return used


def _reads_too(instruction: Instruction, register: Register) -> bool:
    """A register that is both destination and source occurs in more slots than destinations."""
    slots = sum(1 for operand in instruction.slots.values() if operand is register)
    return slots > sum(1 for each in instruction.destinations if each is register)


def lives(blocks: list[Block], order: Sequence[int], registers: list[Register]) -> dict[int, list[int]]:
    """``[first, last]`` of every register that occurs, by number. Instruction i reads at 2i and writes at 2i + 1."""
    uses_of: dict[int, list[list[Register]]] = {}
    upward: dict[int, int] = {}
    killed: dict[int, int] = {}
    for number in order:
        use_mask = kill_mask = 0
        rows = []
        for instruction in blocks[number].code:
            used = _uses(instruction)
            rows.append(used)
            for register in used:
                bit = 1 << register.number
                if not kill_mask & bit:
                    use_mask |= bit
            if instruction.guard is None:
                for register in instruction.destinations:
                    kill_mask |= 1 << register.number
        uses_of[number], upward[number], killed[number] = rows, use_mask, kill_mask
    live_in = dict.fromkeys(order, 0)
    live_out = dict.fromkeys(order, 0)
    changed = True
    while changed:
        changed = False
        for number in reversed(order):
            out = 0
            for following in blocks[number].successors:
                out |= live_in[following]
            live_out[number] = out
            entering = upward[number] | (out & ~killed[number])
            if entering != live_in[number]:
                live_in[number] = entering
                changed = True
    return _spans(blocks, order, uses_of, live_in, live_out)


def _spans(
    blocks: list[Block],
    order: Sequence[int],
    uses_of: dict[int, list[list[Register]]],
    live_in: dict[int, int],
    live_out: dict[int, int],
) -> dict[int, list[int]]:
    spans: dict[int, list[int]] = {}
    position, borders, seen = 0, [], 0
    for number in order:
        start = position
        for register in _bits(live_in[number] & ~seen):
            spans.setdefault(register, [2 * start, 2 * start])
        seen |= live_in[number]
        for instruction, used in zip(blocks[number].code, uses_of[number], strict=True):
            for register in used:
                span = spans.setdefault(register.number, [2 * position, 2 * position])
                span[1] = 2 * position
            for register in instruction.destinations:
                span = spans.setdefault(register.number, [2 * position + 1, 2 * position + 1])
                span[1] = 2 * position + 1
            position += 1
        borders.append((number, position))
    seen = 0
    for number, end in reversed(borders):
        for register in _bits(live_out[number] & ~seen):
            span = spans[register]
            span[1] = max(span[1], 2 * end)
        seen |= live_out[number]
    return spans


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


class Slots:
    """The offset of every operand in the register file."""

    def __init__(self) -> None:
        self.of: dict[object, int] = {}
        self.size = _FIRST_FREE
        self.constants: list[tuple[Constant | DynamicShared, int]] = []
        self.specials: list[tuple[Special, int]] = []

    def constant(self, operand: Constant | DynamicShared) -> int:
        offset = self.of.get(operand)
        if offset is None:
            offset = self.of[operand] = self._take(operand.width)
            self.constants.append((operand, offset))
        return offset

    def special(self, operand: Special) -> int:
        offset = self.of.get(operand)
        if offset is None:
            offset = self.of[operand] = self._take(4)
            self.specials.append((operand, offset))
        return offset

    def frame(self, operand: Frame) -> int:
        offset = self.of.get(operand)
        if offset is None:
            offset = self.of[operand] = self._take(operand.width)
        return offset

    def registers(self, spans: dict[int, list[int]], registers: list[Register]) -> list[int]:
        """Linear scan; returns the offset by register number (0 for registers that do not occur)."""
        offsets = [0] * len(registers)
        free: dict[int, list[int]] = {0: [], 2: [], 4: [], 8: []}
        active: list[tuple[int, int]] = []
        for number, (first, last) in sorted(spans.items(), key=lambda item: (item[1][0], item[0])):
            while active and active[0][0] < first:
                ended = heapq.heappop(active)[1]
                free[registers[ended].width].append(offsets[ended])
            width = registers[number].width
            offsets[number] = free[width].pop() if free[width] else self._take(width)
            heapq.heappush(active, (last, number))
        return offsets

    def _take(self, width: int) -> int:
        # Predicates take 4 bytes, everything else whole cache lines.
        offset = self.size
        if width:
            offset = (offset + 63) // 64 * 64
            self.size = offset + 32 * max(width, 2)
        else:
            self.size = offset + 4
        return offset
