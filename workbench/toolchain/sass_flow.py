"""Basic blocks of a kernel's machine code, and the time that one warp takes through each of them.

The encoding that ``nvdisasm`` shows holds the assembler's schedule: the clocks that the warp waits before its next
instruction, which of six barriers an instruction of variable latency releases, and the barriers for which an
instruction waits. (The layout of these bits, the same from compute capability 7.0 to 9.0, is published in Jia et al.,
Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, arXiv:1804.06826, section 2.1.) So the time of a
single warp follows without a table of dependences: issue clocks, and waits for memory and other units of variable
latency.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from workbench.toolchain.sass_counts import class_of

_PTX_LINE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt[^"]*", line (\d+)')
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)(?:\s+(.*?))?\s*;\s*/\*\s*(0x[0-9a-f]+)\s*\*/"
)
_SECOND_HALF = re.compile(r"^\s*/\*\s*(0x[0-9a-f]+)\s*\*/\s*$")
_LABEL = re.compile(r"^(\.L\w+|\$?[\w$.]+):")
_TARGET = re.compile(r"\(((?:\.L|\$)[\w$.]+)\)")
_CONSTANT = re.compile(r"\bc\[")
_ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP", "JMX", "CALL", "BREAK")
_OF_THE_COMPILER = "$__internal"
_COLLECTIVE = "sync"
"""Part of the names of subroutines for collectives of diverged lanes, such as cuda_sm70_shflsync_bfly_p."""
_PASSES = 64

GLOBAL = ("LDG", "LD", "ATOM", "ATOMG", "RED", "LDL", "TEX", "TLD", "LDGSTS", "LDGDEPBAR")
SHARED = ("LDS", "LDSM", "ATOMS", "SHFL", "LDC", "LDCU", "S2R", "S2UR")
"""Instructions with the latency of memory, and with that of shared memory (a shuffle uses the same path); all others
that release a barrier have the latency of special functions."""

WAITS = {"global": 400, "shared": 24, "special": 20}
"""Nominal latencies in clocks with which the schedule is computed: it yields how many latencies of each kind a warp
waits for. Their real length on a GPU comes from its device model."""


@dataclass(frozen=True)
class Instruction:
    """One machine instruction with its schedule.

    ``line`` is its line in the PTX (0 if none is named), ``name`` its class (see `class_of`), ``base`` the class
    without widths. ``predicated`` is True if it has a guard, ``constant`` if an operand lies in constant memory.
    ``stall`` are the clocks before the next instruction, ``sets`` is the barrier that it releases (7: none), ``waits``
    has a bit for each barrier that it waits for.
    """

    line: int
    name: str
    base: str
    predicated: bool
    constant: bool
    stall: int
    sets: int
    waits: int


@dataclass
class Block:
    """A basic block: instructions that run one after the other.

    ``back_to`` is the number of the earlier block to which its last branch may lead, ``over_to`` that of the later one
    (or None). ``calls`` are the blocks of the compiler's subroutine that it calls at its end, such as the slow path of
    a division, each with its runs per call (see `_walked`). ``parted`` is True if only warps with diverged lanes reach
    it, to call a collective. ``clocks`` are the issue clocks of one warp, ``waited`` the number of latencies that it
    waits for, by kind.
    """

    instructions: list[Instruction] = field(default_factory=list)
    back_to: int | None = None
    over_to: int | None = None
    calls: Sequence[tuple[Block, float]] = ()
    parted: bool = False
    clocks: float = 0.0
    waited: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        """Number of instructions in each class."""
        return Counter(one.name for one in self.instructions)


class Placed(NamedTuple):
    """An instruction of a kernel, and the index of the instruction that it branches to or calls (None: none)."""

    instruction: Instruction
    target: int | None = None


class Code(NamedTuple):
    """Instructions of a kernel in order, and the names of the subroutines behind it by the index of their first one."""

    placed: list[Placed]
    routines: Mapping[int, str]


def instruction_of(line: int, name: str, base: str, predicated: bool, constant: bool, control: int) -> Instruction:
    """Return an instruction with its schedule decoded from ``control``, the encoding's bits from 105 on."""
    return Instruction(line, name, base, predicated, constant, control & 15, control >> 5 & 7, control >> 11 & 63)


def blocks_of(text: str) -> list[Block]:
    """Return the scheduled basic blocks, in order, of one kernel in what ``nvdisasm -gp -hex`` prints.

    Blocks of called functions follow the kernel's own; the compiler's subroutines are in the ``calls`` of the blocks
    that call them. Padding is left out.
    """
    return blocks_of_code(code_in(text))


