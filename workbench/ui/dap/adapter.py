"""A debug adapter over a `DebugSession`: requests of an editor become commands of the session.

A launch that has ended stands still, too, and can go back; to go on from there ends the client's session.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from workbench.errors import ArgumentError, WorkbenchError
from workbench.launch.debug import DebugPlace, DebugSession, Stop
from workbench.ui.dap.protocol import Connection, ProtocolError
from workbench.ui.dap.views import SessionViews

Arguments = Mapping[str, Any]
Opener = Callable[[Arguments], DebugSession]
"""Function from the arguments of a launch request to a session."""

_FILTERS = {
    "nan": (Stop(births="nan"), "Birth of a NaN"),
    "inf": (Stop(births="inf"), "Birth of an infinity"),
    "barrier": (Stop(barrier=True), "Barriers, and waits for copies"),
    "finding": (Stop(finding=True), "Findings of the checks"),
}
_CAPABILITIES = {
    "supportsConfigurationDoneRequest": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsStepBack": True,
    "supportsSteppingGranularity": True,
    "supportsDataBreakpoints": True,
    "supportsEvaluateForHovers": True,
    "supportsTerminateRequest": True,
    "exceptionBreakpointFilters": [{"filter": name, "label": label} for name, (_, label) in _FILTERS.items()],
}
_ACCESSES: dict[str, Literal["read", "write", "access"]] = {"read": "read", "write": "write", "readWrite": "access"}
_LAST_WRITE = "last_write "


class DebugAdapter:
    """Serves one client until it disconnects.

    Args:
        connection: messages to and from the client.
        open_session: function that opens the session when the client asks for a launch.
    """

    def __init__(self, connection: Connection, open_session: Opener):
        self._connection, self._open = connection, open_session
        self._launched: tuple[DebugSession, SessionViews] | None = None
        self._stops: dict[str, list[Stop]] = {}  # of each source, of data and of exceptions
        self._numbers: dict[Stop, int] = {}
        self._next_number = itertools.count(1)
        self._stop_on_entry = True
        self._over = False

    def serve(self) -> None:
        """Answer requests until the client disconnects or hangs up. Raises ProtocolError for what is none."""
        try:
            while not self._over and (request := self._connection.receive()) is not None:
                self._answer(request)
        finally:
            if self._launched is not None:
                self._session.close()

    def _answer(self, request: dict[str, Any]) -> None:
        command = request.get("command")
        if request.get("type") != "request" or not isinstance(request.get("seq"), int):
            raise ProtocolError(f"a message of the client is no request: {str(request)[:80]}")
        try:
            if command in _MOVES:
                self._session  # noqa: B018  there is one
                self._connection.respond(request)
                self._move(_MOVES[command], (request.get("arguments") or {}).get("granularity") == "instruction")
            elif command in _HANDLERS:
                body, after = _HANDLERS[command](self, request.get("arguments") or {})
                self._connection.respond(request, body)
                after()
            else:
                self._connection.refuse(request, f"{command!r} is no request that workbench answers")
        except WorkbenchError as error:
            self._connection.refuse(request, str(error))
        except (KeyError, TypeError, ValueError) as error:
            self._connection.refuse(request, f"the arguments of {command}: {type(error).__name__}: {error}")

    @property
    def _session(self) -> DebugSession:
        return self._opened[0]

    @property
    def _views(self) -> SessionViews:
        return self._opened[1]

    @property
    def _opened(self) -> tuple[DebugSession, SessionViews]:
        if self._launched is None:
            raise ArgumentError("request", "one before launch", "launch first", "Send initialize, then launch.")
        return self._launched

    # -- beginning and end: each returns the body of the response, and what follows it -------------------------------

    def initialize(self, arguments: Arguments) -> Answer:
        """Answer with the capabilities."""
        return _CAPABILITIES, _nothing

    def launch(self, arguments: Arguments) -> Answer:
        """Open the session."""
        session = self._open(arguments)
        self._launched = session, SessionViews(session)
        self._stop_on_entry = bool(arguments.get("stopOnEntry", True))
        return {}, lambda: self._connection.event("initialized")

    def configuration_done(self, arguments: Arguments) -> Answer:
        """Stay at the first instruction, or go on to the first stop."""
        self._session  # noqa: B018  there is one
        return {}, lambda: self._stopped("entry") if self._stop_on_entry else self._move(_go, False)

    def disconnect(self, arguments: Arguments) -> Answer:
        """End."""
        self._over = True
        return {}, _nothing

    def terminate(self, arguments: Arguments) -> Answer:
        """Tell the client that the launch is over."""
        return {}, lambda: self._connection.event("terminated")

    # -- breakpoints -------------------------------------------------------------------------------------------------

    def set_breakpoints(self, arguments: Arguments) -> Answer:
        """Replace the stops at lines of one source."""
        path = arguments["source"].get("path") or arguments["source"].get("name") or ""
        asked = arguments.get("breakpoints") or []

        def made(one: Arguments) -> Stop:
            return Stop(int(one["line"]), path, one.get("condition") or "", skip=_skipped(one.get("hitCondition")))

        answers = self._replaced(f"source {path}", asked, made)
        rows = [{**answer, "line": one["line"]} for answer, one in zip(answers, asked, strict=True)]
        return {"breakpoints": rows}, _nothing

    def data_breakpoint_info(self, arguments: Arguments) -> Answer:
        """Say whether accesses to a name can be stopped at."""
        name = arguments["name"]
        found = self._tried(lambda: Stop(access="write", of=name))
        if isinstance(found, str):
            return {"dataId": None, "description": found}, _nothing
        return {"dataId": name, "description": name, "accessTypes": [*_ACCESSES]}, _nothing

    def set_data_breakpoints(self, arguments: Arguments) -> Answer:
        """Replace the stops at accesses to memory."""

        def made(one: Arguments) -> Stop:
            access, skip = _ACCESSES[one.get("accessType", "write")], _skipped(one.get("hitCondition"))
            return Stop(access=access, of=one["dataId"], when=one.get("condition") or "", skip=skip)

        return {"breakpoints": self._replaced("data", arguments["breakpoints"], made)}, _nothing

    def set_exception_breakpoints(self, arguments: Arguments) -> Answer:
        """Replace the stops at births of NaN and infinity, at barriers and findings."""
        made = self._replaced("exceptions", arguments.get("filters") or [], lambda name: _FILTERS[name][0])
        return {"breakpoints": made}, _nothing

    def _replaced(self, kind: str, asked: Sequence[Any], make: Callable[[Any], Stop]) -> list[dict[str, Any]]:
        """Replace the stops of one kind; return the breakpoints that the protocol shows for them."""
        made = [self._tried(lambda one=one: make(one)) for one in asked]  # type: ignore[misc]
        self._stops[kind] = [one for one in made if isinstance(one, Stop)]
        self._session.remove()
        for stop in itertools.chain.from_iterable(self._stops.values()):
            self._session.stop(stop)
        rows: list[dict[str, Any]] = []
        for one in made:
            number = next(self._next_number)
            if isinstance(one, Stop):
                self._numbers[one] = number
                rows.append({"id": number, "verified": True})
            else:
                rows.append({"id": number, "verified": False, "message": one})
        return rows

    def _tried(self, make: Callable[[], Stop]) -> Stop | str:
        """Return a stop that the session takes, or why it takes none."""
        try:
            stop = make()
            self._session.stop(stop)
            self._session.remove(stop)
        except WorkbenchError as error:
            return str(error)
        return stop

    # -- moving ------------------------------------------------------------------------------------------------------

    def pause(self, arguments: Arguments) -> Answer:
        """Do nothing: requests are answered one after the other, so that the launch stands still."""
        return {}, _nothing

    def _move(self, go: Callable[[DebugSession, bool], DebugPlace], by_instruction: bool) -> None:
        session = self._session
        ended = session.status == "ended"
        try:
            place = go(session, by_instruction)
        except WorkbenchError as error:
            self._connection.event("output", category="stderr", output=f"{error}\n")
            self._stopped("pause")
            return
        if ended and place.status == "ended":
            self._connection.event("terminated")
            return
        hit = next((one for one in session.stops if str(one) == place.why), None)
        if place.status == "fault" or place.finding is not None or (hit and (hit.births or hit.barrier)):
            self._stopped("exception", hit)
        elif hit is None:
            self._stopped("step" if place.status == "stopped" else "pause")
        else:
            self._stopped("data breakpoint" if hit.access else "breakpoint", hit)

    def _stopped(self, reason: str, hit: Stop | None = None) -> None:
        self._views.forget()
        place = self._session.where
        numbers = [self._numbers[hit]] if hit in self._numbers else []
        text = place.why if place.finding is None else str(place.finding)
        if place.status == "ended":
            text = "the launch has ended: step back, or continue to leave" + (f" ({text})" if text else "")
        self._connection.event(
            "stopped", reason=reason, description=text, text=text, threadId=self._views.current_thread(),
            allThreadsStopped=True, hitBreakpointIds=numbers,
        )  # fmt: skip

    # -- looking -----------------------------------------------------------------------------------------------------

    def threads(self, arguments: Arguments) -> Answer:
        """Answer with the warps."""
        return {"threads": self._views.threads()}, _nothing

    def stack_trace(self, arguments: Arguments) -> Answer:
        """Answer with the groups of lanes of a warp."""
        frames = self._views.frames(int(arguments["threadId"]))
        return {"stackFrames": frames, "totalFrames": len(frames)}, _nothing

    def scopes(self, arguments: Arguments) -> Answer:
        """Answer with the kinds of values that there are."""
        return {"scopes": self._views.scopes(int(arguments["frameId"]))}, _nothing

    def variables(self, arguments: Arguments) -> Answer:
        """Answer with the rows below a scope or a variable."""
        start, count = int(arguments.get("start") or 0), int(arguments.get("count") or 0)
        return {"variables": self._views.rows(int(arguments["variablesReference"]), start, count)}, _nothing

    def evaluate(self, arguments: Arguments) -> Answer:
        """Answer with a value; in the console ``last_write y[2]`` goes back to where it was written."""
        text = str(arguments["expression"]).strip()
        if arguments.get("context") == "repl" and text.startswith(_LAST_WRITE):
            place = self._session.last_write(text.removeprefix(_LAST_WRITE).strip())
            return {"result": str(place), "variablesReference": 0}, lambda: self._stopped("goto")
        row = self._views.evaluate(text, arguments.get("frameId"))
        below = row["variablesReference"]
        return {"result": row["value"], "type": row["type"], "variablesReference": below}, _nothing


Answer = tuple[dict[str, Any], Callable[[], None]]
"""Body of a response, and what to do once it has been sent."""


def _nothing() -> None:
    pass


def _go(session: DebugSession, by_instruction: bool) -> DebugPlace:
    return session.go() if session.stops else session.to_end()


_HANDLERS: dict[str, Callable[[DebugAdapter, Arguments], Answer]] = {
    "initialize": DebugAdapter.initialize,
    "launch": DebugAdapter.launch,
    "configurationDone": DebugAdapter.configuration_done,
    "disconnect": DebugAdapter.disconnect,
    "terminate": DebugAdapter.terminate,
    "setBreakpoints": DebugAdapter.set_breakpoints,
    "dataBreakpointInfo": DebugAdapter.data_breakpoint_info,
    "setDataBreakpoints": DebugAdapter.set_data_breakpoints,
    "setExceptionBreakpoints": DebugAdapter.set_exception_breakpoints,
    "pause": DebugAdapter.pause,
    "threads": DebugAdapter.threads,
    "stackTrace": DebugAdapter.stack_trace,
    "scopes": DebugAdapter.scopes,
    "variables": DebugAdapter.variables,
    "evaluate": DebugAdapter.evaluate,
}
_MOVES: dict[str, Callable[[DebugSession, bool], DebugPlace]] = {
    "continue": _go,
    "reverseContinue": lambda session, _: session.go_back(),
    "next": lambda session, by_instruction: session.next_instruction() if by_instruction else session.step(),
    "stepIn": lambda session, _: session.next_instruction(),
    "stepOut": lambda session, _: session.next_block(),
    "stepBack": lambda session, by_instruction: session.previous_instruction() if by_instruction else session.back(),
}


def _skipped(condition: str | None) -> int:
    """Return how many hits to pass over for a hit condition, the number of the hit at which to stop."""
    if not condition:
        return 0
    if not condition.strip().isdecimal() or int(condition) < 1:
        raise ArgumentError("hitCondition", repr(condition), "the number of a hit, from 1", "Write 3 for the third.")
    return int(condition) - 1
