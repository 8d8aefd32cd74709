"""Runs of one launch in many orders of its blocks and warps, each from a seed, to see whether its results change.

The checks look at what orders two accesses; this looks at values. In each order a warp goes on until it waits, or for a
random number of instructions, then at times has to let all others go first. Sixteen blocks run at a time, in a random
order, and each asynchronous copy lands when it is issued, or when it is waited for. Others see some stores late
(`workbench.ptx.late_stores`), and lanes that take no part in a shuffle give one value or another. The same seed gives
the same order. Where the run in the usual order has races, the first orders are aimed at them (`workbench.ptx.aims`).
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.errors import KernelFault
from workbench.ptx.aims import Aim, aimed, aims_of
from workbench.ptx.late_stores import late_stores
from workbench.ptx.old_values import uses_old
from workbench.ptx.options import UNDEFINED_BITS, coordinates
from workbench.ptx.report import Finding, LaunchReport

if TYPE_CHECKING:
    from workbench.ptx.bound import BoundLaunch
    from workbench.ptx.kernel import DecodedKernel

KIND = "results that the order changes"
_MOST_BYTES = 1 << 30
"""Memory of a launch that is kept and put back; a launch with more runs in the usual order alone."""
_ASKS_THE_TIME = re.compile(r"%(clock|globaltimer)")
_ADDS_FLOATS = re.compile(r"\b(atom|red|multimem|cp\.reduce)\.[\w.:]*\.(f16|bf16|f32|f64)")
_ROUNDING = 1e-3
"""Part of the largest element by which sums of floats in another order may differ."""


class Place(NamedTuple):
    """The place of a warp: the index of its block, its own, and the instruction; -1 for none."""

    block: int
    warp: int
    pc: int


@dataclass(frozen=True)
class Order:
    """The order of one run: its seed, how often a warp had to wait, the latest of these, and the one that went on."""

    seed: int
    changes: int
    waiting: Place
    running: Place

    def told(self, kernel: DecodedKernel, launch: BoundLaunch, late: int = -1) -> str:
        """Return the order in words; ``late`` is the instruction of the stores that others have to see late."""
        text = f"schedule {self.seed}"
        if late >= 0:
            text += f", others see the store at {_at(kernel, late)} late"
        if not self.changes or self.waiting.pc < 0:
            return f"{text}, in the order in which its blocks and warps start"
        times = "once" if self.changes == 1 else f"{self.changes} times, the last time"
        if self.waiting == self.running:
            return f"{text}, {times} where lanes of {_words(kernel, launch, self.waiting)} have to wait for the others"
        stands = f"{_words(kernel, launch, self.waiting)} has to wait"
        goes_on = f", while {_words(kernel, launch, self.running)} goes on" if self.running.pc >= 0 else ""
        return f"{text}, {times} where {stands}{goes_on}"


def explored(launch: BoundLaunch) -> list[Finding]:
    """Run a launch in as many orders as its options say, and return a finding for the first kinds of difference.

    The launch's memory is put back. Results are compared with those of the usual order: bytes, and sums of floats by
    atomic operations up to rounding. A kernel that uses what atomic operations return, or a clock, may rightly give
    other results; for it faults and deadlocks count, and values that differ from those of the same order if no store is
    late.
    """
    count, first = launch.options.schedules, launch.options.first_schedule
    runs = Orders(launch)
    if not count or runs.bytes > _MOST_BYTES:
        return []
    try:
        usual = runs.usual()
        found: dict[str, Finding] = {}
        if usual.fault is None:
            for seed in range(first, first + count):
                outcome, what = runs.shown(usual, seed)
                if what and outcome.kind not in found:
                    found[outcome.kind] = runs.finding(usual, seed)
        return list(found.values())
    finally:
        runs.put_back()


def with_orders(report: LaunchReport, found: Sequence[Finding]) -> LaunchReport:
    """Return a report with the findings of other orders behind its own; those of a kind that it has are left out."""
    known = {one.kind for one in report.findings}
    further = [one for one in found if one.kind not in known]
    return replace(report, findings=[*report.findings, *further]) if further else report


def order_of(seed: int | None, changes: int, waiting: tuple[int, int, int], running: tuple[int, int, int]) -> Order:
    """Return the order of a run from what the core says of it."""
    assert seed is not None
    return Order(seed, changes, Place(*waiting), Place(*running))


@dataclass(frozen=True)
class _Outcome:
    content: list[np.ndarray]
    fault: KernelFault | None
    order: Order | None

    @property
    def kind(self) -> str:
        return KIND if self.fault is None or self.fault.finding is None else self.fault.finding.kind


class _Memory:
    """The memory that a launch may write, and its content at the beginning."""

    def __init__(self, launch: BoundLaunch):
        program = launch.runner.program
        self._views = [_view(host, size) for _, size, host, writable, _ in launch.memory.rows if writable and size]
        if not launch.memory.has_variables:
            self._views += [one.reshape(-1).view(np.uint8) for one in program.variables.values() if one.nbytes]
        self.bytes = sum(one.nbytes for one in self._views)
        self._kept = [one.copy() for one in self._views] if self.bytes <= _MOST_BYTES else []
        kinds = {int(value.data_ptr()): value.dtype for value in launch.values if hasattr(value, "data_ptr")}
        self.floats = [_float_type(kinds.get(one.ctypes.data)) for one in self._views]

    def content(self) -> list[np.ndarray]:
        return [one.copy() for one in self._views]

    def put_back(self) -> None:
        for one, kept in zip(self._views, self._kept, strict=False):
            one[...] = kept


class Orders:
    """Runs of a launch in its orders, each from the same memory."""

    def __init__(self, launch: BoundLaunch):
        self._launch, self._memory, self._kernel = launch, _Memory(launch), launch.runner
        text = text_of(launch.runner)
        self._aims: Sequence[Aim] = ()
        self._late = late_stores(launch.runner.decoded.code)
        self._compared = not (_ASKS_THE_TIME.search(text) or uses_old(launch.runner.decoded.code))
        self._rounds = bool(_ADDS_FLOATS.search(text))

    def usual(self) -> _Outcome:
        """Run in the usual order, with checks: at what they find, further orders are aimed."""
        return self.run(unmarked(self._launch), {"checks": True, "schedule": None})

    def outcome(self, seed: int, changes: int | None = None, late: Sequence[int] | None = None) -> _Outcome:
        """Run in the order of a seed, with at most so many changes; ``late`` are the stores that may be late."""
        options = {
            "checks": False, "schedule": seed, "schedule_changes": changes, "aims": aimed(seed, self._aims),
            "late_stores": self._late if late is None else late, "undefined": UNDEFINED_BITS[bool(seed % 2)],
        }  # fmt: skip
        return self.run(self._launch, options)

    def shown(
        self, usual: _Outcome, seed: int, changes: int | None = None, late: Sequence[int] | None = None
    ) -> tuple[_Outcome, str]:
        """Return the outcome of an order, and how it differs from what is expected; "" if it does not."""
        outcome = self.outcome(seed, changes, late)
        if self._compared or outcome.fault is not None:
            return outcome, self.difference(usual, outcome)
        return outcome, self.difference(self.outcome(seed, changes, ()), outcome) if self._late else ""

    @property
    def bytes(self) -> int:
        """Bytes of memory that the launch may write."""
        return self._memory.bytes

    def put_back(self) -> None:
        """Give the launch's memory the content that it had at the beginning."""
        self._memory.put_back()

    def run(self, launch: BoundLaunch, options: dict[str, Any]) -> _Outcome:
        """Run a launch from the memory of the beginning, with some of its options replaced."""
        self.put_back()
        options |= {"statistics": False, "record_block": None, "schedules": 0}
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                report = launch.run(**options)
            if options["checks"]:
                self._aims = aims_of(self._kernel, report.findings)
        except KernelFault as fault:
            return _Outcome([], fault, fault.order)
        return _Outcome(self._memory.content(), None, report.order)

    def difference(self, usual: _Outcome, other: _Outcome) -> str:
        """Return how an outcome differs from the usual one; "" if it does not."""
        if other.fault is not None:
            return str(other.fault)
        if usual.fault is not None:
            return ""
        for number, (one, there) in enumerate(zip(usual.content, other.content, strict=True)):
            apart = self._apart(one, there, self._memory.floats[number])
            if apart.size:
                return f"{apart.size:,} bytes of {self._name(number)}, the first at byte {apart[0]}"
        return ""

    def _apart(self, one: np.ndarray, other: np.ndarray, kind: Any) -> np.ndarray:
        apart = np.flatnonzero(one != other)
        if not apart.size or not self._rounds:
            return apart
        if kind is None:
            return apart[:0]  # what it holds is not known: it may be sums
        these, those = (_numbers(values, kind) for values in (one, other))
        size = one.nbytes // len(these)
        finite = these[np.isfinite(these)]
        bound = _ROUNDING * float(np.abs(finite).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            near = (np.abs(these - those) <= bound) | (np.isnan(these) & np.isnan(those)) | (these == those)
        return apart[~near[apart // size]]

    def _name(self, number: int) -> str:
        names = [one.name for one in self._launch.memory.named() if one.writable and one.size]
        name = names[number] if number < len(names) else "a variable"
        places = {f"argument {at}": given for at, given in enumerate(self._launch.names)}
        return "/".join(places.get(one, one) for one in name.split("/"))

    def finding(self, usual: _Outcome, seed: int) -> Finding:
        """Return the finding for the order of a seed, with as few changes as show it."""
        outcome, late, what = self._shrunk(usual, seed)
        order, kernel = outcome.order, self._kernel
        how = order.told(kernel, self._launch, late) if order is not None else f"schedule {seed}"
        if outcome.fault is not None:
            finding = outcome.fault.finding
            assert finding is not None
            return replace(finding, message=f"{finding.message} (in {how})")
        place = order.waiting if order is not None and order.changes else Place(0, 0, -1)
        other = order.running if order is not None and order.changes else Place(-1, -1, -1)
        if late >= 0:
            place, other = Place(0, 0, late), place
        (source, line), (other_source, other_line) = (_line(kernel, one.pc) for one in (place, other))
        message = f"{kernel.name}: {KIND}: {what}, hold other values than in the usual order ({how})"
        return Finding(
            KIND, message, kernel.name, coordinates(max(place.block, 0), self._launch.grid), (0, 0, 0), None, None,
            line, source, other_line, other_source, _ptx_line(kernel, place.pc), _ptx_line(kernel, other.pc), 1,
            kernel_line=line, kernel_source=source, other_kernel_line=other_line, other_kernel_source=other_source,
        )  # fmt: skip

    def _shrunk(self, usual: _Outcome, seed: int) -> tuple[_Outcome, int, str]:
        """Return the outcome with the fewest changes that a search finds: twice as many until wrong, then halves.

        With it the store that has to be late, if one alone shows the difference (-1: none has to), and the difference.
        """
        late = next((one for one in ((), *((pc,) for pc in self._late)) if self.shown(usual, seed, None, one)[1]), None)
        last = late[0] if late else -1
        whole = self.outcome(seed, None, late)
        most = whole.order.changes if whole.order is not None else 0

        def differs(changes: int) -> bool:
            return bool(self.shown(usual, seed, changes, late)[1])

        right = -1
        wrong = next((one for one in _doubling(most) if differs(one)), most)
        for one in _doubling(wrong):
            right = one if one < wrong else right
        while wrong - right > 1:
            middle = (right + wrong) // 2
            wrong, right = (middle, right) if differs(middle) else (wrong, middle)
        found, what = self.shown(usual, seed, wrong, late)
        if not what:
            found, what = self.shown(usual, seed, None, late)
        return found, last, what


def _doubling(most: int) -> Iterator[int]:
    yield 0
    number = 1
    while number < most:
        yield number
        number *= 2
    yield most


def unmarked(launch: BoundLaunch) -> BoundLaunch:
    """Return a launch that marks no memory as written, so that a later run still knows what nobody has written."""
    return replace(launch, memory=_Unmarked(launch.memory), options=replace(launch.options, uninitialised=()))


class _Unmarked:
    """The memory of a launch, without the marks of its written bytes."""

    def __init__(self, memory: Any):
        self._memory = memory
        self.rows = [(*row[:4], 0) for row in memory.rows]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


def text_of(kernel: Any) -> str:
    """Return the PTX of a kernel and of all functions of its module."""
    module = kernel.module
    bodies = [(kernel.entry.body_start, kernel.entry.body_end)]
    bodies += [(one.body_start, one.body_end) for one in module.functions.values() if one.body_start is not None]
    return "\n".join(module.text[begin:end] for begin, end in bodies)


def _view(host: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(host))


def _float_type(dtype: Any) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return the function that reads bytes as floats of a torch dtype; None for another dtype."""
    if dtype is None or not getattr(dtype, "is_floating_point", False):
        return None
    import torch

    return lambda content: torch.from_numpy(content.copy()).view(dtype).double().numpy()


def _numbers(content: np.ndarray, kind: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return kind(content)


def _line(kernel: Any, pc: int) -> tuple[str, int | None]:
    source, line = kernel.source_of(pc) if pc >= 0 else ("", None)
    return source, line or None


def _ptx_line(kernel: Any, pc: int) -> int:
    statement = kernel.decoded.code[pc].statement if 0 <= pc < len(kernel.decoded.code) else None
    return statement.line if statement else 0


def _words(kernel: Any, launch: BoundLaunch, place: Place) -> str:
    block = coordinates(place.block, launch.grid)
    return f"warp {place.warp} of block {block} at {_at(kernel, place.pc)}"


def _at(kernel: Any, pc: int) -> str:
    source, line = _line(kernel, pc)
    return f"{source}:{line}" if line else f"PTX line {_ptx_line(kernel, pc)}"
