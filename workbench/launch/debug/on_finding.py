"""A debugger for the launches of a program: it opens a terminal where checks find something, or a launch ends early."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from workbench.base.terminal import say
from workbench.launch.debug.control import Attached, LaunchOrders
from workbench.launch.debug.opening import BUDGET
from workbench.launch.debug.session import DebugSession
from workbench.launch.debug.terminal import SessionTerminal, typed_lines
from workbench.ptx import PtxKernel
from workbench.ptx.launch import MachineLaunch
from workbench.ptx.machine import core


class FindingDebugger:
    """Stops every launch with checks at its first finding, and at a fault, and runs the commands that are typed.

    The launch then runs on to its end, and the program with it; after ``quit`` no further launch stops.
    """

    def __init__(self, lines: Callable[[], Iterable[str]] = typed_lines):
        self._lines = lines
        self._over = False

    def attach(self, kernel: PtxKernel, launch: MachineLaunch) -> Any:
        """Return the core's debugger of a launch with checks; None for one in an order from a seed."""
        if self._over or not launch.options.checks or launch.options.schedule is not None:
            return None
        attached = Attached(kernel, launch, core.Debugger(BUDGET))
        threading.Thread(target=self._watch, args=(attached,), name="workbench debug", daemon=True).start()
        return attached.debugger

    def detach(self) -> None:
        """Let the program go on."""

    def _watch(self, attached: Attached) -> None:
        orders = LaunchOrders(attached, BUDGET)
        try:
            orders.wait()
            orders.order(findings=True)
            if attached.debugger.finding is not None:
                self._open(orders)
        finally:
            if not orders.is_closed:
                orders.finish()

    def _open(self, orders: LaunchOrders) -> None:
        orders.debugger.lines = orders.attached.code.line_numbers
        session = DebugSession(orders)
        place = session.where
        say(place.finding.message if place.finding else place)
        say(f"{place}\nThe launch stands there: help lists the commands, quit lets the program run on.")
        terminal = SessionTerminal(session)
        for shown in terminal.run(self._lines()):
            say(shown)
        session.detach()
        self._over = True
