"""Fresh processes at the price of a fork: a process that has imported everything, and never runs a candidate's code.

`Nursery.fork` asks it for a copy of itself, with a limit of memory and a connection of its own. Over that connection
the caller sends one framed request at a time, and gets lines of JSON: nothing that a candidate's process answers is
unpickled. A copy that hangs is killed with everything that it started, which is found by its process group and by a
word in the environment. This keeps accidents and cheats apart from the verdict; it is no sandbox against somebody who
attacks the account that the judge runs under: for that, run the judge in a container.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import pickle
import resource
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
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from workbench.errors import WorkbenchError
from workbench.worker import how_ended

START_SECONDS = 600.0
"""How long the first process may take until it can be asked; no candidate's doing."""

MAX_LINE_BYTES = 64 << 20
_MARK = "WORKBENCH_NURSERY"
_FOLDER = "WORKBENCH_NURSERY_FOLDER"
_MESSAGE = 9  # a command and a number
_REAP = b"-"
_UNKNOWN = 1 << 32  # the status of a child of a process that is gone
_PROGRAM = """
import json, sys
path, fd = map(json.loads, sys.argv[1:])
sys.path[:] = path
from workbench.judge.nursery import serve
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

    def __init__(self, nursery: Nursery, connection: socket.socket, pid: int):
        self._nursery, self._connection, self.pid = nursery, connection, pid
        self._watch = os.pidfd_open(pid)
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
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                kill(self.pid, signal.SIGKILL)
        status = self._nursery.reap(self.pid)
        os.close(self._watch)
        self._connection.close()
        self._watch = -1
        return f"its process {how_ended(status)}" if status is not None else "the process that forks them ended"


@dataclass(frozen=True)
class _Forker:
    """The process that forks: the connection to it, its folder, and the word in the environment of what comes of it."""

    process: subprocess.Popen
    control: socket.socket
    folder: Path
    word: str

    def reply(self) -> int:
        """The number that it answers with."""
        data = b""
        while len(data) < 8:
            more = self.control.recv(8 - len(data))
            if not more:
                raise ConnectionError("it ended")
            data += more
        return int.from_bytes(data, "little")


class Nursery:
    """The process that forks, started when a first child is asked for and again when it is gone.

    Hold ``lock`` while a child that is not kept lives: when it ends, so does everything else that came of it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._forker: _Forker | None = None
        self._kept: set[int] = set()

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
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=open(folder / "errors", "wb"),  # noqa: SIM115, the process's own
                start_new_session=True,
                env=os.environ | {_MARK: word, "OMP_NUM_THREADS": "1", _FOLDER: str(folder)},
            )
        self._forker = _Forker(process, control, folder, word)
        return self._forker

    def fork(self, role: str, memory_mib: int, *, keep: bool = False) -> Child:
        """A new child: ``"describe"`` or ``"run"``. One that is kept outlives the cleaning up after others."""
        forker = self._started()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                command = role[:1].encode() + memory_mib.to_bytes(8, "little")
                socket.send_fds(forker.control, [command], [theirs.fileno()])
                pid = forker.reply()
            except OSError as error:
                ours.close()
                said = (forker.folder / "errors").read_text(errors="replace").strip().splitlines()[-3:]
                self.close()
                raise WorkbenchError(
                    "\n".join([f"{sys.executable} did not start as a judge's process: {error}", *said])
                ) from error
        if keep:
            self._kept.add(pid)
        return Child(self, ours, pid)

    def reap(self, pid: int) -> int | None:
        """The return code of a child that was killed or has ended; what it left behind is ended and removed."""
        kept, status = pid in self._kept, None
        self._kept.discard(pid)
        if self._forker is None:
            return None
        with contextlib.suppress(OSError):
            self._forker.control.sendall(_REAP + pid.to_bytes(8, "little"))
            answer = self._forker.reply()
            status = None if answer == _UNKNOWN else os.waitstatus_to_exitcode(answer)
        if status is not None and not kept:  # one that is kept has started nothing
            self._end_others(self._forker)
        shutil.rmtree(self._forker.folder / str(pid), ignore_errors=True)
        return status

    def _end_others(self, forker: _Forker) -> None:
        _end_marked(forker.word, {os.getpid(), forker.process.pid, *self._kept})

    def close(self) -> None:
        """End it and everything that came of it."""
        if self._forker is None:
            return
        self._forker.process.kill()
        self._forker.process.wait()
        self._forker.control.close()
        self._kept.clear()
        self._end_others(self._forker)
        shutil.rmtree(self._forker.folder, ignore_errors=True)
        self._forker = None


