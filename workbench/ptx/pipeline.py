"""The warps of one block as a pipeline: when copies land, which warps wait at mbarriers, and what each stage holds.

A recording has the events of each warp, with the number of its instructions before them. A model turns these into
times. An instruction takes one cycle, and a copy the cycles that the caller gives. A product of a warp group, or in
tensor memory, takes half a cycle for each of its columns; the tensor cores of the processor compute products one after
the other (their rate is 2,048 fp16 multiply-adds a cycle on sm_90, 4,096 on sm_100; with a sparse A, of whose row of K
half is stored, they are twice as fast). A wait ends when its event has happened. So the program determines which warp
waits for which, and the model for how long. With `Rates` the times of instructions come from the machine code for a
processor, and warps that share a unit wait for it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from workbench.errors import ArgumentError
from workbench.ptx.pipeline_parts import (
    Copy,
    Held,
    HeldColumns,
    Phase,
    PipelineEvent,
    PipelineSpan,
    PipelineStage,
    Product,
    StageState,
    Waited,
)

COPY_CYCLES = 500
_ARRIVALS = ("arrive", "arrive_late", "arrive_committed", "copy")
_OF_ONE_WARP = ("end", "multiply", "hold", "give_back")
_Stretch = tuple[int, int, Sequence[float]]  # start, end, and the share of the time that each unit is busy
_Key = tuple[Waited, int, int]  # an event to wait for: the kind of object, its number, and the number of its use


class Rates(Protocol):
    """Protocol of the speed of a processor.

    ``copy_bytes`` is the number of bytes that arrive by copies in a cycle. Scheduler n of ``schedulers`` runs the warps
    n, n + ``schedulers`` and so on.
    """

    copy_bytes: float
    schedulers: int

    def stretch(self, before: int, line: int, instructions: int) -> tuple[float, Sequence[float]]:
        """Return the cycles of a stretch of a warp's instructions alone, and those for which it keeps each unit busy.

        The stretch has ``instructions`` instructions, from behind PTX line ``before`` (0: from the warp's first) up to
        PTX line ``line``. The units are those of the warp's scheduler.
        """


@dataclass(frozen=True)
class Pipeline:
    """One block as a pipeline, by the model of this module.

    ``roles`` has "producer", "consumer", "both" or "" for each warp. ``end`` is the end of the block in cycles.
    """

    copy_cycles: int
    warps: int
    end: int
    roles: tuple[str, ...]
    spans: tuple[PipelineSpan, ...] = field(repr=False)
    phases: tuple[Phase, ...] = field(repr=False)
    copies: tuple[Copy, ...] = field(repr=False)
    products: tuple[Product, ...] = field(repr=False)
    stages: tuple[PipelineStage, ...] = field(repr=False)
    truncated: bool = False
    held: tuple[HeldColumns, ...] = field(default=(), repr=False)
    """Columns of tensor memory over time, where there are any."""

    def of_role(self, role: str) -> list[int]:
        """Return the warps of a role."""
        return [warp for warp, one in enumerate(self.roles) if one == role]

    def waited(self, role: str) -> float:
        """Return the share of the block's time that the warps of a role wait at mbarriers; 0 without such warps."""
        warps = self.of_role(role)
        whole = sum(span.end - span.start for span in self.spans if span.warp in warps and span.on == "mbarrier")
        return whole / (self.end * len(warps)) if whole else 0.0

    @property
    def tensor_cycles(self) -> int:
        """Cycles in which the tensor cores multiply."""
        return sum(one.end - one.start for one in self.products)

    @property
    def tensor_share(self) -> float:
        """Share of the block's time in which the tensor cores multiply."""
        return self.tensor_cycles / self.end if self.end else 0.0


def pipeline_of(
    recorded: Sequence[PipelineEvent],
    warps: int,
    mbarriers: Mapping[int, str],
    copy_cycles: int = COPY_CYCLES,
    rates: Rates | None = None,
    truncated: bool = False,
) -> Pipeline:
    """Return the pipeline of a recorded block of ``warps`` warps, with the names of its mbarriers by offset.

    A copy lands ``copy_cycles`` cycles after its issue; with ``rates`` its bytes also have to arrive first. Events of
    other blocks of the cluster are left out, and no warp waits for them.

    Raises ArgumentError for a negative ``copy_cycles``, and, without ``rates``, for a recording without a bulk copy, an
    mbarrier or a product.
    """
    if not isinstance(copy_cycles, int) or copy_cycles < 0:
        raise ArgumentError("copy_cycles", copy_cycles, "an int of 0 or more", "It is the duration of a copy.")
    events = [event for event in recorded if event.warp >= 0]
    if rates is None and all(event.kind in ("meet", "come", "end") for event in events):
        raise ArgumentError(
            "recording", "a block without mbarriers and products of warp groups", "one that has some",
            "ui.warp_timeline shows the others.",
        )  # fmt: skip
    run = _Run(events, warps, copy_cycles, rates)
    run.all()
    copies = tuple(
        Copy(e.warp, run.when[i], run.landed[i], e.bytes, e.to, e.at, e.phase, e.kernel_line)
        for i, e in enumerate(events)
        if e.kind == "copy"
    )
    products = tuple(sorted(run.products, key=lambda one: one.start))
    end = max([*run.clock, *(copy.landed for copy in copies), *(one.end for one in products)])
    complete = {(event.at, event.phase) for event in recorded if event.kind == "complete"}
    phases = tuple(_phases(run, mbarriers, complete))
    return Pipeline(
        copy_cycles, warps, end, tuple(_roles(events, warps)), tuple(_spans(run, mbarriers)), phases,
        copies, products, tuple(_stages(run, mbarriers, phases, copies, products, end)), truncated,
        tuple(_held(run, end)),
    )  # fmt: skip


@dataclass(slots=True)
class _Step:
    """A step of a warp, which contributes to the event ``makes`` or waits for the event ``needs``."""

    position: int
    needs: _Key | None = None
    makes: _Key | None = None


class _Run:
    """The events of a block in the order of their times: event ``i`` is at ``when[i]``."""

    def __init__(self, events: list[PipelineEvent], warps: int, copy_cycles: int, rates: Rates | None = None):
        self.events, self.copy_cycles, self.rates = events, copy_cycles, rates
        self.landed: dict[int, int] = {}  # when copies land, by position
        self._arrivals: dict[int, int] = {}  # when a warp arrives at its next step
        self._lines, self._bytes_free = [0] * warps, 0.0
        self._running: list[_Stretch | None] = [None] * warps
        self.when, self.clock = [0] * len(events), [0] * warps
        self.waits: list[tuple[int, int, int, _Key, int]] = []  # warp, start, end, for what, position
        self.products: list[Product] = []
        self.done: dict[_Key, int] = {}
        self._latest: dict[_Key, int] = defaultdict(int)
        self._steps: list[list[_Step]] = [[] for _ in range(warps)]  # the next one is the last of the list
        # If several groups of a warp's lanes meet, the warp waits once the last group has arrived.
        last = {(e.warp, e.at, e.phase): position for position, e in enumerate(events) if e.kind == "meet"}
        for position, event in enumerate(events):
            steps, key = self._steps[event.warp], _key(event)
            if event.kind in ("pass", "wait_products"):
                steps.append(_Step(position, needs=key))
                continue
            steps.append(_Step(position, makes=key))
            if event.kind == "meet" and last[event.warp, event.at, event.phase] == position:
                steps.append(_Step(position, needs=key))
        self._missing = Counter(step.makes for steps in self._steps for step in steps if step.makes)
        for steps in self._steps:
            steps.reverse()
        self._ticks, self._tensor_free = [0] * warps, 0
        self._products_end = [0] * warps  # of those in tensor memory that a warp issued

    def times(self, *kinds: str) -> Iterator[tuple[PipelineEvent, int]]:
        return ((event, when) for event, when in zip(self.events, self.when, strict=True) if event.kind in kinds)

    def all(self) -> None:
        ready: list[tuple[int, int, int]] = []
        blocked: dict[_Key, list[int]] = defaultdict(list)

        def enter(warp: int) -> None:
            if not self._steps[warp]:
                return
            step = self._steps[warp][-1]
            if step.needs and self._missing[step.needs]:
                blocked[step.needs].append(warp)
            else:
                at = max(self._arrival(warp), self.done.get(step.needs, 0) if step.needs else 0)
                heapq.heappush(ready, (at, step.position, warp))

        for warp in range(len(self.clock)):
            enter(warp)
        while ready or blocked:
            if ready:
                at, _, warp = heapq.heappop(ready)
            else:  # the awaited event was not recorded: go on in the machine's order
                _, key, warp = min((self._steps[w][-1].position, k, w) for k, warps in blocked.items() for w in warps)
                at = self._arrival(warp)
                blocked[key].remove(warp)
                if not blocked[key]:
                    del blocked[key]
            made = self._advance(warp, at)
            if made and not self._missing[made]:
                for other in blocked.pop(made, ()):
                    enter(other)
            enter(warp)

    def _arrival(self, warp: int) -> int:
        """Return when a warp arrives at its next step."""
        if warp not in self._arrivals:
            event, begun = self.events[self._steps[warp][-1].position], self.clock[warp]
            instructions = event.tick - self._ticks[warp]
            over = begun + instructions
            if self.rates and instructions:
                alone, busy = self.rates.stretch(self._lines[warp], event.ptx_line, instructions)
                shares = [cycles / alone for cycles in busy] if alone else []
                others = [one for one in self._running[warp % self.rates.schedulers :: self.rates.schedulers] if one]
                over = math.ceil(_beneath(others, begun, alone, shares))
                self._running[warp] = begun, over, [cycles / max(over - begun, 1) for cycles in busy]
            self._arrivals[warp] = over
        return self._arrivals[warp]

    def _advance(self, warp: int, at: int) -> _Key | None:
        """Take the next step of a warp; return the event to which it contributes."""
        arrival, step = self._arrival(warp), self._steps[warp].pop()
        event = self.events[step.position]
        del self._arrivals[warp]
        self._lines[warp] = event.ptx_line
        if step.needs and at > arrival:
            self.waits.append((warp, arrival, at, step.needs, step.position))
        self.clock[warp], self._ticks[warp], self.when[step.position] = at, event.tick, at
        made = step.makes
        if event.kind == "multiply":
            self._products_end[warp] = self._compute(event, warp // 4, at)
        if made:
            over = at + self.copy_cycles if event.kind == "arrive_late" else at
            if event.kind == "arrive_committed":
                over = max(at, self._products_end[warp])
            if event.kind == "copy":
                over = self.landed[step.position] = self._copy(event, at)
            self._latest[made] = max(self._latest[made], over)
            self._missing[made] -= 1
            if not self._missing[made]:
                self.done[made] = self._multiply(event, made) if made[0] == "products" else self._latest[made]
        return made

    def _copy(self, event: PipelineEvent, at: int) -> int:
        """Return when a copy that is issued at ``at`` lands."""
        if self.rates:
            self._bytes_free = max(self._bytes_free, at) + event.bytes / self.rates.copy_bytes
            at = math.ceil(self._bytes_free)
        return at + self.copy_cycles

    def _multiply(self, event: PipelineEvent, made: _Key) -> int:
        """Record a product that its last warp has issued; return when it ends."""
        return self._compute(event, event.at, self._latest[made])

    def _compute(self, event: PipelineEvent, group: int, issued: int) -> int:
        """Record a product, which the tensor cores compute when they are free; return when it ends."""
        start = max(issued, self._tensor_free)
        self._tensor_free = start + event.count // 2
        operands = (event.to,) if event.operand is None else (event.operand, event.to)
        number = event.phase if event.kind == "product" else len(self.products)
        self.products.append(Product(group, number, issued, start, self._tensor_free, event.count, operands))
        return self._tensor_free


def _beneath(others: Sequence[_Stretch], begun: float, alone: float, shares: Sequence[float]) -> float:
    """Return when a stretch of instructions ends that runs beside the stretches of other warps.

    Alone it takes ``alone`` cycles, and keeps each unit busy for its share of them. Beside the others it gets the part
    of each unit that they leave.
    """
    now, left = float(begun), alone
    for until in sorted({end for _, end, _ in others if end > begun}):
        there = [taken for start, end, taken in others if start <= now < end]
        speed = 1.0
        for unit, share in enumerate(shares):
            free = 1.0 - sum(taken[unit] for taken in there if taken)
            speed = min(speed, max(free, 0.0) / share) if share else speed
        if left <= speed * (until - now):
            return now + left / speed
        now, left = float(until), left - speed * (until - now)
    return now + left


def _key(event: PipelineEvent) -> _Key | None:
    """Return the key of what an event contributes to or waits for."""
    if event.kind in ("product", "wait_products"):
        return "products", event.at, event.phase - (event.kind == "wait_products")
    if event.kind in ("meet", "come"):
        return "barrier", event.at, event.phase
    return None if event.kind in _OF_ONE_WARP else ("mbarrier", event.at, event.phase)


def _spans(run: _Run, names: Mapping[int, str]) -> Iterator[PipelineSpan]:
    for warp, end in enumerate(run.clock):
        begun = 0
        for _, start, until, (on, which, number), position in sorted(w for w in run.waits if w[0] == warp):
            if start > begun:
                yield PipelineSpan(warp, begun, start, "run")
            name = {"mbarrier": names.get(which, ""), "barrier": f"barrier {which}"}.get(on, "")
            phase = number if on == "mbarrier" else -1
            yield PipelineSpan(warp, start, until, "wait", on, name, phase, run.events[position].kernel_line)
            begun = until
        if end > begun:
            yield PipelineSpan(warp, begun, end, "run")


def _phases(run: _Run, names: Mapping[int, str], complete: set[tuple[int, int]]) -> Iterator[Phase]:
    events: dict[tuple[int, int], list[PipelineEvent]] = defaultdict(list)
    for event in run.events:
        if event.kind in _ARRIVALS:
            events[event.at, event.phase].append(event)
    begun: dict[int, int] = defaultdict(int)
    for (mbarrier, number), those in sorted(events.items()):
        completed = run.done["mbarrier", mbarrier, number] if (mbarrier, number) in complete else None
        copies = sum(event.bytes for event in those if event.kind == "copy")
        expected = sum(event.bytes for event in those if event.kind != "copy")
        arrivals = sum(event.count for event in those if event.kind != "copy")
        yield Phase(mbarrier, names.get(mbarrier, ""), number, begun[mbarrier], completed, arrivals, expected, copies)
        begun[mbarrier] = completed or 0


def _held(run: _Run, end: int) -> Iterator[HeldColumns]:
    columns, since = 0, 0
    changes = sorted(
        (when, event.count if event.kind == "hold" else -event.count) for event, when in run.times("hold", "give_back")
    )
    for when, change in [*changes, (end, 0)]:
        if columns and when > since:
            yield HeldColumns(since, when, columns)
        columns, since = columns + change, when


def _roles(events: list[PipelineEvent], warps: int) -> Iterator[str]:
    filled = {event.at for event in events if event.kind in ("copy", "arrive_late")}
    for warp in range(warps):
        own = [event for event in events if event.warp == warp]
        produces = any(event.kind in ("copy", "arrive_late") for event in own)
        consumes = any(
            event.kind in ("product", "multiply") or (event.kind == "pass" and event.at in filled) for event in own
        )
        yield {(True, False): "producer", (False, True): "consumer", (True, True): "both"}.get((produces, consumes), "")


def _stages(
    run: _Run,
    names: Mapping[int, str],
    phases: tuple[Phase, ...],
    copies: tuple[Copy, ...],
    products: tuple[Product, ...],
    end: int,
) -> Iterator[PipelineStage]:
    completed = {(phase.mbarrier, phase.number): phase.completed for phase in phases}
    passes: dict[tuple[int, int], int] = {}  # when a warp first saw the phase complete
    before: dict[tuple[int, int], tuple[int, int]] = {}  # the phase that a fill's producer saw complete before it
    latest: dict[int, tuple[int, int]] = {}
    filled = {copy.mbarrier for copy in copies}
    for event, when in run.times("pass", "copy"):
        here = event.at, event.phase
        if event.kind == "pass":
            passes[here] = min(passes.get(here, when), when)
            if event.at not in filled:
                latest[event.warp] = here
        elif event.warp in latest:
            before.setdefault(here, latest[event.warp])
    order = list(dict.fromkeys((copy.mbarrier, copy.phase) for copy in sorted(copies, key=lambda copy: copy.issued)))
    for mbarrier in sorted(filled):
        fills: dict[int, list[Copy]] = defaultdict(list)
        for copy in copies:
            if copy.mbarrier == mbarrier:
                fills[copy.phase].append(copy)
        states, now = [], 0
        for number, those in sorted(fills.items()):
            begun, full = min(copy.issued for copy in those), max(copy.landed for copy in those)
            full = completed.get((mbarrier, number)) or full
            seen = passes.get((mbarrier, number))
            freed = _freed(mbarrier, number, fills, before, completed)
            if freed is None and seen is not None:
                places = [(copy.to, copy.to + copy.bytes) for copy in those]
                reads = [
                    one.end
                    for one in products
                    if one.start >= full and any(low <= at < high for at in one.operands for low, high in places)
                ]
                freed = max(reads, default=seen)
            following = min((copy.issued for copy in fills.get(number + 1, ())), default=end)
            freed = following if freed is None or freed > following else freed
            marks = [now, begun, full, following if seen is None else seen, freed]
            kinds: tuple[Held, ...] = ("empty", "filling", "full", "read")
            states += [
                StageState(kind, start, stop, -1 if kind == "empty" else order.index((mbarrier, number)))
                for kind, start, stop in zip(kinds, marks[:-1], marks[1:], strict=True)
                if stop > start
            ]
            now = max(marks)
        if end > now:
            states.append(StageState("empty", now, end, -1))
        yield PipelineStage(mbarrier, names.get(mbarrier, ""), tuple(states))


def _freed(
    mbarrier: int,
    number: int,
    fills: dict[int, list[Copy]],
    before: dict[tuple[int, int], tuple[int, int]],
    completed: dict[tuple[int, int], int | None],
) -> int | None:
    """Return when the mbarrier was complete for which the producer waits before the next fill; None without one."""
    if (mbarrier, number + 1) in before:
        return completed.get(before[mbarrier, number + 1])
    if (mbarrier, number) in before and number + 1 not in fills:
        empty, phase = before[mbarrier, number]
        return completed.get((empty, phase + 1))
    return None
