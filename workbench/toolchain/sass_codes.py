"""Machine code read without a disassembler, by what it said of the same instructions before.

``nvdisasm`` works for a fifth of a second before its first line, whatever it reads, and a tuning run asks for the
schedule of hundreds of kernels. The lowest 12 of an instruction's 128 bits say what it does and where its operands lie,
nine from bit 72 on how wide a load or a store is, and which special function is meant (the schedule:
:mod:`workbench.toolchain.sass_flow`). What ``nvdisasm`` calls each is kept by architecture, on disk too; a kernel with
an instruction that nobody has met goes through ``nvdisasm``, and its text is learned from. Kinds of instructions for
which that shows anything else than is read here are not read any more.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench.base.home import cache_folder
from workbench.toolchain import disassembly, disk_cache, sass
from workbench.toolchain.cubin import INSTRUCTION_BYTES, Cubin
from workbench.toolchain.sass_flow import Block, Code, Instruction, Placed, blocks_of_code, code_in, instruction_of

if TYPE_CHECKING:
    from workbench.toolchain.kernel import CompiledKernel

_UNPREDICATED = 7
_WHATEVER = 1 << 21
"""In the place of the nine bits, where they do not change what an instruction is called."""
_BY_TABLE = ("BRX", "JMX", "BRXU")
"""Where these lead to stands in a table."""


class Kind(NamedTuple):
    """What instructions of one kind have alike: class, base, whether an operand lies in constant memory, and in what
    form they name a place in the code (0: they name none)."""

    name: str
    base: str
    constant: bool
    form: int


class _Known:
    """The kinds of an architecture's instructions by the bits that tell; None for one that is not read."""

    def __init__(self, arch: str):
        self._key = disk_cache.content_key(["kinds of machine code", arch])
        self._lock = threading.Lock()
        self.kinds = self._stored()

    def learn(self, found: dict[int, Kind | None]) -> None:
        """Keep what was found; a kind that is known as another one is read no more."""
        with self._lock:
            known = self._stored()
            for bits, kind in (*self.kinds.items(), *found.items()):
                known[bits] = kind if known.get(bits, kind) == kind else None
            if known != self.kinds:
                self.kinds = known
                rows = {str(bits): kind for bits, kind in known.items()}
                disk_cache.store(self._key, {"kinds": json.dumps(rows).encode()})

    def _stored(self) -> dict[int, Kind | None]:
        kept = disk_cache.load(self._key)
        rows = json.loads(kept["kinds"]) if kept else {}
        return {int(bits): None if row is None else Kind(*row) for bits, row in rows.items()}


@functools.cache
def _known_of(arch: str, folder: Path) -> _Known:
    """What is kept of an architecture in a folder of the cache."""
    return _Known(arch)


def blocks_of_kernel(kernel: CompiledKernel) -> list[Block]:
    """The basic blocks of a kernel with their schedule, as `workbench.toolchain.sass_flow.blocks_of` gives them.

    Raises MissingToolError where it has no machine code, or has instructions that need nvdisasm and there is none.
    """
    if kernel.cubin is None:
        raise sass.no_machine_code(kernel.label)
    known, cubin = _known_of(kernel.arch, cache_folder()), Cubin(kernel.cubin)
    read = _read(cubin, kernel.name, known.kinds)
    if read is None:
        shown = code_in(disassembly.disassemble_with_schedule(kernel))
        known.learn(_learned(cubin, kernel.name, shown))
        return blocks_of_code(shown)
    return blocks_of_code(read)


def _bits(code: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The lower and upper halves of each instruction, and the bits that say its kind."""
    low, high = np.frombuffer(code, "<u8").reshape(-1, 2).T
    return low, high, low & 0xFFF | (high >> 8 & 0x1FF) << 12


def _telling(bits: int, made: Instruction) -> int:
    """Those of the bits of an instruction that its kind goes by."""
    return bits if made.name != made.base else bits & 0xFFF | _WHATEVER


def _read(cubin: Cubin, kernel: str, kinds: Mapping[int, Kind | None]) -> Code | None:
    """A kernel's instructions; None where one is of no known kind."""
    low, high, bits = _bits(cubin.code(kernel))
    each, which = np.unique(bits, return_inverse=True)
    of_bits = [kinds.get(one & 0xFFF | _WHATEVER) or kinds.get(one) for one in each.tolist()]
    if None in of_bits:
        return None
    lines, count = cubin.lines(kernel), len(low)
    read = []
    for at, (kind, first, second) in enumerate(zip(which.tolist(), low.tolist(), high.tolist(), strict=True)):
        name, base, constant, form = of_bits[kind]
        predicated = first >> 12 & 15 != _UNPREDICATED
        instruction = instruction_of(lines[at], name, base, predicated, constant, second >> 41)
        target = int(_target(at, first, form)) if form else count
        read.append(Placed(instruction, target if target < count else None))
    return Code(read, _routines(cubin, kernel))


def _routines(cubin: Cubin, kernel: str) -> dict[int, str]:
    """Names of the routines behind a kernel by the place of their first instruction."""
    return {place // INSTRUCTION_BYTES: name for place, name in cubin.subroutines(kernel).items()}


def _target(at: int, low: int, form: int) -> float:
    """The place that an instruction at place ``at`` names, in words behind it: from bit 34 on (1), of branches and
    calls from sm_90 on without their last eight bits, which stand from bit 16 on (2)."""
    words = (low - (low >> 63 << 64)) >> 34
    words = words << 8 | low >> 16 & 0xFF if form == 2 else words
    return at + 1 + 4 * words / INSTRUCTION_BYTES


def _learned(cubin: Cubin, kernel: str, shown: Code) -> dict[int, Kind | None]:
    """The kinds of a kernel's instructions by what nvdisasm shows of it, None for what is not read as it shows."""
    low, _, bits = _bits(cubin.code(kernel))
    if len(shown.placed) != len(bits) or shown.routines != _routines(cubin, kernel):
        return {}
    found: dict[int, Kind | None] = {}
    keys = [_telling(each, one.instruction) for each, one in zip(bits.tolist(), shown.placed, strict=True)]
    for at, (key, one, first) in enumerate(zip(keys, shown.placed, low.tolist(), strict=True)):
        made, form = one.instruction, 0
        if one.target is not None:
            form = next((form for form in (1, 2) if _target(at, first, form) == one.target), 0)
        kind = Kind(made.name, made.base, made.constant, form)
        if found.setdefault(key, kind) != kind or made.base in _BY_TABLE:
            found[key] = None
    known = {key: kind or _ANY for key, kind in found.items()}
    read = _read(cubin, kernel, known)
    for key, one, other in zip(keys, shown.placed, read.placed if read else (), strict=True):
        if one != other:
            found[key] = None
    return found


_ANY = Kind("", "", False, 0)
