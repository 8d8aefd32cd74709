"""The caller's side of another process: start it, ask it, end it, and raise an error if it ends by itself."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from workbench.base.home import PACKAGE
from workbench.base.processes.channel import Channel, TooLong
from workbench.base.processes.deadline import CpuDeadline, Deadline
from workbench.base.processes.ending import end_descendants, end_marked, how_ended, kill_group
from workbench.base.processes.forked_child import ForkedChild
from workbench.base.processes.output import ProcessOutput
from workbench.errors import WorkbenchError

START_SECONDS = 600.0
"""Seconds that a new process may take until it answers calls; not part of any call's limit."""

MOST_JSON_BYTES = 64 << 20
"""Longest answer, in bytes, that is accepted from a process that is not trusted."""

_KILLED_SECONDS = 5.0
"""Seconds to wait for a process that was killed or has closed its connection; it takes milliseconds."""

_LAST_LINES, _LONGEST_LINE = 8, 2000
"""Number of a process's last printed lines that the error about its end reports, and characters of each."""

# It uses the caller's import path, in its order, or (bare) Python's own path and this package. -P keeps the interpreter
# from adding a folder of its own.
_PROGRAM = """
import json, sys
path, fd, function, arguments = map(json.loads, sys.argv[1:])
sys.path[:] = path or [*sys.path, {package!r}]
from workbench.base.processes.starting import run
run(fd, function, arguments)
"""


class ProcessEnded(WorkbenchError):
    """The process has ended: it crashed, exited or was killed. The message says which.

    ``status`` is its return code as in `subprocess.Popen`, None if unknown.
    """

    def __init__(self, message: str, status: int | None = None):
        self.status = status
        super().__init__(message)


class ProcessTimeout(WorkbenchError):
    """No answer came within the limit."""


class ProcessStartError(WorkbenchError):
    """The process could not be started, or its preparation failed; no call is to blame."""


class BadAnswer(WorkbenchError):
    """A process that is not trusted sent an answer that is not a JSON object, or is too long."""


_MARK = "WORKBENCH_PROCESS_"
_FREE_MARK = _MARK + 32 * "0"
"""A name in the environment of a marked process, which a fork of it replaces by a mark of its own."""


def new_mark() -> str:
    """Return a unique ``NAME=value`` for the environment of a process."""
    return f"{_MARK}{secrets.token_hex(16)}=1"


