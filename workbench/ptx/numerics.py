"""Results of a launch with `LaunchOptions.numerics`: births of infinities and NaN, conversions, and errors.

A `NumericsLog` follows such values through registers, shared and global memory, over all launches that share it: an
event for each instruction that makes one of numbers, passes it on, stores or loads it, which names the event that its
operand comes from. Of a loop the first round stands for all.

Beside each float in a register or in memory it keeps what the same computation gives in float64, its shadow. A float
without one, as an input or what an instruction has made that is not followed, is its own.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from workbench.ptx.machine import core
from workbench.ptx.options import coordinates

if TYPE_CHECKING:
    from workbench.ptx.buffers import Buffer
    from workbench.ptx.kernel import DecodedKernel
    from workbench.ptx.shapes import Dimensions

P = TypeVar("P", bound="AtInstruction")

BORN = ("nan", "infinity")
"""Events at which numbers became no number, or infinite."""


@dataclass(frozen=True)
class CodePlace:
    """An instruction: its statement in the PTX, and the source line that it comes from."""

    kernel: str
    source: str
    line: int
    ptx_line: int
    statement: str

    @property
    def key(self) -> tuple[str, str, int]:
        """Kernel, file and line; without a line the line of the PTX, negative."""
        return self.kernel, self.source, self.line or -self.ptx_line


@dataclass(frozen=True)
class NumericsEvent:
    """One step on the way of an infinity or a NaN, with the lane that was first.

    ``event`` is ``"nan"`` or ``"infinity"`` where it was born, ``"through"`` where an instruction passed it on,
    ``"store"`` or ``"load"``. ``where`` names the memory. ``reached`` is True if the value, or what was computed of it,
    was written to global memory. ``count`` is the number of lanes to which it happened.
    """

    event: str
    place: CodePlace
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    operands: tuple[float, ...]
    result: float
    where: str
    reached: bool
    count: int

    @property
    def born(self) -> bool:
        """True if the operands were numbers."""
        return self.event in BORN


@dataclass(frozen=True)
class Narrowed:
    """Counts of conversions at one instruction: numbers that overflow, saturate, or become 0, and NaN made numbers."""

    to: str
    numbers: int
    overflowed: int
    saturated: int
    flushed: int
    nans: int
    largest: float

    @property
    def lost(self) -> int:
        """Numbers that the format cannot hold."""
        return self.overflowed + self.saturated + self.flushed + self.nans


@dataclass(frozen=True)
class InstructionNumerics:
    """Infinities and NaN at one instruction, in lanes, with the chain of the first of each, the latest event first."""

    place: CodePlace
    nans: int
    infinities: int
    passed: int
    first_nan: tuple[NumericsEvent, ...]
    first_infinity: tuple[NumericsEvent, ...]
    first_passed: tuple[NumericsEvent, ...]
    narrowed: Narrowed | None


@dataclass(frozen=True)
class InstructionErrors:
    """Errors of one instruction's results, relative to what float64 gives, each at most 1.

    ``squares`` are sums of squares over ``results``: of the error that the instruction added to what came in, of the
    one that it inherited, of the largest of its operands, and in total. ``largest`` are those added, inherited and
    in total. ``lost`` are results that got no shadow, since the instruction is not followed.
    """

    place: CodePlace
    results: int
    squares: tuple[float, float, float, float]
    largest: tuple[float, float, float]
    lost: int


@dataclass(frozen=True)
class LaunchNumerics:
    """Instructions of one launch at which an infinity or a NaN appeared, a conversion ran, or a float was made.

    ``stored`` are the sums of squares of the errors that the launch wrote to global memory, by the instruction from
    which the most of each came.
    """

    kernel: str
    rows: tuple[InstructionNumerics, ...]
    errors: tuple[InstructionErrors, ...] = ()
    stored: tuple[tuple[CodePlace, float], ...] = ()


@dataclass(frozen=True)
class _Launch:
    """A launch that has ended, with which its events are read."""

    kernel: DecodedKernel
    grid: Dimensions
    block: Dimensions
    buffers: Sequence[Buffer]


class NumericsLog:
    """A log of infinities, NaN and errors, which launches share: pass it as ``numerics`` to each.

    Without ``errors`` there are no shadows in float64, and launches take a third of the time.
    """

    def __init__(self, errors: bool = True) -> None:
        self.core: Any = core.NumericsLog(errors)
        self._launches: dict[int, _Launch] = {}
        self._stored: dict[tuple[int, int], float] = {}

    def take(
        self, kernel: DecodedKernel, grid: Dimensions, block: Dimensions, buffers: Sequence[Buffer]
    ) -> tuple[LaunchNumerics]:
        """Return the results of the launch that has just ended, for `LaunchReport.numerics`."""
        number = self.core.launch
        self._launches[number] = _Launch(kernel, grid, block, buffers)
        rows = []
        for pc, (nans, infinities, passed), firsts, narrowed in self.core.tallies():
            place = self._place(number, pc)
            nan, infinity, through = (self.chain(event) for event in firsts)
            to = narrowed_to(kernel.decoded.code[pc].form.opcode.name)
            made = Narrowed(to, *narrowed) if narrowed[0] else None
            rows.append(InstructionNumerics(place, nans, infinities, passed, nan, infinity, through, made))
        errors = [
            InstructionErrors(self._place(number, pc), results, squares, largest, lost)
            for pc, results, squares, largest, lost in self.core.errors()
        ]
        return (LaunchNumerics(kernel.name, tuple(rows), tuple(errors), tuple(self._stored_since())),)

    def _stored_since(self) -> Iterator[tuple[CodePlace, float]]:
        """Yield what was added to the errors in global memory since the last call."""
        for launch, pc, squares in self.core.blamed():
            if squares > (before := self._stored.get((launch, pc), 0.0)):
                yield self._place(launch, pc), squares - before
            self._stored[launch, pc] = squares

    def chain(self, event: int) -> tuple[NumericsEvent, ...]:
        """Return an event and those before it, back to the birth, or to the first that is known."""
        found = []
        while event:
            row = self.core.event(event)
            found.append(self._event(row))
            event = row["parent"]
        return tuple(found)

    def _event(self, row: dict[str, Any]) -> NumericsEvent:
        launch = self._launches[row["launch"]]
        place = self._place(row["launch"], row["pc"])
        where = ""
        if row["event"] in ("store", "load"):
            where = "shared memory" if row["shared"] else _named(launch.buffers, row["address"])
        block, thread = coordinates(row["block"], launch.grid), coordinates(row["thread"], launch.block)
        figures = row["operands"], row["result"]
        return NumericsEvent(row["event"], place, block, thread, *figures, where, row["reached"], row["count"])

    def _place(self, launch: int, pc: int) -> CodePlace:
        kernel = self._launches[launch].kernel
        step = kernel.decoded.code[kernel.decoded.written_at(pc)]
        if step.statement is None:
            return CodePlace(kernel.name, "", 0, 0, step.form.opcode.name)
        source, line = kernel.module.place_of(step.statement.location, in_kernel_file=True)
        return CodePlace(kernel.name, source, line, step.statement.line, step.statement.text)


def begin(numerics: NumericsLog | bool, bound: Any) -> NumericsLog | None:
    """Give the core's ``bound`` launch the log that `LaunchOptions.numerics` asks for, and return it; None without."""
    if not numerics:
        return None
    log = numerics if isinstance(numerics, NumericsLog) else NumericsLog()
    bound.numerics, bound.threads = log.core, 1
    return log


