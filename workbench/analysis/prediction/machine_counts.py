"""Counts of executed machine instructions by pipe, and the time of a warp, from the execution counts of the PTX.

The PTX machine counts executions of each line of the PTX, and the assembler says which line each instruction comes
from. Instructions that the assembler can neither drop, nor move, nor execute speculatively (accesses to memory,
barriers, branches) ran as often as their line, all copies together. Where it copied code, as it does with loops, that
is one equation for several basic blocks. Least squares over all equations give how often each block ran.

A division calls a subroutine of the compiler for rare operands, such as zeros. The PTX machine counts the warps that
need it. Their path through it is not known, so each branch in it counts as taken every second time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench.toolchain.sass_counts import ALU
from workbench.toolchain.sass_flow import WAITS, SassBlock, SassInstruction

if TYPE_CHECKING:
    from workbench.base.trials.values import MachineCounts

_FMA = frozenset({"FFMA", "FADD", "FMUL", "FFMA32I", "FMUL32I", "FADD32I", "FSWZADD"})
_HEAVY = frozenset({"IMAD", "IMUL", "IDP", "IDP4A"})
_HALF = frozenset({"HADD2", "HFMA2", "HMUL2", "HSET2", "HSETP2", "HMNMX2"})
_DOUBLE = frozenset({"DADD", "DFMA", "DMUL", "DSETP"})
_SPECIAL = frozenset({"MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV", "FCHK"})
_TENSOR = frozenset({"HMMA", "IMMA", "DMMA", "QMMA", "BMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA"}) | {
    "OMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA",  # 4 bits, and by tensor memory
}  # fmt: skip
_MEMORY = ("LD", "ST", "ATOM", "RED", "SHFL")
_FIXED = ("LDG", "LDS", "STG", "STS", "ATOM", "RED", "BAR", "HMMA", "IMMA", "DMMA", "HGMMA", "IGMMA", "QGMMA")
_BRANCHES = {"BRA": "bra", "EXIT": "ret"}
_ROUNDS = 200


def pipe_of(base: str) -> str:
    """Return the unit of a SASS instruction: "fma", "alu", "fp16", "fp64", "special", "tensor", "memory" or ""."""
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


class Ran(NamedTuple):
    """Executions of one PTX line.

    ``opcode`` is its instruction, such as "fma". ``executions`` counts warp instructions, ``slow_paths`` those in which
    a lane needed the compiler's subroutine for rare operands.
    """

    opcode: str = ""
    executions: float = 0.0
    slow_paths: float = 0.0


Lines = Mapping[int, Ran]
"""Executions by PTX line; lines that never ran may be missing."""

_NEVER = Ran()


def machine_counts(blocks: Sequence[SassBlock], lines: Lines, warps: float) -> MachineCounts:
    """Count a launch's warp instructions in machine code, in total and by pipe, and the mean time of its warps.

    Args:
        blocks: the kernel's machine code.
        lines: the executed lines of the PTX.
        warps: number of warps that ran.

    Returns:
        ``"instructions"``; ``"local_bytes"``, moved for spills and for arrays of a thread; ``"pipes"``, instructions by
        `pipe_of` ("heavy" are those of "fma" that multiply integers or have an operand in constant memory); and for one
        warp the ``"clocks"`` in which it issues, and ``"waits"``, the latencies that it waits for, by kind.
    """
    pipes: defaultdict[str, float] = defaultdict(float)
    total = clocks = local = 0.0
    waits = dict.fromkeys(WAITS, 0.0)
    for block, times, _ in executed(blocks, lines):
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
    pipes.pop("", None)
    return {
        "instructions": round(total),
        "pipes": {name: round(count) for name, count in pipes.items() if count},
        "local_bytes": round(local),
        "clocks": clocks / warps,
        "waits": {kind: count / warps for kind, count in waits.items()},
    }


def executed(blocks: Sequence[SassBlock], lines: Lines) -> Iterator[tuple[SassBlock, float, int]]:
    """Yield each block with its executions in warp instructions, and 0 or the PTX line that called it.

    Blocks of the compiler's subroutines come once for each call, with the PTX line of that call.
    """
    for block, times in zip(blocks, block_executions(blocks, lines), strict=True):
        yield block, times, 0
        if times:
            for inside, share in block.calls:
                yield inside, times * share, block.instructions[-1].line


def block_executions(blocks: Sequence[SassBlock], lines: Lines) -> list[float]:
    """Return how often each block ran, in warp instructions."""
    like, rare = _alike(blocks)
    equations: dict[tuple[int, str], np.ndarray] = {}
    for at, block in enumerate(blocks):
        for one in block.instructions:
            if _is_fixed(one, lines):
                equations.setdefault((one.line, one.base), np.zeros(len(blocks)))[like[at]] += 1
    found = np.zeros(len(blocks))
    if equations:
        copies = np.array(list(equations.values()))
        times = np.array([lines.get(line, _NEVER).executions for line, _ in equations], float)
        found = _least_squares(copies, times)
        known = np.asarray(copies.any(axis=0))
    else:
        known = np.zeros(len(blocks), bool)
    found, known = found[like], known[like]
    before = 0.0
    for at, block in enumerate(blocks):
        if at in rare or block.parted:
            found[at] = 0.0
        elif known[at]:
            before = found[at]
        elif like[at] != at:
            found[at] = before = found[like[at]]
        else:
            ran = [lines.get(one.line, _NEVER).executions for one in block.instructions if one.line]
            found[at] = before = float(np.median(ran)) if ran else before
    _share_slow_paths(blocks, lines, rare, found)
    return found.tolist()


def _alike(blocks: Sequence[SassBlock]) -> tuple[np.ndarray, dict[int, tuple[int, int]]]:
    """Return for each block the first that runs as often, and the blocks that run only for rare operands.

    The latter come with the block that decides on them and the block that calls the subroutine. A branch over a call is
    taken except for rare operands, so the block it leaves and the block it leads to run equally often. A branch to a
    call that nothing else leads to is not taken except for rare operands.
    """
    like, rare = np.arange(len(blocks)), dict[int, tuple[int, int]]()
    for at, block in enumerate(blocks):
        to = block.over_to
        if to is None or not block.instructions[-1].predicated:
            continue
        if blocks[at + 1].calls:
            rare.update(dict.fromkeys(range(at + 1, to), (at, at + 1)))
            like[to] = like[at]
        elif blocks[to].calls and _ends(blocks[to - 1]):
            rare[to] = at, to
            like[at + 1] = like[at]
    return like, rare


def _ends(block: SassBlock) -> bool:
    """Return True if the block never falls through to the next one."""
    last = block.instructions[-1]
    return last.base in ("BRA", "EXIT", "RET") and not last.predicated


def _share_slow_paths(
    blocks: Sequence[SassBlock], lines: Lines, rare: Mapping[int, tuple[int, int]], found: np.ndarray
) -> None:
    """Set the executions of the blocks that run for rare operands.

    They are the slow paths of their PTX line, shared by all copies of its call in proportion to how often each is
    reached.
    """
    come: defaultdict[int, float] = defaultdict(float)
    for decides, calls in set(rare.values()):
        come[blocks[calls].instructions[-1].line] += found[decides]
    for at, (decides, calls) in rare.items():
        line = blocks[calls].instructions[-1].line
        if come[line]:
            found[at] = lines.get(line, _NEVER).slow_paths * found[decides] / come[line]


def _is_fixed(one: SassInstruction, lines: Lines) -> bool:
    if one.base in _BRANCHES:
        return one.line > 0 and lines.get(one.line, _NEVER).opcode in ("", _BRANCHES[one.base])
    return one.base.startswith(_FIXED) and not one.predicated and one.line > 0


def _least_squares(copies: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Solve copies [equations, blocks] x = times for x >= 0 by least squares, each equation relative to its size."""
    weights = 1 / np.maximum(times, 1)
    a, b = copies * weights[:, None], times * weights
    square, right = a.T @ a, a.T @ b
    found = np.zeros(copies.shape[1])
    for _ in range(_ROUNDS):  # coordinate descent
        before = found.copy()
        for at in np.flatnonzero(square.diagonal()):
            found[at] = max(0.0, found[at] + (right[at] - square[at] @ found) / square[at, at])
        if np.allclose(found, before, rtol=1e-9):
            break
    return found
