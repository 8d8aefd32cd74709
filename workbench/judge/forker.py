"""The process that forks: imports everything, then forks a copy of itself for every connection that arrives.

Run by `workbench.judge.nursery`, which is the caller's side. It never executes a candidate's code. What a candidate's
copy leaves behind comes to this process when its parent ends, and is killed before the copy is reported as ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import pickle
import resource
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from workbench.judge import confinement
from workbench.judge.descendants import children_of, end_marked

MARK = "WORKBENCH_NURSERY"
"""The variable of the environment that tells what came of which nursery."""
FOLDER = "WORKBENCH_NURSERY_FOLDER"
"""The variable that names the folder in which each copy finds one of its own."""
DESCRIBE, RUN, REAP = b"d", b"r", b"-"
"""Commands: fork a copy that runs a candidate's code, fork one that is trusted, report how one has ended."""
MESSAGE = 9
"""Bytes of a command: its letter and a number, the MiB of memory that a copy may take, or the process to report."""
UNKNOWN = 1 << 32
"""The status of a process that is no copy."""


def serve(fd: int) -> None:
    """Fork a copy for every connection that arrives, until the caller hangs up; then end all that came of it."""
    control = socket.socket(fileno=fd)
    confinement.adopt_orphans()
    with _ending_with_the_caller(control):
        _warm_up()
    gc.collect()
    gc.freeze()  # what is here now is shared with the copies: a collection would copy it
    confinement.hide_memory(True)
    copies: dict[int, bytes] = {}
    with contextlib.suppress(ConnectionError):
        _answer(control, copies)
    for pid in copies:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    _end()


def _answer(control: socket.socket, copies: dict[int, bytes]) -> None:
    while True:
        message, fds, *_ = socket.recv_fds(control, MESSAGE, 1)
        if len(message) < MESSAGE:
            return
        command, number = message[:1], int.from_bytes(message[1:], "little")
        if command == REAP:
            status = os.waitpid(number, 0)[1] if number in copies else UNKNOWN
            if copies.pop(number, RUN) == DESCRIBE:
                _end_orphans(copies)
            control.sendall(status.to_bytes(8, "little"))
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _copy(command, number, socket.socket(fileno=fds[0]))
        os.close(fds[0])
        copies[pid] = command
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # at once, whichever of the two comes first
        watch = os.pidfd_open(pid)
        socket.send_fds(control, [pid.to_bytes(8, "little")], [watch])
        os.close(watch)


def _end_orphans(copies: Mapping[int, bytes]) -> None:
    """Kill what a candidate's process left, stopped or not; as a parent ends, its children come to this process."""
    while orphans := [pid for pid in children_of(os.getpid()) if pid not in copies]:
        for pid in orphans:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


@contextlib.contextmanager
def _ending_with_the_caller(control: socket.socket) -> Iterator[None]:
    """Within the block this process ends when the caller does, whatever it is doing; no thread is left after it."""
    import select

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
    end_marked(f"{MARK}={os.environ[MARK]}", {os.getpid()})
    shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
    os._exit(0)


def _warm_up() -> None:
    """Import and try everything that takes its time once, so that no copy has to."""
    import torch
    import triton  # noqa: F401

    torch.set_num_threads(1)
    from workbench.judge import describing, running

    for module in (describing, running):
        module.warm_up()


def _copy(command: bytes, memory_mib: int, connection: socket.socket) -> None:
    """Serve requests until the caller hangs up, then exit, whatever happens."""
    status = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        _end_with_parent()
        _limit(memory_mib)
        main = _role(command)
        while (request := _received(connection)) is not None:
            main(request, lambda answer: connection.sendall(json.dumps(answer).encode() + b"\n"))
        status = 0
    finally:
        os._exit(status)


def _role(command: bytes) -> Callable[[Mapping[str, Any], Callable[[dict], None]], None]:
    from workbench.judge import describing, running

    if command == RUN:
        return running.run
    folder = Path(os.environ[FOLDER], str(os.getpid()))
    folder.mkdir()
    for name in ("WORKBENCH_HOME", "WORKBENCH_CACHE", "TRITON_HOME", "TRITON_CACHE_DIR", "TMPDIR"):
        os.environ[name] = str(folder)  # a candidate finds no compilation of another one, and leaves none
    tempfile.tempdir = None
    confinement.hide_memory(False)  # nobody else's is in it, and its mark can be read
    if not confinement.unavailable():  # else the caller has warned
        confinement.confine()
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
