"""Stops: where a launch is to stand still, written as text or by field, and the core's watches for them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from workbench.errors import ArgumentError
from workbench.launch.debug.code import KernelCode
from workbench.launch.debug.conditions import LaneCondition, RegisterAt, Row, parse_condition
from workbench.launch.debug.memory import DebugMemory, MemorySpan
from workbench.launch.debug.register_types import FLOATS, OPERATIONS, read_as
from workbench.ptx.machine import core

_LINE = re.compile(r"^(?:(?P<file>[^:\s]+):)?(?P<line>\d+)(?:\s+if\s+(?P<when>.+))?$", re.DOTALL)
_ACCESS = re.compile(r"^(?P<access>read|write|access)\s+(?P<of>.+?)(?:\s+if\s+(?P<when>.+))?$", re.DOTALL)
_BIRTHS = {"nan": 1, "inf": 2, "nan or inf": 3}
_FORMS = (
    "12, 'kernel.cu:12 if lane == 3', 'write out[3, 5]', 'read x', 'nan', 'inf', 'nan or inf', 'finding', 'barrier'"
)
# Their results come from elsewhere, so that no source of their own lane tells whether they are born there.
_PASSED_ON = (
    "mov",
    "shfl",
    "selp",
    "ld.shared",
    "ld.local",
    "ldmatrix",
    "movmatrix",
    "wgmma",
    "tcgen05",
    "prmt",
    "mapa",
)


@dataclass(frozen=True)
class Stop:
    """A stop of a session.

    ``line`` of ``file`` (the kernel's own without it) stops warps that come there; ``when`` is a condition on lanes
    (`workbench.launch.debug.conditions`). ``access`` and ``of`` stop at an access to memory (``"write"``,
    ``"out[3, 5]"``), ``births`` where a result is the first to be NaN or infinite, ``finding`` where checks find
    something, ``barrier`` where a warp comes to a barrier or waits for a copy. ``block``, ``warp`` and ``lanes`` limit
    it to some threads. ``skip`` matches are passed over.
    """

    line: int = 0
    file: str = ""
    when: str = ""
    access: Literal["", "read", "write", "access"] = ""
    of: str = ""
    births: Literal["", "nan", "inf", "nan or inf"] = ""
    finding: bool = False
    barrier: bool = False
    block: int | Sequence[int] | None = None
    warp: int | None = None
    lanes: int | Sequence[int] | None = None
    skip: int = 0

    def __str__(self) -> str:
        what = f"{self.file + ':' if self.file else ''}{self.line}" if self.line else ""
        what = what or f"{self.access} {self.of}".strip() or self.births or ("finding" if self.finding else "")
        what = what or ("barrier" if self.barrier else "any instruction")
        return what + (f" if {self.when}" if self.when else "")


def stop_of(value: int | str | Stop, **fields: Any) -> Stop:
    """Return the stop that a line number, a text or a stop means, with ``fields`` of it replaced.

    Raises ArgumentError for text that is none.
    """
    if isinstance(value, Stop):
        return replace(value, **fields)
    text = str(value).strip()
    if found := _LINE.match(text):
        made = Stop(line=int(found["line"]), file=found["file"] or "", when=found["when"] or "")
    elif found := _ACCESS.match(text):
        made = Stop(access=found["access"], of=found["of"], when=found["when"] or "")  # type: ignore[arg-type]
    elif text in _BIRTHS:
        made = Stop(births=text)  # type: ignore[arg-type]
    elif text in ("finding", "barrier"):
        made = Stop(finding=text == "finding", barrier=text == "barrier")
    elif text.startswith("if "):
        made = Stop(when=text[3:].strip())
    else:
        raise ArgumentError("stop", repr(value), _FORMS, "Write it like one of these.")
    return replace(made, **fields)


class StopMaker:
    """Makes the core's watches of stops, for one launch."""

    def __init__(self, code: KernelCode, memory: DebugMemory, block: tuple[int, int, int], grid: tuple[int, int, int]):
        self.code, self.memory, self.block, self.grid = code, memory, block, grid
        self._floats_are_set = False

    def watches(self, stop: Stop, here: int, debugger: Any) -> list[Any]:
        """Return the watches of a stop; ``here`` is the index of the current block, for shared memory."""
        pcs = self.code.pcs_of_line(stop.line, stop.file) if stop.line else None
        if stop.barrier:
            pcs = self.waiting_pcs() if pcs is None else sorted({*pcs} & {*self.waiting_pcs()})
        base = self._base(stop)
        span = self.memory.span(stop.of) if stop.access else None
        if span is not None:
            self._watch_memory(base, stop, span, here)
        if stop.births:
            base["births"] = _BIRTHS[stop.births]
            self._set_floats(debugger)
        if not stop.when:
            if pcs is not None:
                base |= {"pcs": pcs, "enters": bool(stop.line) and not stop.barrier}
            return [watch_of(base)]
        condition = parse_condition(stop.when, self.block, self.grid)
        groups = self._bound(condition, pcs, runs=span is None and not stop.births)
        return [watch_of(base | {"pcs": sorted(members)}, rows) for rows, members in groups]

    def waiting_pcs(self) -> list[int]:
        """Return the instructions at which warps wait for others or for copies."""
        waits = (core.Kind.barrier, core.Kind.poll, core.Kind.wait)
        return [pc for pc, step in enumerate(self.code.steps) if step.form.kind in waits or "wait" in step.opcode.name]

    def block_index(self, block: int | Sequence[int]) -> int:
        """Return the index of a block from its coordinates. Raises ArgumentError for one outside the grid."""
        place = (block,) if isinstance(block, int) else tuple(block)
        place += (0,) * (3 - len(place))
        if len(place) != 3 or not all(0 <= at < size for at, size in zip(place, self.grid, strict=True)):
            raise ArgumentError("block", block, f"(x, y, z) below {self.grid}", "Name a block of the grid.")
        return (place[2] * self.grid[1] + place[1]) * self.grid[0] + place[0]

    def _base(self, stop: Stop) -> dict[str, Any]:
        fields: dict[str, Any] = {"skip": stop.skip}
        if stop.block is not None:
            fields["block"] = self.block_index(stop.block)
        if stop.warp is not None:
            fields["warp"] = stop.warp
        if stop.lanes is not None:
            lanes = [stop.lanes] if isinstance(stop.lanes, int) else stop.lanes
            fields["lanes"] = sum(1 << lane for lane in {*lanes})
        return fields

    def _watch_memory(self, base: dict[str, Any], stop: Stop, span: MemorySpan, here: int) -> None:
        base |= {"begin": span.begin, "end": span.end}
        base |= {"reads": stop.access != "write", "writes": stop.access != "read"}
        base["space"] = core.WatchSpace.shared if span.shared else core.WatchSpace.global_
        if span.shared and base.setdefault("block", here) < 0:
            remedy = "Pass block=, or go to where it runs."
            raise ArgumentError("place", repr(stop.of), "shared memory of a block", remedy)

    def _bound(
        self, condition: LaneCondition, pcs: Sequence[int] | None, runs: bool
    ) -> list[tuple[list[Row], list[int]]]:
        """Return the condition's steps with the instructions for which they hold, where all its names have values.

        With ``runs`` only the first of instructions of the line that follow each other. Raises ArgumentError where
        none has all values.
        """
        groups: dict[tuple[Row, ...], list[int]] = defaultdict(list)
        latest = -2
        missing: dict[str, int] = defaultdict(int)
        considered = range(len(self.code.steps)) if pcs is None else pcs
        for pc in considered:
            try:
                rows = tuple(condition.rows(lambda name, at=pc: self.found(name, at)))  # type: ignore[misc]
            except LookupError as error:
                missing[str(error.args[0])] += 1
                continue
            if not (runs and pcs is not None and latest == pc - 1):
                groups[rows].append(pc)
            latest = pc
        if not groups:
            name = max(missing, key=lambda one: missing[one])
            at = considered[0] if len(considered) else 0
            known = ", ".join(self.code.known_names(at)[:24]) or "none"
            where = self.code.label(at) if pcs is not None else "any instruction"
            raise ArgumentError(
                "condition", f"{condition.text!r}, in which {name!r} has no value at {where}",
                f"lane, warp, block, thread and, there, {known}",
                "Use a name that the source has assigned before, or the PTX register.",
            )  # fmt: skip
        return [([*rows], members) for rows, members in groups.items()]

    def found(self, name: str, pc: int) -> RegisterAt:
        """Return the register of a name at an instruction. Raises LookupError where it has no value."""
        register = self.code.register(name, pc)
        if register is None or not self.code.is_live(pc, register):
            raise LookupError(name)
        (slot,) = self.code.slots(pc, [register])
        return RegisterAt(slot.slot, slot.type)

    def _set_floats(self, debugger: Any) -> None:
        """Tell the core, once, which registers instructions read and write as floats."""
        if self._floats_are_set:
            return
        self._floats_are_set = True
        sources, results = [], []
        for pc, step in enumerate(self.code.steps):
            name = step.opcode.name
            statement = step.statement
            if statement is None or statement.opcode.startswith(_PASSED_ON) or name.startswith(_PASSED_ON):
                continue
            across = name.startswith(("mma", "wmma"))
            for slot in self.code.slots(pc, self.code.results(pc)):
                if slot.type in FLOATS:
                    results.append((pc, *_as_float(slot.slot, slot.type), across))
            for slot in self.code.slots(pc, self.code.sources(pc)):
                if slot.type in FLOATS:
                    sources.append((pc, *_as_float(slot.slot, slot.type), across))
        debugger.set_floats(sources, results)


def _as_float(slot: int, type_name: str) -> tuple[int, Any, bool]:
    pair = type_name.endswith("x2")
    return slot, OPERATIONS[type_name.removesuffix("x2") if pair else read_as(type_name)], pair


def watch_of(fields: dict[str, Any], condition: Sequence[Row] = ()) -> Any:
    """Return the core's watch with the given fields."""
    made = core.Watch()
    for name, value in fields.items():
        setattr(made, name, value)
    if condition:
        made.set_condition(list(condition))
    return made
