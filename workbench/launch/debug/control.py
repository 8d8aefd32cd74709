"""Orders to a launch that runs in a thread of its own: on to an index, back to one, back to what happened last."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import ArgumentError
from workbench.launch.debug.code import KernelCode
from workbench.ptx import PtxKernel
from workbench.ptx.launch import MachineLaunch
from workbench.ptx.machine import core

_POLL = 0.2  # seconds between two looks for Ctrl-C


@dataclass(frozen=True, slots=True)
class Hit:
    """A match of a watch; ``index`` is that of the instruction that matched."""

    watch: int
    index: int
    pc: int
    block: int
    warp: int
    lanes: int
    past: bool


class LaunchClosed(BaseException):
    """Raised in the thread of the launch to keep its caller from going on once the session is closed."""


@dataclass
class Attached:
    """A launch with the core's debugger of it."""

    kernel: PtxKernel
    launch: MachineLaunch
    debugger: Any

    @functools.cached_property
    def code(self) -> KernelCode:
        """Lines and registers of the kernel."""
        return KernelCode(self.kernel, self.launch.options.fmad)


class LaunchOrders:
    """Orders to one launch that a debugger of the core is attached to."""

    def __init__(self, attached: Attached | None, budget: int):
        self.budget = budget
        self._attached = attached

    @property
    def attached(self) -> Attached:
        """The launch."""
        assert self._attached is not None  # the constructor has waited for it
        return self._attached

    @property
    def debugger(self) -> Any:
        """The core's debugger."""
        return self.attached.debugger

    @property
    def status(self) -> Any:
        """State of the launch, one of ``core.DebuggerStatus``."""
        return self.debugger.status

    @property
    def index(self) -> int:
        """Number of instructions before the one that comes next."""
        return self.debugger.index

    @property
    def is_closed(self) -> bool:
        """True once the launch has gone."""
        return self.status == core.DebuggerStatus.closed

    def wait(self) -> None:
        """Wait until the launch stands; Ctrl-C stops it at its next instruction and is raised."""
        while True:
            try:
                if self.debugger.wait(_POLL):
                    return
            except KeyboardInterrupt:
                self.debugger.pause()
                self.debugger.wait(10.0)
                raise

    def order(
        self, limit: int = core.NO_LIMIT, watches: Sequence[Any] = (), *, remembers: bool = False,
        findings: bool = False, place: int = -1,
    ) -> Hit | None:  # fmt: skip
        """Let the launch run and wait until it stands; return the match that stopped it, or the last one."""
        self._refuse_if_closed()
        self.debugger.go(limit, list(watches), remembers, findings, place, False)
        self.wait()
        found = self.debugger.hit
        return Hit(*found) if found is not None else None

    def forward(self, watches: Sequence[Any], *, findings: bool = False, limit: int = core.NO_LIMIT) -> Hit | None:
        """Run to the first match of a watch; stand before the instruction that matched."""
        hit = self.order(limit, watches, findings=findings)
        if hit is not None and hit.past:
            self.goto(hit.index)
        return hit

    def goto(self, index: int) -> None:
        """Stand before the instruction of an index, or at the end if the launch has not so many."""
        now = self.index
        if index == now and self.status == core.DebuggerStatus.stopped and self.debugger.finding is None:
            return
        if index > now:
            if self.status == core.DebuggerStatus.stopped:
                self.order(index)
            return
        number, _ = self._place_before(index + 1)
        self.order(index, place=number)

    def back(self, watches: Sequence[Any]) -> Hit | None:
        """Go back to the last match of a watch before now; where there is none, stay and return None.

        The history is repeated piece by piece, from the last start of a block on, then from twice as far back.
        """
        here = self.index
        at_end = self.status != core.DebuggerStatus.stopped
        upper, pieces = here, 1
        while upper > 0:
            number, _ = self._place_before(upper)
            number = max(0, number - pieces + 1)
            start = self.debugger.places[number][1]
            hit = self.order(upper, watches, remembers=True, place=number)
            if hit is not None and hit.index < here:
                self.goto(hit.index)
                return hit
            upper, pieces = start, 2 * pieces
        self._return_to(here, at_end)
        return None

    def _return_to(self, index: int, at_end: bool) -> None:
        if at_end:
            self.order()
        else:
            self.goto(index)

    def _place_before(self, index: int) -> tuple[int, int]:
        """Return number and index of the last place to repeat from that is before an index."""
        self._refuse_without_history()
        places = self.debugger.places
        if self.attached.launch.options.checks:  # what checks know of memory begins with the launch
            return 0, places[0][1]
        number = max(number for number, (_, start) in enumerate(places) if start < max(index, 1))
        return number, places[number][1]

    def _refuse_without_history(self) -> None:
        if self.attached.kernel.uses_heap:
            raise ArgumentError(
                "kernel", self.attached.kernel.name, "a kernel without malloc and free to go back in",
                "Start the session again and stop earlier.",
            )  # fmt: skip
        if self.debugger.exhausted:
            raise ArgumentError(
                "budget", f"{self.budget:,} bytes", "as many bytes as the launch overwrites, and half as many again",
                "Start the session again with a larger budget=, or debug a smaller case.",
            )  # fmt: skip

    def _refuse_if_closed(self) -> None:
        if self.is_closed:
            raise ArgumentError("session", "one that is closed", "an open one", "Call wb.debug again.")

    def finish(self) -> Any:
        """Let the launch run to its end, and its caller go on."""
        self._refuse_if_closed()
        while self.status != core.DebuggerStatus.ended:
            self.order()
        self._end()

    def close(self) -> None:
        """End the launch where it stands. Its arrays keep what they hold now."""
        if self._attached is not None and not self.is_closed:
            self._end()

    def _end(self) -> None:
        self.debugger.go(core.NO_LIMIT, [], False, False, -1, True)