def _take_mark(mark: str) -> None:
    """Give this process, a fork of a marked one, a mark of its own.

    The kernel shows others the environment that a program was started with: a variable that is set later is not in it.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    name, value = mark.partition("=")[0], libc.getenv(_FREE_MARK.encode())
    if value is None:
        raise WorkbenchError(f"{_FREE_MARK} is missing in the environment of a process that a marked one forked.")
    ctypes.memmove(value - len(_FREE_MARK) - 1, name.encode(), len(name))
    del os.environ[_FREE_MARK]
    os.environ[name] = "1"


class Peer(ABC):
    """A process that exchanges framed messages with this one, from the caller's side.

    ``watch`` is a descriptor that becomes readable when the process ends, even if another process holds its socket.
    """

    def __init__(self, channel: Channel, watch: int | None = None):
        self._channel, self._watch = channel, watch

    def send(self, content: bytes, seconds: float | None = None, gives: Sequence[int] = ()) -> None:
        """Send one message. Raises ProcessTimeout if it is not taken within ``seconds``, and ProcessEnded."""
        try:
            self._channel.send(content, seconds, gives)
        except TimeoutError:
            raise ProcessTimeout(f"the process did not read the request within {seconds:g} s") from None
        except OSError:
            raise self.ended() from None

    def receive(
        self, deadline: Deadline | None = None, most: int | None = None, takes: list[int] | None = None
    ) -> bytes:
        """Return the next message. Raises ProcessTimeout, ProcessEnded, and BadAnswer for more than ``most`` bytes."""
        try:
            content = self._channel.receive(deadline, most=most, watch=self._watch, fds=takes)
        except TimeoutError:
            raise ProcessTimeout(str(deadline)) from None
        except TooLong as error:
            raise BadAnswer(str(error)) from None
        except OSError:
            content = None
        if content is None:
            raise self.ended()
        return content

    def answers(self, seconds: float) -> bool:
        """Return True once a message has begun to arrive or the process has ended, False after ``seconds``."""
        return self._channel.readable(seconds, self._watch)

    def ask(
        self,
        content: bytes,
        seconds: float | None = None,
        most: int | None = None,
        *,
        gives: Sequence[int] = (),
        takes: list[int] | None = None,
    ) -> bytes:
        """Send one message and return the next one that comes, both within ``seconds``.

        The descriptors ``gives`` go with the message; those that come back are added to ``takes``.
        """
        deadline = None if seconds is None else Deadline(seconds)
        self.send(content, seconds, gives)
        return self.receive(deadline, most, takes)

    def json(self, seconds: float) -> dict[str, Any]:
        """Return the next message, a JSON object, of a process that is not trusted. Raises BadAnswer for another.

        ``seconds`` of CPU time is the limit (`workbench.base.busy`).
        """
        content = self.receive(self.cpu_deadline(seconds), MOST_JSON_BYTES)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            raise BadAnswer(f"{content[:60]!r} is not JSON") from None
        if not isinstance(found, dict):
            raise BadAnswer(f"{content[:60]!r} is not a JSON object")
        return found

    def cpu_deadline(self, seconds: float) -> Deadline:
        """Return a deadline in CPU seconds of the process and all that it has started."""
        return CpuDeadline(seconds, self.root)

    @property
    @abstractmethod
    def root(self) -> int:
        """Number, in this process's PID namespace, of the process whose descendants' CPU time counts."""

    @abstractmethod
    def ended(self) -> ProcessEnded:
        """End what is left of the process; return the error that tells how it ended by itself."""

    @abstractmethod
    def end(self) -> None:
        """Kill the process and what it has started, whatever it is doing; a second call does nothing."""


class Process(Peer):
    """A Python process that runs ``function(channel, *arguments)``.

    It is spawned, not forked (but see `forked`), because a CUDA context does not survive a fork. It has a session of
    its own, so that only the caller gets Ctrl-C. Of its output the last 1 MiB are kept; if it ends by itself, the
    error's message has the last lines.

    Args:
        function: ``"module:name"``, or ``"file.py:name"``.
        arguments: values that JSON can represent.
        variables: variables that are set in its environment.
        within: command that is put in front of its own.
        mark: result of `new_mark`, by which all descendants, also in other sessions, are found and ended with it.
        bare: True to let it import only the standard library and this package, whatever the caller's folder and
            settings are.
    """

    def __init__(
        self,
        function: str,
        *arguments: object,
        variables: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
        mark: str = "",
        bare: bool = False,
    ):
        self._mark = mark
        self._output = ProcessOutput()
        environment = {name: value for name, value in os.environ.items() if not (bare and name.startswith("PYTHON"))}
        environment |= {
            **(variables or {}),
            **(dict.fromkeys((mark.partition("=")[0], _FREE_MARK), "1") if mark else {}),
        }
        ours, theirs = socket.socketpair()
        program = _PROGRAM.format(package=str(PACKAGE.parent))
        given = [] if bare else sys.path, theirs.fileno(), function, arguments
        self._popen: subprocess.Popen[bytes] | ForkedChild
        with theirs:
            self._popen = subprocess.Popen(
                [
                    *(*within, sys.executable, "-P", *(("-s", "-S") if bare else ())),
                    *("-c", program, *map(json.dumps, given)),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output.fd,
                stderr=self._output.fd,
                start_new_session=True,
                env=environment,
            )
        self._begin(ours)

    @classmethod
    def forked(cls, function: Callable[[Channel], object], mark: str) -> Process:
        """Return a fork of this process that runs ``function(channel)`` and shares no open file with it.

        This process has to be one that was started with a mark, or a fork of it, and to have one thread.
        """
        made = cls.__new__(cls)
        made._mark, made._output = mark, ProcessOutput()
        ours, theirs = socket.socketpair()
        with theirs:
            pid = os.fork()
            if pid == 0:
                made._run(function, theirs)
            made._popen = ForkedChild(pid)
        made._begin(ours)
        return made

    def _run(self, function: Callable[[Channel], object], connection: socket.socket) -> NoReturn:
        """Do the work of a fork in it."""
        try:
            os.setsid()
            for fd in (1, 2):
                os.dup2(self._output.fd, fd)
            own = connection.fileno()
            os.closerange(3, own)
            os.closerange(own + 1, os.sysconf("SC_OPEN_MAX"))
            _take_mark(self._mark)
            function(Channel(connection))
        finally:
            os._exit(1)

    def _begin(self, ours: socket.socket) -> None:
        self._output.begin()
        self._ready = self._over = False
        super().__init__(Channel(ours))

    @property
    def pid(self) -> int:
        """Process number (PID)."""
        return self._popen.pid

    @property
    def root(self) -> int:
        """Process number (PID)."""
        return self.pid

    @property
    def printed(self) -> int:
        """Number of bytes that the process, and all that it has started, have printed."""
        return self._output.printed

    @property
    def running(self) -> bool:
        """True until the process ends; always False in a fork of the process that started it."""
        return not self._over and self._popen.poll() is None

    def await_start(self) -> None:
        """Wait until the process answers calls. Raises ProcessStartError if it does not come to that."""
        if self._ready:
            return
        try:
            refused = self.receive(Deadline(START_SECONDS)).decode()
        except (ProcessTimeout, ProcessEnded) as error:
            self.end()
            raise ProcessStartError(f"{sys.executable} did not start: {error}") from error
        if refused:
            self.end()
            raise ProcessStartError(refused)
        self._ready = True

    def ended(self) -> ProcessEnded:
        """End what is left of the process; return the error that tells how it ended by itself."""
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._popen.wait(_KILLED_SECONDS)
        reported = self._over
        self.end()
        lines = [] if reported else [line for line in self._output.text().splitlines() if line.strip()]
        how = "closed its connection" if status is None else how_ended(status)
        last = [line[-_LONGEST_LINE:] for line in lines[-_LAST_LINES:]]
        return ProcessEnded("\n".join([f"the process that worked on it {how}", *last]), status)

    def kill(self) -> None:
        """Kill the process. Any thread may call this, also while another one waits for an answer."""
        kill_group(self.pid)

    def end(self) -> None:
        """Kill the process and its group, with a mark all descendants too; a second call does nothing."""
        if self._over:
            return
        self._over = True
        self._channel.close()  # this ends an idle process even where this one may kill no other
        if self._mark:
            end_descendants(self.pid)
        kill_group(self.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_KILLED_SECONDS)
        self._output.close()
        if self._mark:
            end_marked(self._mark, {os.getpid()})

    def forget(self) -> None:
        """Leave the process to the one that started it; call this in a fork of that one."""
        self._over = True
        self._channel.socket.close()
        self._output.forget()
        self._popen.returncode = 0  # not this process's child: nothing to wait for