def code_in(text: str) -> Code:
    """Parse the instructions of one kernel from what ``nvdisasm -gp -hex`` prints."""
    rows: list[tuple[Instruction, str]] = []
    labels: dict[str, int] = {}
    line, half = 0, None
    for row in text.splitlines():
        if half is not None and (second := _SECOND_HALF.match(row)):
            guard, mnemonic, operands, base = half
            half = None
            predicated, constant = bool(guard) and guard != "@PT", bool(_CONSTANT.search(operands)) and base != "LDC"
            control = int(second[1], 16) >> 41
            rows.append((instruction_of(line, class_of(mnemonic), base, predicated, constant, control), operands))
        elif match := _PTX_LINE.match(row):
            line = int(match[1])
        elif match := _INSTRUCTION.match(row):
            half = match[1] or "", match[2], match[3] or "", match[2].split(".")[0]
        elif match := _LABEL.match(row):
            labels[match[1]] = len(rows)
    found = []
    for instruction, operands in rows:
        target = _TARGET.search(operands)
        found.append(Placed(instruction, labels.get(target[1]) if target else None))
    return Code(found, {at: name for name, at in labels.items() if name.startswith("$")})


def blocks_of_code(code: Code) -> list[Block]:
    """Split a kernel's instructions into basic blocks, and compute their schedule."""
    starts = [0, *sorted(at for at in code.routines if at)]
    parts: dict[int, list[tuple[int, Placed]]] = {0: []}
    for start, end in zip(starts, [*starts[1:], len(code.placed)], strict=True):
        apart = code.routines.get(start, "").startswith(_OF_THE_COMPILER)
        parts.setdefault(start if apart else 0, []).extend(enumerate(code.placed[start:end], start))
    own = parts.pop(0)
    collectives = {start for start in parts if _COLLECTIVE in code.routines[start]}
    called = {start: [] if start in collectives else _walked(_blocks(rows, {})) for start, rows in parts.items()}
    return _blocks(own, called)


def _blocks(rows: Sequence[tuple[int, Placed]], called: Mapping[int, Sequence[tuple[Block, float]]]) -> list[Block]:
    """Split instructions, given with their indices, into scheduled basic blocks.

    ``called`` holds the compiler's subroutines by the index of their first instruction.
    """
    begins = {one.target for _, one in rows}
    blocks, places, targets = [Block()], {}, {}
    for at, one in rows:
        if at in begins:
            if blocks[-1].instructions:
                blocks.append(Block())
            places[at] = len(blocks) - 1
        base = one.instruction.base
        if base == "NOP" or (base == "BRA" and one.target == at):
            continue  # padding behind the end
        blocks[-1].instructions.append(one.instruction)
        if base in _ENDS:
            if base == "BRA" and one.target is not None:
                targets[len(blocks) - 1] = one.target
            elif base == "CALL" and one.target is not None:
                blocks[-1].calls = called.get(one.target, ())
                blocks[-1].parted = one.target in called and not blocks[-1].calls
            blocks.append(Block())
    for at, target in targets.items():
        to = places.get(target)
        if to is not None:
            setattr(blocks[at], "back_to" if to <= at else "over_to", to)
    while blocks and not blocks[-1].instructions:
        blocks.pop()
    _schedule(blocks)
    return blocks


def _walked(blocks: Sequence[Block]) -> list[tuple[Block, float]]:
    """Return the blocks of a subroutine, each with its expected runs per call.

    The way that an operand takes is not known statically, so a branch with a guard counts as taken every second time.
    """
    at_once, shares = [1.0, *(0.0 for _ in blocks[1:])], [0.0 for _ in blocks]
    for _ in range(_PASSES):
        after = [0.0 for _ in blocks]
        for at, (block, share) in enumerate(zip(blocks, at_once, strict=True)):
            shares[at] += share
            last = block.instructions[-1]
            to = block.over_to if block.back_to is None else block.back_to
            taken = 0.0 if to is None else share / 2 if last.predicated else share
            if to is not None:
                after[to] += taken
            if at + 1 < len(blocks) and last.base not in ("RET", "EXIT"):
                after[at + 1] += share - taken
        at_once = after
        if not any(at_once):
            break
    return list(zip(blocks, shares, strict=True))


def kind_of(base: str) -> str:
    """Return the kind of latency of an instruction that releases a barrier: "global", "shared" or "special"."""
    return "global" if base in GLOBAL else "shared" if base in SHARED else "special"


def _schedule(blocks: Sequence[Block]) -> None:
    """Walk through the code once, and through each loop twice; a block keeps the times of its last visit."""
    now, ready = 0.0, [(0.0, "special")] * 6
    taken: set[int] = set()
    at = 0
    while at < len(blocks):
        block = blocks[at]
        began, waited = now, dict.fromkeys(WAITS, 0.0)
        for one in block.instructions:
            for barrier in range(6):
                if one.waits >> barrier & 1 and ready[barrier][0] > now:
                    waited[ready[barrier][1]] += ready[barrier][0] - now
                    now = ready[barrier][0]
            if one.sets < 6:
                kind = kind_of(one.base)
                ready[one.sets] = max(ready[one.sets], (now + WAITS[kind], kind))
            now += max(one.stall, 1)
        block.waited = {kind: clocks / WAITS[kind] for kind, clocks in waited.items()}
        block.clocks = now - began - sum(waited.values())
        if block.back_to is not None and at not in taken:
            taken.add(at)
            at = block.back_to
        else:
            at += 1