class LaunchControl(LaunchOrders):
    """Orders to one launch that runs in a thread of its own.

    ``run`` runs the launch, and all that goes before it and follows, with this object as the debugger of its launches.
    It stops the one of number ``number``, counted from 0; the others run as usual.
    """

    def __init__(self, run: Callable[[LaunchControl], Any], number: int, budget: int):
        super().__init__(None, budget)
        self._number, self._seen = number, 0
        self._ready = threading.Event()
        self._closing = False
        self.error: BaseException | None = None
        self.result: Any = None
        self._run = run
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._work,), name="workbench debug", daemon=True)
        self._thread.start()
        self._wait_until_ready()

    # -- in the launch's thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self.result = self._run(self)
        except LaunchClosed:
            pass
        except BaseException as error:
            self.error = error
        finally:
            if self._attached is not None:
                self._attached.debugger.close()
            self._ready.set()

    def attach(self, kernel: PtxKernel, launch: MachineLaunch) -> Any:
        """Return the core's debugger for the launch that the session is about."""
        self._seen += 1
        if self._seen != self._number + 1:
            return None
        self._attached = Attached(kernel, launch, core.Debugger(self.budget))
        self._attached.debugger.lines = self._attached.code.line_numbers
        self._ready.set()
        return self._attached.debugger

    def detach(self) -> None:
        """Keep the launch's caller from going on if the session was closed."""
        if self._closing:
            raise LaunchClosed

    def _wait_until_ready(self) -> None:
        while not self._ready.wait(_POLL):
            pass
        if self.error is not None:
            raise self.error
        if self._attached is None:
            allowed = f"0 to {self._seen - 1}" if self._seen else "a program that launches a kernel"
            raise ArgumentError("launch", self._number, allowed, "No such launch was made.")
        self.wait()

    def finish(self) -> Any:
        """Let the launch run to its end and its caller go on; return the caller's result."""
        super().finish()
        self._thread.join()
        if self.error is not None:
            raise self.error
        return self.result

    def close(self) -> None:
        """End the launch, and what called it, where it stands."""
        self._closing = True
        super().close()
        self._thread.join()
