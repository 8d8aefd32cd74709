"""A process that calls functions for this one, and that can be ended and replaced at any moment.

A `Worker` calls code that may hang, crash or spoil its process (a kernel, a compiler) while the caller only waits. Its
process lives from call to call and keeps its state; after a hang or a crash the next call has a new one. On Linux it
also ends with its caller, whatever it is doing then. A server that has imported everything can fork it.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from workbench.base.processes.channel import Channel
from workbench.base.processes.ending import end_with
from workbench.base.processes.fork_server import Child, ForkServer
from workbench.base.processes.process import Process, ProcessTimeout
from workbench.errors import WorkbenchError

_Result = TypeVar("_Result")

WORK = "work"
"""The role of a server's copy that answers calls."""

_KILL_AGAIN_SECONDS = 0.05


class RemoteError(WorkbenchError):
    """A call raised an exception that cannot be sent back; the message has its text and place."""


class Worker:
    """A process that calls functions for this one, one at a time.

    `start` begins to make the process without waiting for it, so that it is ready when the first call comes.
    ``imports`` are modules that it imports as it starts, ``variables`` are set in its environment. With a ``server`` it
    is a copy of that in the role `WORK`, whose `Main` is `work`, and has neither.
    """

    def __init__(
        self,
        imports: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        server: ForkServer | None = None,
    ):
        self._imports, self._variables, self._server = list(imports), variables, server
        self._process: Process | Child | None = None
        self._calling = threading.Lock()

    def start(self) -> None:
        """Start the process unless it runs already."""
        if self._server is not None:
            self._server.start()
        else:
            self._started()

    def _started(self) -> Process | Child:
        if self._process is None:
            if self._server is not None:
                self._process = self._server.fork(WORK)
            else:
                given = (__name__ + ":serve", self._imports, os.getpid())
                self._process = Process(*given, variables=self._variables)
        return self._process

    def call(self, function: Callable[..., _Result], *arguments: object, seconds: float | None = None) -> _Result:
        """Return ``function(*arguments)``, computed in the process; ``pickle`` must take both.

        An exception of the function is raised here. Raises ProcessTimeout after ``seconds`` (None: no limit) and
        ProcessEnded if the process is gone; the next call has a new one. Raises ProcessStartError if no process can be
        started.
        """
        with self._calling:
            process = self._started()
            try:
                content = pickle.dumps((function, arguments))
                if isinstance(process, Process):
                    process.await_start()
                else:
                    content = pickle.dumps(content)
                kind, value = pickle.loads(process.ask(content, seconds))
            except ProcessTimeout as error:
                self._end()
                raise ProcessTimeout(f"{error}, in {getattr(function, '__name__', function)}") from None
            except BaseException:
                # On Ctrl-C, too: its answer to this call must not be taken for the answer to the next one.
                self._end()
                raise
        if kind == "raised":
            raise value
        return value

    def close(self) -> None:
        """End the process, whatever it is doing; a call that another thread waits for raises ProcessEnded."""
        self.kill()
        while not self._calling.acquire(timeout=_KILL_AGAIN_SECONDS):
            self.kill()  # again: a call may have begun its process since
        try:
            self._end()
        finally:
            self._calling.release()

    def kill(self) -> None:
        """Kill the process, if there is one, without waiting: a call under way raises ProcessEnded."""
        process = self._process
        if process is not None:
            process.kill()

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(channel: Channel, imports: Sequence[str], parent: int) -> None:
    """Answer calls, on the worker's side, until the caller hangs up."""
    end_with(parent)
    faulthandler.enable(all_threads=False)
    gc.disable()  # imported modules stay: collecting while they load, or later, finds nothing
    for name in imports:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    channel.send(b"")
    while (request := channel.receive()) is not None:
        channel.send(_answered(request))


def work(request: bytes, send: Callable[[bytes], None]) -> None:
    """Answer a call in a server's copy: its `Main`."""
    send(_answered(request))


def _answered(request: bytes) -> bytes:
    """Call the function of a request; return the message with its result, or with what it raised."""
    try:
        function, arguments = pickle.loads(request)
        answer = "returned", function(*arguments)
    except Exception as error:
        answer = "raised", error
    return _packed(*answer)


def _packed(kind: str, value: object) -> bytes:
    """Serialize an answer; one that cannot be pickled and restored becomes a RemoteError with its text."""
    try:
        content = pickle.dumps((kind, value))
        if kind == "raised":
            pickle.loads(content)  # many exceptions can be pickled and not be restored
    except Exception as error:
        broken = value if isinstance(value, BaseException) and kind == "raised" else error
        place = traceback.extract_tb(broken.__traceback__)[-1:] if broken.__traceback__ else ()
        where = "".join(f" ({frame.filename}:{frame.lineno})" for frame in place)
        content = pickle.dumps(("raised", RemoteError(f"{type(broken).__name__}: {broken}{where}")))
    return content
