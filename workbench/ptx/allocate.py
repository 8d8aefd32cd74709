"""Slots of the register file: virtual registers whose lives do not overlap share a slot.

Sharing keeps a warp's registers in the processor's first caches. A life is the span of the laid-out code from the first
to the last point where the register is live: see core/registers.hpp. Lanes that diverge do not disturb each other,
because a slot has a place for every lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.ptx.flow import BasicBlock
from workbench.ptx.machine import core
from workbench.ptx.operands import Constant, DynamicShared, Frame, Operand, Register, Special

_FIRST_FREE = 64  # behind the predicate that always holds, which has a cache line of its own


@dataclass(frozen=True, slots=True)
class Accesses:
    """Reads and writes of registers: for each kind of access arrays of equal length, in order of the pc."""

    read_pc: np.ndarray
    read: np.ndarray  # numbers of registers
    written_pc: np.ndarray
    written: np.ndarray
    kills: np.ndarray  # True for writes that happen in every lane: the instruction has no guard


class Slots:
    """Offsets of operands in the register file."""

    def __init__(self) -> None:
        self.of: dict[Operand, int] = {}  # of all operands but registers
        self.size = _FIRST_FREE

    def take(self, operand: Operand) -> int:
        """Return the slot of a constant, a special register or the frame; allocate it on first use."""
        offset = self.of.get(operand)
        if offset is None:
            offset, self.size = core.take_slot(operand.width, self.size)
            self.of[operand] = offset
        return offset

    @property
    def constants(self) -> list[tuple[Constant | DynamicShared, int]]:
        """Constants that a launch fills in before it begins, each with its offset."""
        return [(operand, at) for operand, at in self.of.items() if isinstance(operand, Constant | DynamicShared)]

    @property
    def specials(self) -> list[tuple[Special, int]]:
        """Special registers that the kernel reads, each with its offset."""
        return [(operand, at) for operand, at in self.of.items() if isinstance(operand, Special)]

    @property
    def frame(self) -> int | None:
        """Offset of the frame; None if the kernel calls no function."""
        return self.of.get(Frame())

    def registers(
        self, blocks: list[BasicBlock], order: Sequence[int], accesses: Accesses, registers: list[Register]
    ) -> np.ndarray:
        """Allocate registers; return the offset of each by its number, 0 for registers that do not occur.

        ``order`` is the order in which the blocks are laid out.
        """
        widths = [register.width for register in registers]
        offsets, self.size = core.allocate(*_for_core(blocks, order, accesses), widths, self.size)
        return np.frombuffer(offsets, np.int32)


def lives(
    blocks: list[BasicBlock], order: Sequence[int], accesses: Accesses, registers: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last point where each register is live, by its number."""
    first, last = core.lives(*_for_core(blocks, order, accesses), registers)
    return np.frombuffer(first, np.int64), np.frombuffer(last, np.int64)


def _for_core(blocks: list[BasicBlock], order: Sequence[int], accesses: Accesses) -> tuple[Any, ...]:
    """Return lengths and successors of the blocks in their order, and the accesses as bytes."""
    place = {number: at for at, number in enumerate(order)}
    successors = [[place[following] for following in blocks[number].successors] for number in order]
    pcs = (accesses.read_pc, accesses.read, accesses.written_pc, accesses.written, accesses.kills)
    return [len(blocks[number].code) for number in order], successors, *(each.tobytes() for each in pcs)
