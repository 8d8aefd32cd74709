"""The machine code of a kernel as basic blocks, and how long one warp takes through each of them.

``nvdisasm`` shows for each instruction what the assembler decided: how many clocks the warp waits before its next one,
which of six barriers an instruction of variable latency releases, and for which of them an instruction waits. (The
layout of these bits, the same from compute capability 7.0 to 9.0, is published in Jia et al., Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking, arXiv:1804.06826, section 2.1.) So the time of one warp alone follows
without a table of dependences: issue clocks, and what it waits for memory and for the units that answer late.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from workbench.toolchain.sass_counts import class_of

_PTX_LINE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt[^"]*", line (\d+)')
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)(?:\s+(.*?))?\s*;\s*/\*\s*(0x[0-9a-f]+)\s*\*/"
)
_SECOND_HALF = re.compile(r"^\s*/\*\s*(0x[0-9a-f]+)\s*\*/\s*$")
_LABEL = re.compile(r"^(\.L\w+|\$?[\w$.]+):")
_TARGET = re.compile(r"\((\.L\w+)\)")
_CONSTANT = re.compile(r"\bc\[")
_ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP", "JMX", "CALL", "BREAK")

GLOBAL = ("LDG", "LD", "ATOM", "ATOMG", "RED", "LDL", "TEX", "TLD", "LDGSTS", "LDGDEPBAR")
SHARED = ("LDS", "LDSM", "ATOMS", "SHFL", "LDC", "LDCU", "S2R", "S2UR")
"""Which instructions answer as late as memory, and as shared memory (a shuffle goes the same way); others that release
a barrier answer as the special functions do."""

WAITS = {"global": 400, "shared": 24, "special": 20}
"""Clocks for which the schedule is worked out: it says how many whole latencies a warp waits. What they are on a GPU
comes from its device model."""


@dataclass(frozen=True)
class Instruction:
    """One machine instruction. ``line`` is its line in the PTX (0: none is named), ``name`` its class (see `class_of`),
    ``base`` the class without widths, ``predicated`` whether it has a guard, ``constant`` whether an operand of it lies
    in constant memory; ``stall`` are the clocks before the next one, ``sets`` the barrier that it releases (7: none),
    ``waits`` a bit for each barrier that it waits for."""

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
    """Instructions that run one after the other. ``back_to`` is the earlier block to which its last branch may lead,
    ``over_to`` the later one (None: none); ``calls_rarely`` says that it calls a subroutine of the compiler for rare
    operands; ``clocks`` are the issue clocks of one warp, ``waited`` the latencies that it waits for, by kind."""

    instructions: list[Instruction] = field(default_factory=list)
    back_to: int | None = None
    over_to: int | None = None
    calls_rarely: bool = False
    clocks: float = 0.0
    waited: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        """Instructions by class."""
        return Counter(one.name for one in self.instructions)


@dataclass(frozen=True, slots=True)
class Placed:
    """An instruction where it stands: the place of the one that it names (from 0; None: none), and whether it calls a
    subroutine of the compiler for rare operands."""

    instruction: Instruction
    target: int | None = None
    calls_rarely: bool = False


def instruction_of(line: int, name: str, base: str, predicated: bool, constant: bool, control: int) -> Instruction:
    """An instruction with the schedule that its control bits hold, those from bit 105 of its encoding on."""
    return Instruction(line, name, base, predicated, constant, control & 15, control >> 5 & 7, control >> 11 & 63)


def blocks_of(text: str) -> list[Block]:
    """The basic blocks of one kernel in what ``nvdisasm -gp -hex`` prints, in order, with their schedule.

    What follows the kernel's own code (subroutines of the compiler for rare operands, padding) is left out.
    """
    return blocks_of_code(placed_in(text))


def placed_in(text: str) -> list[Placed]:
    """The instructions of one kernel in what ``nvdisasm -gp -hex`` prints, in order, without subroutines."""
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
            if match[1].startswith("$"):
                break  # a subroutine
            labels[match[1]] = len(rows)
    found = []
    for instruction, operands in rows:
        target = _TARGET.search(operands)
        rare = instruction.base == "CALL" and "$__internal" in operands
        found.append(Placed(instruction, labels.get(target[1]) if target else None, rare))
    return found


def blocks_of_code(code: Sequence[Placed]) -> list[Block]:
    """The basic blocks of a kernel's instructions, with their schedule."""
    begins = {one.target for one in code}
    blocks, places, targets = [Block()], {}, {}
    for at, one in enumerate(code):
        if at in begins:
            if blocks[-1].instructions:
                blocks.append(Block())
            places[at] = len(blocks) - 1
        base = one.instruction.base
        if base == "NOP" or (base == "BRA" and one.target == at):
            continue  # padding behind the end
        blocks[-1].instructions.append(one.instruction)
        if base in _ENDS:
            blocks[-1].calls_rarely = one.calls_rarely
            if base == "BRA" and one.target is not None:
                targets[len(blocks) - 1] = one.target
            blocks.append(Block())
    for at, target in targets.items():
        to = places.get(target)
        if to is not None:
            setattr(blocks[at], "back_to" if to <= at else "over_to", to)
    while blocks and not blocks[-1].instructions:
        blocks.pop()
    _schedule(blocks)
    return blocks


def kind_of(base: str) -> str:
    """What an instruction that releases a barrier answers like: "global", "shared" or "special"."""
    return "global" if base in GLOBAL else "shared" if base in SHARED else "special"


def _schedule(blocks: Sequence[Block]) -> None:
    """Go through the code once, through each loop twice; what holds of a block is its last time."""
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
