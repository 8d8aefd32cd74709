"""The server that forks: it prepares once, then forks a copy of itself on each request.

`workbench.base.processes.fork_server`, the caller's side, starts it. The server adopts the orphans of a copy, and
kills them before it reports the copy as ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from workbench.base.processes.channel import Channel
from workbench.base.processes.ending import (
    OUT_OF_MEMORY,
    adopt_orphans,
    children_of,
    end_marked,
    end_with,
    kill_group,
    limit_memory,
)
from workbench.base.processes.huge_pages import use_huge_pages
from workbench.base.processes.starting import named

FORK, END = "fork", "end"
"""Commands: fork a copy, kill one and report how it ended."""

_KILLED_SECONDS = 5.0

Main = Callable[[Any, Callable[[bytes], None]], None]
"""Function of a copy that handles a request; its second argument is a function that sends an answer."""


def serve(control: Channel, prepare: str, arguments: Sequence[Any], mark: str, folder: str) -> None:
    """Prepare, then fork a copy on each request until the caller hangs up.

    ``prepare`` names a function that is called once with ``arguments``. It returns the function that each copy calls
    with its role to get its `Main`. See `serve_copies` for the others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    with _ending_with_the_caller(control, lambda: _end(mark, folder)):
        try:
            role = named(prepare)(*arguments)
        except Exception as error:
            control.send(f"{type(error).__name__}: {error}".encode())
            return
    gc.collect()
    gc.freeze()  # present objects share their memory pages with the copies: a collection would write to the pages
    use_huge_pages()
    serve_copies(control, role, mark, folder)


def serve_copies(control: Channel, role: Callable[[str], Main], mark: str, folder: str) -> NoReturn:
    """Fork a copy of this process on each request until the caller hangs up; then end all descendants.

    Processes with the ``mark`` in their environment end with this process. ``folder`` is removed at the end, that of a
    copy (`own_folder`) with the copy.
    """
    adopt_orphans()
    copies: set[int] = set()
    with contextlib.suppress(ConnectionError):
        control.send(b"")
        _answer(control, role, copies, folder)
    for pid in copies:
        kill_group(pid)
    _end(mark, folder)


def _end(mark: str, folder: str) -> NoReturn:
    if mark:
        end_marked(mark, {os.getpid()})
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def own_folder(folder: str) -> Path:
    """Make the folder of a copy in that of its server, and use it for temporary files."""
    own = Path(folder, str(os.getpid()))
    own.mkdir(mode=0o700)
    os.environ["TMPDIR"] = str(own)
    tempfile.tempdir = None
    return own


def _answer(control: Channel, role: Callable[[str], Main], copies: set[int], folder: str) -> None:
    fds: list[int] = []
    while (message := control.receive(fds=fds)) is not None:
        command, what, memory_mib = json.loads(message)
        if command == END:
            ended = _ended(what, copies)
            if folder:
                shutil.rmtree(os.path.join(folder, str(what)), ignore_errors=True)
            control.send(json.dumps(ended).encode())
            continue
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            control.socket.close()
            serve_copy(role, what, memory_mib, Channel(socket.socket(fileno=fds[0])), server)
        os.close(fds.pop())
        copies.add(pid)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # the copy calls it too: whichever of the two comes first
        with _watch(pid) as watch:
            control.send(str(pid).encode(), fds=watch)


@contextlib.contextmanager
def _watch(pid: int) -> Iterator[list[int]]:
    """Yield a descriptor that becomes readable when the process ends; none on Linux before 5.3."""
    try:
        found = [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        found = []
    yield found
    for fd in found:
        os.close(fd)


def _ended(pid: int, copies: set[int]) -> tuple[int | None, bool]:
    """Kill a copy and the orphans that it left, stopped ones too; return the copy's wait status, and if some are left.

    The status is None for a number that is not a copy's, and for a busy copy where this process may kill no other (in a
    candidate's own process).
    """
    if pid not in copies:
        return None, False
    deadline = time.monotonic() + _KILLED_SECONDS
    status = killed(pid)
    if status is None:
        return None, False
    copies.remove(pid)
    while orphans := _orphans(copies):
        if time.monotonic() > deadline:
            return status, True
        for orphan in orphans:
            with contextlib.suppress(OSError):
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)
    return status, False


def killed(pid: int) -> int | None:
    """Kill a child and the group that it leads; return its wait status, None if it does not end within seconds."""
    deadline = time.monotonic() + _KILLED_SECONDS
    kill_group(pid)
    while not (found := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            return None
        time.sleep(0.001)
    return found[1]


def _orphans(copies: Collection[int]) -> list[int]:
    return [pid for pid in children_of(os.getpid()) if pid not in copies]


@contextlib.contextmanager
def _ending_with_the_caller(control: Channel, end: Callable[[], NoReturn]) -> Iterator[None]:
    """End this process when the caller ends, within the block, whatever it is doing; no thread is left afterwards."""
    done = threading.Event()
    poll = select.poll()
    poll.register(control.socket, 0)  # no event but the one that cannot be masked: the caller hung up

    def watch() -> None:
        while not done.is_set():
            if poll.poll(20):
                end()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def serve_copy(role: Callable[[str], Main], name: str, memory_mib: int | None, channel: Channel, server: int) -> None:
    """Serve requests in a copy that the process ``server`` has forked, until the caller hangs up; then exit."""
    status = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        end_with(server)
        if memory_mib is not None:
            limit_memory(memory_mib)
        main = role(name)
        while (request := channel.receive()) is not None:
            main(pickle.loads(request), channel.send)
        status = 0
    except MemoryError:
        status = OUT_OF_MEMORY
    finally:
        os._exit(status)
