"""A process that works for this one, and that can be ended and replaced at any moment.

What may hang, crash or spoil its process (a kernel, a compiler) is called in a `Worker`; the caller only waits. The
process is spawned, not forked, because a CUDA context does not survive a fork. It lives from call to call and keeps
what it has made; after a hang or a crash the next call finds a new one. On Linux it also ends with its caller, whatever
it is doing then.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import gc
import importlib
import json
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import IO, Any, NamedTuple, TypeVar

from workbench.errors import WorkbenchError

START_SECONDS = 600.0
"""How long a new process may take until it can be asked; not part of any call's limit."""

_Result = TypeVar("_Result")

_LAST_LINES = 8
"""Of what a process printed before it crashed, this many lines are told."""

# The caller's import path, in its order; -P keeps the interpreter from adding a folder of its own.
_PROGRAM = """
import json, sys
path, imports, *numbers = map(json.loads, sys.argv[1:])
sys.path[:] = path
from workbench.base.worker import serve
serve(imports, *numbers)
"""


class WorkerEnded(WorkbenchError):
    """The process ended during a call: a crash, an exit, or somebody killed it. The message says how."""


class WorkerStartError(WorkbenchError):
    """The process could not be made, or not import what it needs: no call's doing."""


class WorkerTimeout(WorkbenchError):
    """A call took longer than its limit; its process was ended."""


class RemoteError(WorkbenchError):
    """A call raised what cannot be sent back as it is; the message has its text and place."""


class _Process(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: Connection
    said: IO[bytes]
    """What it printed."""


class Worker:
    """Calls functions in another process, one at a time.

    ``start`` begins to make the process without waiting for it, so that it is ready when the first call comes;
    ``imports`` are modules that it imports by then.
    """

    def __init__(self, imports: Sequence[str] = ()):
        self._imports = list(imports)
        self._running: _Process | None = None
        self._ready = False
        self._calling = threading.Lock()

    def start(self) -> None:
        """Make the process, unless it is there."""
        self._started()

    def _started(self) -> _Process:
        if self._running is not None:
            return self._running
        ours, theirs = socket.socketpair()
        said = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        with theirs:
            arguments = (sys.path, self._imports, theirs.fileno(), os.getpid())
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *map(json.dumps, arguments)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,  # Ctrl-C is the caller's business
            )
        self._running = _Process(process, Connection(ours.detach()), said)
        self._ready = False
        return self._running

    def call(self, function: Callable[..., _Result], *arguments: object, seconds: float | None = None) -> _Result:
        """``function(*arguments)``, computed there; both must be such that ``pickle`` takes them.

        What the function raises is raised here. Raises WorkerTimeout after ``seconds`` (None: no limit) and WorkerEnded
        if the process is gone; the next call has a new one. Raises WorkerStartError if there is none to be had.
        """
        with self._calling:
            running = self._started()
            try:
                self._await_start(running)
                with contextlib.suppress(BrokenPipeError):
                    running.connection.send_bytes(pickle.dumps((function, arguments)))
                kind, value = _answer(running, seconds, getattr(function, "__name__", str(function)))
            except BaseException:
                # On Ctrl-C, too: its answer to this call must not be taken for that to the next one.
                self._end()
                raise
        if kind == "raised":
            raise value
        return value

    def close(self) -> None:
        """End the process, whatever it is doing; a call that another thread waits for raises WorkerEnded."""
        running = self._running
        if running is not None:
            running.process.kill()
        with self._calling:
            self._end()

    def _end(self) -> None:
        if self._running is None:
            return
        self._running.connection.close()
        self._running.process.kill()
        self._running.process.wait()
        self._running.said.close()
        self._running = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_start(self, running: _Process) -> None:
        if self._ready:
            return
        try:
            _answer(running, START_SECONDS, "starting")
        except (WorkerTimeout, WorkerEnded) as error:
            raise WorkerStartError(f"{sys.executable} did not start as a worker: {error}") from error
        self._ready = True


def _answer(running: _Process, seconds: float | None, what: str) -> tuple[str, Any]:
    try:
        if not running.connection.poll(seconds):
            raise WorkerTimeout(f"stopped after {seconds:g} s, in {what}")
        return pickle.loads(running.connection.recv_bytes())
    except (EOFError, ConnectionError):
        raise WorkerEnded(_how_it_ended(running)) from None


def _how_it_ended(running: _Process) -> str:
    try:
        code = running.process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "the process that worked on it closed its connection"
    running.said.seek(0)
    lines = [line for line in running.said.read().decode(errors="replace").splitlines() if line.strip()]
    return "\n".join([f"the process that worked on it {how_ended(code)}", *lines[-_LAST_LINES:]])


def how_ended(returncode: int) -> str:
    """What `subprocess.Popen.returncode` says, as the rest of a sentence about the process."""
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name} ({signal.strsignal(-returncode)})"
    except ValueError:
        return f"was ended by signal {-returncode}"


def serve(imports: Sequence[str], fd: int, parent: int) -> None:
    """The worker's side: answer calls until the caller hangs up."""
    _end_with(parent)
    faulthandler.enable(all_threads=False)
    gc.disable()  # what is imported stays: no need to look at it while it is, or later
    for name in imports:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    connection = Connection(fd)
    with contextlib.suppress(EOFError, ConnectionError):  # the caller has hung up
        connection.send_bytes(pickle.dumps(("ready", None)))
        while True:
            request = connection.recv_bytes()
            try:
                function, arguments = pickle.loads(request)
                answer = "returned", function(*arguments)
            except Exception as error:
                answer = "raised", error
            connection.send_bytes(_packed(*answer))


@functools.cache
def end_with_pool(parent: int) -> None:
    """In a worker of a process pool that ``parent`` made: end when that process does. By itself such a worker goes on,
    and waits for more, for good: it holds both ends of the pipe that its tasks come through."""
    made_by = multiprocessing.parent_process()
    if made_by is None or made_by.pid != parent:
        return

    def end_after_it() -> None:
        made_by.join()
        os._exit(0)

    threading.Thread(target=end_after_it, name="end with pool", daemon=True).start()


def _packed(kind: str, value: object) -> bytes:
    """The answer as bytes; one that cannot be pickled, or not be unpickled, as a text."""
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


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends: it may be in a call that never returns then."""
    with contextlib.suppress(AttributeError, OSError):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
