"""Fresh processes at the price of a fork: a process that has imported everything, and never runs a candidate's code.

`Nursery.fork` asks it (`workbench.judge.forker`) for a copy of itself, with a limit of memory and a connection of its
own. Over that connection the caller sends one framed request at a time, and gets lines of JSON: nothing that a
candidate's process answers is unpickled. Limits are kept here, where no candidate's process can signal
(`workbench.judge.confinement`): each answer has a limit, those of the process that forks too. Whatever came of a
candidate's process, stopped or not, is killed with it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.base.files import require_space
from workbench.base.worker import how_ended
from workbench.errors import WorkbenchError
from workbench.judge.descendants import end_descendants, end_marked
from workbench.judge.forker import DESCRIBE, FOLDER, MARK, REAP, RUN, UNKNOWN

START_SECONDS = 600.0
"""How long the first process may take until it can be asked; no candidate's doing."""

REPLY_SECONDS = 20.0
"""How long it may take to fork or to report once it is there: milliseconds, unless somebody has stopped it."""

MAX_LINE_BYTES = 64 << 20
_PROGRAM = """
import json, sys
path, fd = map(json.loads, sys.argv[1:])
sys.path[:] = path
from workbench.judge.forker import serve
serve(fd)
"""


class ProcessEnded(WorkbenchError):
    """The process is gone; the message says how."""


class NoAnswer(WorkbenchError):
    """Nothing came within the limit."""


class BadAnswer(WorkbenchError):
    """What came is not a line of JSON with an object in it, or too long."""


class Child:
    """One forked process, from the caller's side."""

    def __init__(self, nursery: Nursery, connection: socket.socket, number: int, watch: int):
        self._nursery, self._connection, self._number, self._watch = nursery, connection, number, watch
        self.pid = _pid_of(watch)
        self._received = bytearray()

    def send(self, request: object, seconds: float) -> None:
        """One request, pickled; from the caller, which is trusted. Raises NoAnswer where nobody takes it."""
        content = pickle.dumps(request)
        self._connection.settimeout(max(seconds, 1e-3))
        try:
            self._connection.sendall(len(content).to_bytes(8, "little") + content)
        except TimeoutError:
            raise NoAnswer(f"the request was not taken within {seconds:g} s") from None
        except OSError:
            raise ProcessEnded(self.end()) from None

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line. Raises NoAnswer, ProcessEnded or BadAnswer."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            if len(self._received) > MAX_LINE_BYTES:
                raise BadAnswer(f"the answer has more than {MAX_LINE_BYTES >> 20} MiB")
            poll = select.poll()
            poll.register(self._connection, select.POLLIN)
            poll.register(self._watch, select.POLLIN)
            ready = [fd for fd, _ in poll.poll(max(deadline - time.monotonic(), 0) * 1e3)]
            if not ready:
                raise NoAnswer(f"stopped after {seconds:g} s")
            more = b""
            if self._connection.fileno() in ready:
                with contextlib.suppress(ConnectionError):
                    more = self._connection.recv(1 << 20)
            if not more:
                raise ProcessEnded(self.end())
            self._received += more
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise BadAnswer(f"{line[:60]!r} is no JSON") from None
        if not isinstance(found, dict):
            raise BadAnswer(f"{line[:60]!r} is no JSON object")
        return found

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        return bool(poll.poll(0))

    def end(self) -> str:
        """Kill it and what it started, if anything is left; how it ended, as a sentence."""
        if self._watch < 0:
            return "the process was ended"
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        poll.poll(100)  # one that closes its connection because it exits has a status of its own
        if self.pid > 0:  # its number stays its own until it is reaped
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(self.pid, signal.SIGKILL)
        status = self._nursery.reap(self._number)
        os.close(self._watch)
        self._connection.close()
        self._watch = -1
        return f"its process {how_ended(status)}" if status is not None else "the process that forks them ended"


def _pid_of(watch: int) -> int:
    """The process behind a descriptor by its number here, whatever it has in a sandbox; -1 where it has ended."""
    text = Path(f"/proc/self/fdinfo/{watch}").read_text()
    found = re.search(r"^Pid:\s*(-?\d+)", text, re.MULTILINE)
    return int(found[1]) if found else -1