def _end_marked(word: str, spared: Set[int]) -> None:
    """Kill what came of a nursery, in sessions of its own too (compilers, daemons)."""
    mark = f"{_MARK}={word}".encode()
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) not in spared:
            with contextlib.suppress(OSError):
                if mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)


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

# -- the process itself -------------------------------------------------------------------------------------------


def serve(fd: int) -> None:
    """Fork a child for every connection that arrives, until the caller hangs up; then end all that came of it."""
    control = socket.socket(fileno=fd)
    with _ending_with_the_caller(control):
        _warm_up()
    gc.collect()
    gc.freeze()  # what is here now is shared with the children: a collection would copy it
    children: set[int] = set()
    with contextlib.suppress(ConnectionError):
        _answer(control, children)
    for pid in children:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    _end()


def _answer(control: socket.socket, children: set[int]) -> None:
    while True:
        message, fds, *_ = socket.recv_fds(control, _MESSAGE, 1)
        if len(message) < _MESSAGE:
            return
        command, number = message[:1], int.from_bytes(message[1:], "little")
        if command == _REAP:
            status = os.waitpid(number, 0)[1] if number in children else _UNKNOWN
            children.discard(number)
            control.sendall(status.to_bytes(8, "little"))
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _child(command.decode(), number, socket.socket(fileno=fds[0]))
        os.close(fds[0])
        children.add(pid)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # at once, whichever of the two comes first
        control.sendall(pid.to_bytes(8, "little"))


@contextlib.contextmanager
def _ending_with_the_caller(control: socket.socket) -> Iterator[None]:
    """Within the block this process ends when the caller does, whatever it is doing; no thread is left after it."""
    done = threading.Event()
    poll = select.poll()
    poll.register(control, 0)  # no event but the one that cannot be masked: the caller hung up

    def watch() -> None:
        while not done.is_set():
            if poll.poll(100):
                _end()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def _end() -> NoReturn:
    _end_marked(os.environ[_MARK], {os.getpid()})
    shutil.rmtree(os.environ[_FOLDER], ignore_errors=True)
    os._exit(0)


def _warm_up() -> None:
    """Everything that takes its time once, so that no child has to."""
    import torch
    import triton  # noqa: F401

    torch.set_num_threads(1)
    from workbench.judge import describing, running

    for module in (describing, running):
        module.warm_up()


def _child(role: str, memory_mib: int, connection: socket.socket) -> None:
    """Serve requests until the caller hangs up, then exit, whatever happens."""
    status = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        _end_with_parent()
        _limit(memory_mib)
        main = _role(role)
        while (request := _received(connection)) is not None:
            main(request, lambda answer: connection.sendall(json.dumps(answer).encode() + b"\n"))
        status = 0
    finally:
        os._exit(status)


def _role(role: str) -> Callable[[Mapping[str, Any], Callable[[dict], None]], None]:
    from workbench.judge import describing, running

    if role == "r":
        return running.run
    folder = Path(os.environ[_FOLDER], str(os.getpid()))
    folder.mkdir()
    for name in ("WORKBENCH_HOME", "WORKBENCH_CACHE", "TRITON_HOME", "TRITON_CACHE_DIR", "TMPDIR"):
        os.environ[name] = str(folder)  # a candidate finds no compilation of another one, and leaves none
    tempfile.tempdir = None
    return describing.describe


def _limit(memory_mib: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (memory_mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _received(connection: socket.socket) -> Any:
    data = bytearray()
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "little"):
        more = connection.recv(1 << 20)
        if not more:
            return None
        data += more
    return pickle.loads(bytes(data[8:]))


def _end_with_parent() -> None:
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
