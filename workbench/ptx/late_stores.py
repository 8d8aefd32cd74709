"""Stores to global memory that other blocks may see late, in orders from seeds.

By the PTX memory model a weak store reaches other blocks at any time before the kernel ends, unless its thread, or one
that comes after it by a barrier, executes a fence or a release of device scope (PTX ISA, Memory Consistency Model).
Only blocks that talk to each other can tell: those of a kernel with atomics, or with volatile or other strong accesses.
In others every access of two blocks to one place is a race, and the order of the blocks alone shows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.ptx.instruction import InstructionStep

_STRONG = r"(volatile|relaxed|acquire|release|acq_rel|mmio)"
_MEETS = re.compile(rf"(atom|red)\b(?!.*\.shared)|(ld|st)\.(?!.*\.(shared|local|param)).*\b{_STRONG}\b")
_WEAK = re.compile(rf"st\.(?!(async|bulk)\b)(?!.*\.(shared|local|param))(?!.*\b{_STRONG}\b)")


def late_stores(code: Sequence[InstructionStep]) -> list[int]:
    """Return the indices of the stores that other blocks may see late; none if blocks do not talk to each other."""
    opcodes = [step.statement.opcode if step.statement is not None else "" for step in code]
    if not any(map(_MEETS.match, opcodes)):
        return []
    return [pc for pc, opcode in enumerate(opcodes) if _WEAK.match(opcode)]
