"""Stores that others may see late in orders from seeds: in global memory other blocks, in shared memory other warps.

By the PTX memory model a weak store reaches other blocks at any time before the kernel ends, unless its thread, or one
that comes after it by a barrier, executes a fence or a release of device scope; other warps of its block, unless it
executes a barrier, or a fence or a release of any scope (PTX ISA, Memory Consistency Model). Only threads that talk to
each other by that memory can tell: with atomics, volatile or other strong accesses. Otherwise every access of two of
them to one place is a race, and their order alone shows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.ptx.instruction import InstructionStep

_STRONG = r"(volatile|relaxed|acquire|release|acq_rel|mmio)"
_MEETS = re.compile(rf"(atom|red)\b|(ld|st)\.(?!.*\.(local|param)).*\b{_STRONG}\b")
_WEAK = re.compile(rf"st\.(?!(async|bulk)\b)(?!.*\.(local|param))(?!.*\b{_STRONG}\b)")
_SHARED = ".shared"


def late_stores(code: Sequence[InstructionStep]) -> list[int]:
    """Return the stores, by index, that others may see late, in each memory by which threads talk to each other."""
    opcodes = [step.statement.opcode if step.statement is not None else "" for step in code]
    shared = {_SHARED in opcode for opcode in opcodes if _MEETS.match(opcode)}
    return [pc for pc, opcode in enumerate(opcodes) if _WEAK.match(opcode) and (_SHARED in opcode) in shared]