@dataclass(frozen=True)
class _Forker:
    """The process that forks: the connection to it, its folder, and the word in the environment of what comes of it."""

    process: subprocess.Popen
    control: socket.socket
    folder: Path
    word: str

    def reply(self, fds: int = 0) -> tuple[int, list[int]]:
        """The number that it answers with, and the descriptors."""
        data, found, *_ = socket.recv_fds(self.control, 8, fds)
        while 0 < len(data) < 8 and (more := self.control.recv(8 - len(data))):
            data += more
        if len(data) < 8:
            raise ConnectionError("it ended")
        self.control.settimeout(REPLY_SECONDS)
        return int.from_bytes(data, "little"), found


class Nursery:
    """The process that forks, started when a first child is asked for and again when it is gone or does not answer.

    ``within`` is a command in front of its own, `workbench.judge.sandbox.command`. Hold ``lock`` while a child that a
    candidate's code runs in lives: one at a time.
    """

    def __init__(self, within: Callable[[Path], Sequence[str]] | None = None) -> None:
        self.lock = threading.RLock()
        self._within = within
        self._forker: _Forker | None = None

    def start(self) -> None:
        """Begin to make the process, unless it is there."""
        self._started()

    def _started(self) -> _Forker:
        if self._forker is not None and self._forker.process.poll() is None:
            return self._forker
        self.close()
        word, folder = secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="workbench-judge-"))
        control, theirs = socket.socketpair()
        control.settimeout(START_SECONDS)
        with theirs, open(folder / "errors", "wb") as errors:
            process = subprocess.Popen(
                [
                    *(self._within(folder) if self._within is not None else ()),
                    *(sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path), str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                env=os.environ | {MARK: word, "OMP_NUM_THREADS": "1", FOLDER: str(folder)},
            )
        self._forker = _Forker(process, control, folder, word)
        return self._forker

    def fork(self, role: str, memory_mib: int) -> Child:
        """A new child: ``"describe"``, which is confined and ends with all that it has started, or ``"run"``."""
        forker = self._started()
        require_space(forker.folder)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                command = {"describe": DESCRIBE, "run": RUN}[role] + memory_mib.to_bytes(8, "little")
                socket.send_fds(forker.control, [command], [theirs.fileno()])
                number, (watch,) = forker.reply(1)
            except OSError as error:
                ours.close()
                said = (forker.folder / "errors").read_text(errors="replace").strip().splitlines()[-3:]
                self.close()
                raise WorkbenchError(
                    "\n".join([f"{sys.executable} did not start as a judge's process: {error}", *said])
                ) from error
        return Child(self, ours, number, watch)

    def reap(self, number: int) -> int | None:
        """The return code of a child that was killed or has ended; what it left behind is ended and removed.

        None where the process that forks has ended or does not answer any more; then it is ended, with all its others.
        """
        if self._forker is None:
            return None
        try:
            self._forker.control.sendall(REAP + number.to_bytes(8, "little"))
            answer, _ = self._forker.reply()
        except OSError:
            self.close()
            return None
        shutil.rmtree(self._forker.folder / str(number), ignore_errors=True)
        return None if answer == UNKNOWN else os.waitstatus_to_exitcode(answer)

    def close(self) -> None:
        """End it and everything that came of it, stopped or not."""
        if self._forker is None:
            return
        end_descendants(self._forker.process.pid)
        self._forker.process.kill()
        self._forker.process.wait()
        self._forker.control.close()
        end_marked(f"{MARK}={self._forker.word}", {os.getpid()})
        shutil.rmtree(self._forker.folder, ignore_errors=True)
        self._forker = None


_shared: list[Nursery] = []


def shared() -> Nursery:
    """The one of this process, which lives as long as it does: making it takes seconds."""
    if not _shared:
        _shared.append(Nursery())
    return _shared[0]


@atexit.register
def _close() -> None:
    while _shared:
        _shared.pop().close()


os.register_at_fork(after_in_child=_shared.clear)  # a fork has processes of its own
