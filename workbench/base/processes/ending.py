"""How a process ends: with its parent, with what came of it, at its limit of memory; and how to say it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator, Set
from pathlib import Path

_LONGEST_SECONDS = 5.0
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36


OUT_OF_MEMORY = 86
"""The status with which a process exits that has reached its limit of memory."""


def how_ended(returncode: int) -> str:
    """Return what a `subprocess.Popen.returncode` says, as the rest of a sentence about the process."""
    if returncode == OUT_OF_MEMORY:
        return f"ran out of memory (status {returncode})"
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name} ({signal.strsignal(-returncode)})"
    except ValueError:
        return f"was ended by signal {-returncode}"


def end_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends: it may be in a call that never returns then.

    It is the thread that started this process whose end counts.
    """
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


@functools.cache
def end_with_pool(parent: int) -> None:
    """End a worker of a process pool when ``parent``, which made the pool, ends. By itself such a worker goes on, and
    waits for more, for good: it holds both ends of the pipe that its tasks come through."""
    import multiprocessing

    made_by = multiprocessing.parent_process()
    if made_by is None or made_by.pid != parent:
        return

    def end_after_it() -> None:
        made_by.join()
        os._exit(0)

    threading.Thread(target=end_after_it, name="end with pool", daemon=True).start()


def adopt_orphans() -> None:
    """Become the parent of every process whose own has ended, of all that came of this one."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):  # of Linux
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def limit_memory(mib: int) -> None:
    """Let this process have so many MiB of addresses more than it has, and leave no core file."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def kill_group(pid: int) -> None:
    """Kill a process, and the group that it leads."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is this one, those that wait to be reaped included."""
    try:
        tasks = [Path(task.path, "children").read_text() for task in os.scandir(f"/proc/{pid}/task")]
        return [int(child) for text in tasks for child in text.split()]
    except OSError:  # a kernel without these files
        return [child for child, (parent, _) in _table() if parent == pid]


def end_descendants(root: int) -> None:
    """Kill every process that came of ``root`` and has a parent among them, stopped ones included, but not itself."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < deadline:
        found = _living_descendants(root)
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def end_marked(mark: str, spared: Set[int]) -> None:
    """Kill every process with this ``NAME=value`` in its environment, in sessions of its own too."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) not in spared:
            with contextlib.suppress(OSError):
                if mark.encode() in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)


def _living_descendants(root: int) -> list[int]:
    parents = dict(_table())
    found: list[int] = []
    for pid, (parent, state) in parents.items():
        seen = set()
        while parent in parents and parent != root and parent not in seen:
            seen.add(parent)
            parent = parents[parent][0]
        if parent == root and state not in "ZX":
            found.append(pid)
    return found


def _table() -> Iterator[tuple[int, tuple[int, str]]]:
    """(process, (its parent, the letter of its state)) of each."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                state, parent = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                yield int(name), (int(parent), state)
