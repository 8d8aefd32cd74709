"""Results that depend on the masked lanes of Triton loads without ``other``.

Triton leaves these lanes undefined. Its PTX sets them to zero before the load, so a kernel that uses them can be right
by luck. The check runs the kernel again on the same arguments, with large positive and then large negative numbers in
place of the zeros, and restores the arguments afterwards. A result that differs depends on lanes that were not loaded.
"""

from __future__ import annotations

import contextlib
import io
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import KernelTimeout, WorkbenchError
from workbench.ptx import Program
from workbench.ptx.buffers import stored
from workbench.ptx.tensor_map import TensorMap

if TYPE_CHECKING:
    from workbench.ptx import LaunchReport, PtxKernel
    from workbench.ptx.launch import MachineLaunch
    from workbench.toolchain import CompiledKernel

_Place = tuple[str, int, int]
"""File name, line and column of a load."""

_MOST_BYTES = 256 << 20  # a launch that may write more is not checked, because its memory is copied
_MOST_PLACES = 8  # loads that are tried one by one
# The instruction limit of a poisoned run: this factor times the plain run's warp instructions, plus this constant.
_MOST_TIMES, _MOST_MORE = 4, 100_000
# Finite and large as float, half, bfloat16 and integer, alone or packed, in any width.
_POISON = ("7bff", "fbff")

_LOAD = re.compile(r"= tt\.load (%[\w#]+(?:, %[\w#]+)*)[^\n]*? loc\((#loc\d*|\"[^\"]*\":\d+:\d+)\)$", re.MULTILINE)
_DEFINITION = re.compile(r"^#(loc\d*) = loc\((.*)\)\s*$", re.MULTILINE)
_FILE = re.compile(r'^"([^"]*)":(\d+):(\d+)')
_NUMBER = re.compile(r"#(loc\d*)")
_LINE = re.compile(r"^\s*\.loc\s[^\n]*?// ([^\s:]+):(\d+):(\d+)", re.MULTILINE)
_ZEROS = re.compile(r"// begin inline asm\n((?:\s*mov\.[bu]\d+ %\w+, 0x0;\n)+)\s*@!?%p\d+ ld\.global")
_ZERO = re.compile(r"(mov\.[bu](\d+) %\w+, )0x0;")


def places_of(kernel: CompiledKernel) -> frozenset[_Place]:
    """Return the source places at which a Triton kernel loads with a mask but without ``other``, from its TTIR."""
    text = kernel.stages.get("ttir", "")
    known = {match[1]: match[2] for match in _DEFINITION.finditer(text)}

    def place(location: str) -> _Place | None:
        while (match := _FILE.match(location)) is None:
            name = _NUMBER.search(location)  # a call's location names the innermost one first
            if name is None or name[1] not in known:
                return None
            location = known[name[1]]
        return Path(match[1]).name, int(match[2]), int(match[3])

    loads = [(place(match[2]), match[1].count("%")) for match in _LOAD.finditer(text)]
    filled = {at for at, operands in loads if operands == 3}
    return frozenset(at for at, operands in loads if at is not None and operands == 2 and at not in filled)


def poisoned(ptx: str, places: frozenset[_Place], poison: str) -> str:
    """Return the PTX with the pattern ``poison`` in place of the zeros in masked lanes of the loads at ``places``."""
    lines = list(_LINE.finditer(ptx))
    starts = [match.start() for match in lines]

    def value(found: re.Match[str]) -> str:
        return f"{found[1]}0x{poison * (int(found[2]) // 16) or poison[2:]};"

    def block(found: re.Match[str]) -> str:
        at = bisect_right(starts, found.start()) - 1
        here = (lines[at][1], int(lines[at][2]), int(lines[at][3])) if at >= 0 else None
        return found[0].replace(found[1], _ZERO.sub(value, found[1])) if here in places else found[0]

    return _ZEROS.sub(block, ptx)


