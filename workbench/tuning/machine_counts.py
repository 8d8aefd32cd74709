"""How often the machine code of a kernel ran, from how often its PTX did: instructions by pipe, and the time of a warp.

The PTX machine counts executions of each line of the PTX, and the assembler says which line each instruction is of. A
block of machine code ran as often as what the assembler can neither move out of it nor run for nothing: the branch at
its end, else a store or a barrier in it; where a loop's body was copied (unrolling), divided by the copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from workbench.toolchain.sass_counts import ALU
from workbench.toolchain.sass_flow import WAITS, Block

_FMA = frozenset({"FFMA", "FADD", "FMUL", "FFMA32I", "FMUL32I", "FADD32I", "FSWZADD"})
_HEAVY = frozenset({"IMAD", "IMUL", "IDP", "IDP4A"})
_HALF = frozenset({"HADD2", "HFMA2", "HMUL2", "HSET2", "HSETP2", "HMNMX2"})
_DOUBLE = frozenset({"DADD", "DFMA", "DMUL", "DSETP"})
_SPECIAL = frozenset({"MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV", "FCHK"})
_TENSOR = frozenset({"HMMA", "IMMA", "DMMA", "QMMA", "BMMA"})
_MEMORY = ("LD", "ST", "ATOM", "RED", "SHFL")
_ENDS = ("BRA", "EXIT")
_FIXED = ("ST", "BAR", "ATOM", "RED")
_COPIED = ("LDG", "LDS", "STG", "STS", "HMMA", "FFMA")
"""Of which the assembler makes one for each in the PTX."""


def pipe_of(base: str) -> str:
    """The unit that executes a SASS instruction: "fma", "alu", "fp16", "fp64", "special", "tensor", "memory" or ""."""
    if base in _FMA or base in _HEAVY:
        return "fma"
    if base in ALU:
        return "alu"
    if base in _HALF:
        return "fp16"
    if base in _DOUBLE:
        return "fp64"
    if base in _SPECIAL:
        return "special"
    if base in _TENSOR:
        return "tensor"
    return "memory" if base.startswith(_MEMORY) else ""


def machine_counts(blocks: Sequence[Block], executions: Mapping[int, float], warps: float) -> dict:
    """Of a launch: warp instructions, those of each pipe, and the mean time of its warps.

    Args:
        blocks: the kernel's machine code.
        executions: warp instructions by line of the PTX.
        warps: that ran.

    Returns:
        ``"instructions"``; ``"local_bytes"`` moved for spills and for arrays of a thread; ``"pipes"``, instructions by
        `pipe_of` ("heavy" are those of "fma" that multiply integers or have an operand in constant memory); of one warp
        ``"clocks"`` in which it issues and ``"waits"``, the latencies that it waits for, by kind.
    """
    pipes: Counter[str] = Counter()
    total = clocks = local = 0.0
    waits = dict.fromkeys(WAITS, 0.0)
    for block, times in zip(blocks, block_executions(blocks, executions), strict=True):
        total += times * len(block.instructions)
        clocks += times * block.clocks
        for kind in waits:
            waits[kind] += times * block.waited[kind]
        for one in block.instructions:
            pipe = pipe_of(one.base)
            pipes[pipe] += times
            if one.base in ("LDL", "STL"):
                local += times * 32 * int(one.name.split(".")[1]) // 8
            if pipe == "fma" and (one.constant or one.base in _HEAVY):
                pipes["heavy"] += times
    del pipes[""]
    return {
        "instructions": round(total),
        "pipes": {name: round(count) for name, count in pipes.items() if count},
        "local_bytes": round(local),
        "clocks": clocks / warps,
        "waits": {kind: count / warps for kind, count in waits.items()},
    }


def block_executions(blocks: Sequence[Block], executions: Mapping[int, float]) -> list[float]:
    """How often each block ran, in warp instructions."""
    found, before = [], 0.0
    for block in blocks:
        if block.instructions[-1].base == "CALL":
            found.append(0.0)  # to a subroutine of the compiler for rare operands
            continue
        times = _executions(block, executions)
        before = before if times is None else times
        found.append(before)
    return found


def _executions(block: Block, executions: Mapping[int, float]) -> float | None:
    known = [one for one in block.instructions if one.line in executions]
    if not known:
        return None
    fixed = [one for one in known if one.base in _ENDS or (one.base.startswith(_FIXED) and not one.predicated)]
    if not fixed:
        return float(np.median([executions[one.line] for one in known]))
    copies = Counter((one.line, one.name) for one in known if one.base.startswith(_COPIED))
    return executions[fixed[-1].line] / (float(np.median(list(copies.values()))) if copies else 1.0)
