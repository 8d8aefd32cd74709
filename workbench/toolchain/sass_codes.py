"""Decoder of SASS that learns from cached nvdisasm output.

``nvdisasm`` takes a fifth of a second before its first line, for any input, and a tuning run needs the schedules of
hundreds of kernels. The lowest 12 of an instruction's 128 bits encode its operation and where its operands lie; nine
bits from bit 72 on encode the width of a load or store, and the special function
(:mod:`workbench.toolchain.sass_flow` decodes the schedule). The names that ``nvdisasm`` gives to these bits are kept by
architecture, on disk too. A kernel with an unknown instruction goes through ``nvdisasm``, and this module learns from
the output. A kind of instruction for which ``nvdisasm`` shows anything else than the decoder reads is never decoded
here again.
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
"""Value in place of the nine bits if they do not change the name of an instruction."""
_BY_TABLE = ("BRX", "JMX", "BRXU")
"""Branches whose targets are in a table."""


class Kind(NamedTuple):
    """Properties of one kind of instruction.

    ``name`` is its class, ``base`` the class without widths. ``constant`` is True if an operand lies in constant
    memory. ``form`` is the encoding of its target in the code (see `_target`; 0: it has none).
    """

    name: str
    base: str
    constant: bool
    form: int


class _Known:
    """Kinds of an architecture's instructions by the bits that identify them; None for a kind that is not decoded."""

    def __init__(self, arch: str):
        self._key = disk_cache.content_key(["kinds of machine code", arch])
        self._lock = threading.Lock()
        self.kinds = self._stored()

    def learn(self, found: dict[int, Kind | None]) -> None:
        """Keep new kinds; bits that already stand for another kind are not decoded any more."""
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
    """Return the known kinds of an architecture in a folder of the cache."""
    return _Known(arch)


def blocks_of_kernel(kernel: CompiledKernel) -> list[Block]:
    """Return the basic blocks of a kernel with their schedule, as `workbench.toolchain.sass_flow.blocks_of` does.

    Raises MissingToolError for a kernel without machine code, and without nvdisasm if an instruction needs it.
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
    """Return the lower and upper halves of each instruction, and the bits that identify its kind."""
    low, high = np.frombuffer(code, "<u8").reshape(-1, 2).T
    return low, high, low & 0xFFF | (high >> 8 & 0x1FF) << 12


def _telling(bits: int, made: Instruction) -> int:
    """Return the bits of an instruction that identify its kind, with `_WHATEVER` for those that do not matter."""
    return bits if made.name != made.base else bits & 0xFFF | _WHATEVER


def _read(cubin: Cubin, kernel: str, kinds: Mapping[int, Kind | None]) -> Code | None:
    """Decode a kernel's instructions; return None if one is of no known kind."""
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
    """Return the names of the subroutines behind a kernel by the index of their first instruction."""
    return {place // INSTRUCTION_BYTES: name for place, name in cubin.subroutines(kernel).items()}


def _target(at: int, low: int, form: int) -> float:
    """Return the index of the instruction that the one at index ``at`` names as its target.

    The encoding is a distance in words of four bytes from the next instruction. Form 1 has it from bit 34 on. Form 2,
    of branches and calls from sm_90 on, has its last eight bits from bit 16 on and the others from bit 34 on.
    """
    words = (low - (low >> 63 << 64)) >> 34
    words = words << 8 | low >> 16 & 0xFF if form == 2 else words
    return at + 1 + 4 * words / INSTRUCTION_BYTES


def _learned(cubin: Cubin, kernel: str, shown: Code) -> dict[int, Kind | None]:
    """Return the kinds of a kernel's instructions from nvdisasm's output; None for a kind that decodes differently."""
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