def notes_on(compiled: CompiledKernel, launch: MachineLaunch) -> tuple[str, ...]:
    """Return a note where arguments of a launch depend on masked lanes: on which, and by which loads."""
    kernel = launch.runner
    places, ptx = places_of(compiled), kernel.module.source
    if not places or poisoned(ptx, places, _POISON[0]) == ptx:
        return ()
    memory = _Memory.of(launch.values, launch.names)
    beside = replace(launch.options, checks=False, statistics=False, record_block=None, threads=1)

    def after(one: PtxKernel, instructions: int | None) -> tuple[LaunchReport, list[bytes]] | WorkbenchError:
        assert memory is not None
        limited = replace(launch, runner=one, options=replace(beside, instruction_limit=instructions))
        return memory.after(limited.run)

    plain = None if memory is None else after(kernel, launch.options.instruction_limit)
    if memory is None or plain is None or isinstance(plain, WorkbenchError):
        return ()
    most = _MOST_TIMES * plain[0].instructions + _MOST_MORE

    def reached(here: frozenset[_Place]) -> str:
        for poison in _POISON:
            found = after(Program.from_text(poisoned(ptx, here, poison))[kernel.name], most)
            if isinstance(found, WorkbenchError):
                return "the number of steps" if isinstance(found, KernelTimeout) else "an address"
            if name := memory.first_difference(plain[1], found[1]):
                return name
        return ""

    name = reached(places)
    if not name:
        return ()
    several = sorted(places)[:_MOST_PLACES]
    found = [at for at in several if len(places) == 1 or reached(frozenset([at]))] or several
    where = ", ".join(f"{file}:{line}" for file, line in dict.fromkeys(at[:2] for at in found))
    note = (
        f"{where}: tl.load with mask= and without other= leaves masked lanes undefined (zeros today), and what they "
        f"hold reaches {name}. Pass other= with a number that changes nothing there"
    )
    return (note,)


@dataclass(frozen=True)
class _Memory:
    """Memory that a launch may write: storages and arrays, each with the name of the argument it belongs to."""

    parts: Sequence[tuple[str, Any]]

    @classmethod
    def of(cls, values: Sequence[Any], names: Sequence[str]) -> _Memory | None:
        """Collect the memory of the arguments and of the buffers whose addresses they store.

        Returns None if it is too large to be copied.
        """
        parts: dict[int, tuple[str, Any]] = {}
        owners = [value.owner if isinstance(value, TensorMap) else value for value in values]
        further = (("memory that an argument leads to", one) for one in stored(values))
        named = [*zip(names, owners, strict=False), *further]
        for name, value in named:
            if hasattr(value, "untyped_storage"):
                parts.setdefault(value.untyped_storage().data_ptr(), (name, value.untyped_storage()))
            elif isinstance(value, np.ndarray) and value.flags.writeable:
                parts.setdefault(value.ctypes.data, (name, value))
        found = list(parts.values())
        return cls(found) if sum(_view(one).nbytes for _, one in found) <= _MOST_BYTES else None

    def after(self, run: Callable[[], LaunchReport]) -> tuple[LaunchReport, list[bytes]] | WorkbenchError:
        """Call ``run``, then restore the memory; return its report and the content it left, or the error it raised."""
        with self._kept(), contextlib.redirect_stdout(io.StringIO()):
            try:
                report = run()
            except WorkbenchError as error:
                return error
            return report, [bytes(_view(one)) for _, one in self.parts]

    def first_difference(self, one: Sequence[bytes], other: Sequence[bytes]) -> str:
        """Return the argument's name of the first part in which the two contents differ, else ""."""
        return next((name for (name, _), a, b in zip(self.parts, one, other, strict=True) if a != b), "")

    @contextmanager
    def _kept(self) -> Iterator[None]:
        before = [_view(one).copy() for _, one in self.parts]
        try:
            yield
        finally:
            for (_, one), old in zip(self.parts, before, strict=True):
                _view(one)[...] = old


def _view(memory: Any) -> np.ndarray:
    """Return a view of the bytes of a torch storage or of an array; an array that is not contiguous as it is."""
    if isinstance(memory, np.ndarray):
        return memory.view(np.uint8) if memory.flags.c_contiguous else memory
    import torch

    return torch.empty(0, dtype=torch.uint8).set_(memory).numpy()
