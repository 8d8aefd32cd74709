"""The caller's side of another process: how it is started, asked and ended, and what is raised where it ends itself."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.processes.channel import Channel, TooLong
from workbench.base.processes.ending import end_descendants, end_marked, how_ended, kill_group
from workbench.errors import WorkbenchError

START_SECONDS = 600.0
"""How long a new process may take until it can be asked; not part of any call's limit."""

MOST_JSON_BYTES = 64 << 20
"""The longest answer that a process may give that is not trusted."""

_KILLED_SECONDS = 5.0
"""How long a process is waited for that was killed, or has closed its connection: milliseconds."""

_LAST_LINES = 8
"""So many lines of what a process printed last are reported where it has ended."""

# With the caller's import path, in its order, or what Python itself has and this package; -P keeps the interpreter from
# adding a folder of its own.
_PROGRAM = """
import json, sys
path, fd, function, arguments = map(json.loads, sys.argv[1:])
sys.path[:] = path or [*sys.path, {package!r}]
from workbench.base.processes.starting import run
run(fd, function, arguments)
"""


class ProcessEnded(WorkbenchError):
    """The process has ended: a crash, an exit, or somebody killed it. The message says how.

    ``status`` is its return code as of `subprocess.Popen`, None where nobody could say.
    """

    def __init__(self, message: str, status: int | None = None):
        self.status = status
        super().__init__(message)


class ProcessTimeout(WorkbenchError):
    """No answer came within the limit."""


class ProcessStartError(WorkbenchError):
    """The process could not be made, or not prepare what it needs: no call's doing."""


class BadAnswer(WorkbenchError):
    """An answer that is no JSON object, or too long, of a process that is not trusted."""


def new_mark() -> str:
    """Return a ``NAME=value`` for the environment of a process that no other one has."""
    return f"WORKBENCH_PROCESS_{secrets.token_hex(16)}=1"


class Peer(ABC):
    """A process that takes framed messages and answers with some; from the caller's side.

    ``watch`` is a descriptor that can be read when it has ended, though another process may have its socket.
    """

    def __init__(self, channel: Channel, watch: int | None = None):
        self._channel, self._watch = channel, watch

    def send(self, content: bytes, seconds: float | None = None, gives: Sequence[int] = ()) -> None:
        """Send one message. Raises ProcessTimeout where it is not taken within ``seconds``, and ProcessEnded."""
        try:
            self._channel.send(content, seconds, gives)
        except TimeoutError:
            raise ProcessTimeout(f"the request was not taken within {seconds:g} s") from None
        except OSError:
            raise self.ended() from None

    def receive(self, seconds: float | None = None, most: int | None = None, takes: list[int] | None = None) -> bytes:
        """Return the next message. Raises ProcessTimeout, ProcessEnded, and BadAnswer for more than ``most`` bytes."""
        try:
            content = self._channel.receive(seconds, most=most, watch=self._watch, fds=takes)
        except TimeoutError:
            raise ProcessTimeout(f"stopped after {seconds:g} s") from None
        except TooLong as error:
            raise BadAnswer(str(error)) from None
        except OSError:
            content = None
        if content is None:
            raise self.ended()
        return content

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

        Descriptors may go with it, and those that come back are added to ``takes``.
        """
        begun = time.monotonic()
        self.send(content, seconds, gives)
        if seconds is None:
            return self.receive(None, most, takes)
        try:
            return self.receive(max(begun + seconds - time.monotonic(), 0), most, takes)
        except ProcessTimeout:
            raise ProcessTimeout(f"stopped after {seconds:g} s") from None

    def json(self, seconds: float) -> dict[str, Any]:
        """Return the next message of a process that is not trusted: a JSON object. Raises BadAnswer for another."""
        content = self.receive(seconds, MOST_JSON_BYTES)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            raise BadAnswer(f"{content[:60]!r} is no JSON") from None
        if not isinstance(found, dict):
            raise BadAnswer(f"{content[:60]!r} is no JSON object")
        return found

    @abstractmethod
    def ended(self) -> ProcessEnded:
        """End it, if there is anything left of it; return the error that says how it ended by itself."""

    @abstractmethod
    def end(self) -> None:
        """Kill it, with what it has started, whatever it is doing; the second call does nothing."""


class Process(Peer):
    """A Python process of its own, which runs ``function(channel, *arguments)``.

    It is spawned, not forked, because a CUDA context does not survive a fork, and is in a session of its own: Ctrl-C is
    the caller's business. What it prints is kept, and the last lines are in the message where it ends by itself.

    Args:
        function: ``"module:name"``, or ``"file.py:name"``.
        arguments: what JSON takes.
        variables: set in its environment.
        within: a command to put in front of its own.
        mark: `new_mark()`, by which everything that came of it is found and ended with it, in sessions of its own too.
        bare: let it import the standard library and this package, whatever the caller's folder and settings are.
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
        self._said = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        environment = {name: value for name, value in os.environ.items() if not (bare and name.startswith("PYTHON"))}
        environment |= {**(variables or {}), **({mark.partition("=")[0]: "1"} if mark else {})}
        ours, theirs = socket.socketpair()
        program = _PROGRAM.format(package=str(Path(__file__).parents[3]))
        given = [] if bare else sys.path, theirs.fileno(), function, arguments
        with theirs:
            self._popen = subprocess.Popen(
                [
                    *(*within, sys.executable, "-P", *(("-s", "-S") if bare else ())),
                    *("-c", program, *map(json.dumps, given)),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,
                env=environment,
            )
        self._ready = self._over = False
        super().__init__(Channel(ours))

    @property
    def pid(self) -> int:
        """Its number."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """True until it has ended, or this is a fork of the process that started it."""
        return not self._over and self._popen.poll() is None

    def await_start(self) -> None:
        """Wait until it has prepared what it needs. Raises ProcessStartError."""
        if self._ready:
            return
        try:
            refused = self.receive(START_SECONDS).decode()
        except (ProcessTimeout, ProcessEnded) as error:
            self.end()
            raise ProcessStartError(f"{sys.executable} did not start: {error}") from error
        if refused:
            self.end()
            raise ProcessStartError(refused)
        self._ready = True

    def ended(self) -> ProcessEnded:
        """End it, if it has closed its connection and not ended; return the error that says how it ended by itself."""
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._popen.wait(_KILLED_SECONDS)
        lines = []
        if not self._over:
            self._said.seek(0)
            lines = [line for line in self._said.read().decode(errors="replace").splitlines() if line.strip()]
        self.end()
        how = "closed its connection" if status is None else how_ended(status)
        return ProcessEnded("\n".join([f"the process that worked on it {how}", *lines[-_LAST_LINES:]]), status)

    def kill(self) -> None:
        """Kill it, as another thread may that does not wait for an answer."""
        kill_group(self.pid)

    def end(self) -> None:
        """Kill it, with what it has started, whatever it is doing; the second call does nothing."""
        if self._over:
            return
        self._over = True
        self._channel.close()  # which ends it, unless it is busy, where this process may kill no other
        if self._mark:
            end_descendants(self.pid)
        kill_group(self.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_KILLED_SECONDS)
        self._said.close()
        if self._mark:
            end_marked(self._mark, {os.getpid()})

    def forget(self) -> None:
        """In a fork of the process that started it: leave it to that one."""
        self._over = True
        self._channel.socket.close()
        self._said.close()
        self._popen.returncode = 0  # not this process's child: nothing to wait for