def narrowed_to(opcode: str) -> str:
    """Return the format to which a conversion narrows: ``"e4m3"`` for ``cvt.e4m3x2.f32``."""
    return opcode.split(".")[-2].removesuffix("x2").removesuffix("x4")


def _named(buffers: Sequence[Buffer], address: int) -> str:
    """Return the element at an address of global memory: ``x[12]``."""
    after = bisect.bisect_right([one.address for one in buffers], address)
    if not after or address >= buffers[after - 1].address + buffers[after - 1].size:
        return f"0x{address:x}"
    buffer = buffers[after - 1]
    offset = address - buffer.address
    return f"{buffer.name}[{offset // buffer.element}]" if buffer.element else f"{buffer.name} + {offset} bytes"


class AtInstruction(Protocol):
    """Protocol of results at one instruction."""

    @property
    def place(self) -> CodePlace:
        """The instruction."""


def by_line(rows: Iterable[P]) -> dict[tuple[str, str, int], list[P]]:
    """Return rows by kernel, file and line, in order; those without a line by the line of the PTX, negative."""
    found: dict[tuple[str, str, int], list[P]] = {}
    for row in sorted(rows, key=lambda row: (row.place.source, row.place.line, row.place.ptx_line)):
        found.setdefault(row.place.key, []).append(row)
    return found
