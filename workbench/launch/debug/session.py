"""A session over one launch: forward and backward, stops, and where it stands."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from workbench.errors import ArgumentError
from workbench.launch.debug.control import Hit, LaunchOrders
from workbench.launch.debug.memory import DebugMemory
from workbench.launch.debug.places import DebugPlace, lanes_of
from workbench.launch.debug.state import SessionState
from workbench.launch.debug.stops import Stop, StopMaker, stop_of, watch_of
from workbench.ptx.core_result import CoreFinding
from workbench.ptx.findings import called, describe
from workbench.ptx.options import coordinates

StopLike = int | str | Stop


class DebugSession(SessionState):
    """A launch that stands still between instructions, and goes forward or back on command.

    Every command returns the `DebugPlace` where the launch then stands, as `where` does. An index counts the
    instructions that all warps have issued; the same launch has the same history in every run. `SessionState` has the
    methods that read.

    A session runs the launch in a thread of its own, on the arrays that it was called with: they hold what the launch
    has written up to where it stands. Use it as a context manager, or call `close` or `finish`.
    """

    def __init__(self, control: LaunchOrders, stops: Sequence[StopLike] = ()):
        self._control = control
        attached = control.attached
        launch = attached.launch
        self.code, self.kernel, self.launch = attached.code, attached.kernel, launch
        self.grid, self.block = launch.grid, launch.block
        self.memory = DebugMemory(launch, self.code)
        self._maker = StopMaker(self.code, self.memory, self.block, self.grid)
        self.stops: list[Stop] = []
        """Stops that `go` and `go_back` look for."""
        self._why = "the launch begins"
        self._finalizer = weakref.finalize(self, control.close)
        for stop in stops:
            self.stop(stop)
        if stops:
            self.go()

    # -- stops -------------------------------------------------------------------------------------------------------

    def stop(self, at: StopLike, **fields: Any) -> Stop:
        """Add a stop and return it.

        ``at`` is a line number or a text: ``"12 if lane == 3 and s > 1e30"``, ``"write out[3, 5]"``, ``"read
        shared[0:64]"``, ``"nan"``, ``"finding"`` (of a session with checks), ``"barrier"``. ``fields`` are those of
        `Stop`, such as ``block=(0, 1)`` and ``warp=2``. Raises ArgumentError for a line without code, a condition that
        does not parse, a name without a value there, and memory that the launch has not.
        """
        made = stop_of(at, **fields)
        self._watches([made])
        self.stops.append(made)
        return made

    def remove(self, stop: Stop | None = None) -> None:
        """Remove a stop; all without one."""
        if stop is None:
            self.stops.clear()
        else:
            self.stops.remove(stop)

    def _watches(self, stops: Sequence[Stop]) -> tuple[list[Any], list[Stop]]:
        """Return the core's watches, and the stop of each."""
        for one in stops:
            if one.finding and not self.launch.options.checks:
                raise ArgumentError("stop", "finding", "a stop of a session with checks", "Pass checks=True.")
        block = self._current[0] if self._current else -1
        pairs = [
            (watch, one) for one in stops if not one.finding
            for watch in self._maker.watches(one, block, self._control.debugger)
        ]  # fmt: skip
        return [watch for watch, _ in pairs], [one for _, one in pairs]

    # -- forward -----------------------------------------------------------------------------------------------------

    def go(self, *stops: StopLike, **fields: Any) -> DebugPlace:
        """Go on to the next of the given stops, or of the session's `stops`; to the end if none comes."""
        wanted = [stop_of(one, **fields) for one in stops] or self.stops
        watches, of_watch = self._watches(wanted)
        hit = self._control.forward(watches, findings=any(one.finding for one in wanted))
        return self._arrived(hit, of_watch)

    def step(self, lines: int = 1) -> DebugPlace:
        """Go on to the next source line of this warp, or to another warp once it has ended."""
        for _ in range(self._times("lines", lines)):
            watch = self._in_warp(pcs=self.code.pcs_with_line, enters=True, outlives=True)
            self._control.forward([watch])
        return self._arrived(None, [], "a step")

    def next_instruction(self, count: int = 1) -> DebugPlace:
        """Go on by so many instructions, of whatever warp comes next."""
        self._control.goto(self.index + self._times("count", count))
        return self._arrived(None, [], "a step")

    def next_barrier(self) -> DebugPlace:
        """Go on to the next place where this warp waits for others or for a copy."""
        self._control.forward([self._in_warp(pcs=self._maker.waiting_pcs(), outlives=True)])
        return self._arrived(None, [], "a barrier")

    def next_block(self) -> DebugPlace:
        """Go on to the beginning of the next block."""
        block = self._current[0] if self._current else -1
        while self._current is not None and self._current[0] == block and self.status == "stopped":
            ended = {"block": block, "warp": self._current[1], "outlives": True, "pcs": [-1]}
            self._control.forward([watch_of(ended)])
        return self._arrived(None, [], "a block")

    def goto(self, index: int) -> DebugPlace:
        """Go on or back to an index of the history; to the end if it has not so many."""
        if index < 0:
            raise ArgumentError("index", index, "0 or more", "Instructions are counted from 0.")
        self._control.goto(index)
        return self._arrived(None, [], f"instruction {index:,}")

    def to_end(self) -> DebugPlace:
        """Go on to the end of the launch, past all stops."""
        if self.status == "stopped":
            self._control.order()
        return self._arrived(None, [], "")

    # -- back --------------------------------------------------------------------------------------------------------

    def back(self, lines: int = 1) -> DebugPlace:
        """Go back to where this warp came to its latest line before this one."""
        for _ in range(self._times("lines", lines)):
            if self._control.back([self._in_warp(pcs=self.code.pcs_with_line, enters=True)]) is None:
                break
        return self._arrived(None, [], "a step back")

    def previous_instruction(self, count: int = 1) -> DebugPlace:
        """Go back by so many instructions, of whatever warp came before."""
        return self.goto(max(0, self.index - self._times("count", count)))

    def go_back(self, *stops: StopLike, **fields: Any) -> DebugPlace:
        """Go back to the last of the given stops, or of the session's `stops`; to the beginning if there is none."""
        wanted = [stop_of(one, **fields) for one in stops] or self.stops
        watches, of_watch = self._watches([one for one in wanted if not one.finding])
        hit = self._control.back(watches) if watches else None
        if hit is None:
            self._control.goto(0)
        return self._arrived(hit, of_watch, "the launch begins")

    def last_write(self, target: str, *, lane: int | None = None, warp: int | None = None) -> DebugPlace:
        """Go back to the instruction that wrote a register, a variable or memory last.

        ``target`` is a register (``"%f3"``) or a variable of the source, of this warp and of ``lane`` (default: those
        that are active), or memory as `stop` takes it: ``"out[3, 5]"``, ``"shared[0:4]"``. A copy writes where it
        lands; `DebugPlace.why` names the line that issued it. Raises ArgumentError if nothing has written it so far.
        """
        self._refuse_outside(target)
        where = ""
        if target.startswith("%") or target in self.code.variables:
            watch = self._writes_of_register(target, lane, warp)
            where = f"in warp {watch.warp} of the block "
        else:
            (watch,) = self._watches([Stop(access="write", of=target)])[0]
        hit = self._control.back([watch])
        if hit is None:
            raise ArgumentError(
                "target", f"{target!r}, which nothing {where}has written so far", "what the launch wrote before",
                "Memory holds what it held before the launch; of a register name another warp= or lane=.",
            )  # fmt: skip
        return self._arrived(hit, [], f"the last write of {target}")

    def _refuse_outside(self, target: str) -> None:
        if self._current is None and (target.startswith("%") or target in self.code.variables):
            remedy = "Go back into the launch first, with last_write() of an element of its result."
            raise ArgumentError("target", repr(target), "memory, where the launch has ended", remedy)

    def _writes_of_register(self, name: str, lane: int | None, warp: int | None) -> Any:
        block, own, pc, lanes = self._current or (0, 0, 0, 0)
        mask = (lanes or 0xFFFF_FFFF) if lane is None else 1 << lane
        of_variable = self.code.variables.get(name)  # also of one whose register holds something else by now
        writing = of_variable or self.code.writers(self._register(name, pc), pc)
        return watch_of({"block": block, "warp": own if warp is None else warp, "lanes": mask, "pcs": writing})

    # -- where it stands ---------------------------------------------------------------------------------------------

    def _in_warp(self, **fields: Any) -> Any:
        here = self._current
        if here is None:
            return watch_of({name: value for name, value in fields.items() if name != "outlives"})
        return watch_of({"block": here[0], "warp": here[1], **fields})

    @staticmethod
    def _times(name: str, count: int) -> int:
        if count < 1:
            raise ArgumentError(name, count, "1 or more", "The other direction has a method of its own.")
        return count

    def _arrived(self, hit: Hit | None, of_watch: Sequence[Stop], why: str = "") -> DebugPlace:
        if hit is not None and hit.watch < len(of_watch):
            why = str(of_watch[hit.watch])
        if hit is not None and self._current is not None and hit.pc != self._current[2]:
            thread = 32 * hit.warp + (hit.lanes & -hit.lanes).bit_length() - 1
            why += f"; the copy that thread {thread} issued at {self.code.label(hit.pc)}"
        self._why = why
        return self.where

    @property
    def where(self) -> DebugPlace:
        """The place where the launch stands."""
        status, current = self.status, self._current
        finding = self._finding()
        why = self._why if finding is None else finding.kind
        if status == "ended" or current is None:
            return DebugPlace(status, self.index, why, finding=finding)
        block, warp, pc, mask = current
        file, line = self.code.places[pc]
        return DebugPlace(
            status, self.index, why, coordinates(block, self.grid), warp, lanes_of(mask), pc, file, line,
            self.code.text_of(pc), self.code.instruction(pc), self.code.ptx_line(pc), finding,
        )  # fmt: skip

    def _finding(self) -> Any:
        row = self._control.debugger.finding
        if row is None or self.status == "ended":
            return None
        named = called(self.launch.memory.named(), self.launch.names, self.launch.values)
        return describe(self.kernel, CoreFinding(**row), self.grid, self.block, named)

    def finish(self) -> Any:
        """Let the launch run to its end, and close the session; return its report.

        Raises KernelFault if the launch ends with a fault.
        """
        return self._control.finish()

    def close(self) -> None:
        """End the launch where it stands."""
        self._control.close()

    def detach(self) -> None:
        """Leave the launch where it stands, for another session or for the caller to end."""
        self._finalizer.detach()

    def __enter__(self) -> DebugSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._control.is_closed:
            return f"<debug session of {self.kernel.name}, closed>"
        return f"<debug session of {self.kernel.name}>\n{self.where}"
