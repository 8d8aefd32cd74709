"""Ends of processes: with the parent, with all descendants, at a memory limit; and words for how one ended."""

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
"""Exit status of a process that reached its memory limit."""


def how_ended(returncode: int) -> str:
    """Describe a `subprocess.Popen.returncode`, as the rest of a sentence about the process."""
    if returncode == OUT_OF_MEMORY:
        return f"ran out of memory (status {returncode})"
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name} ({signal.strsignal(-returncode)})"
    except ValueError:
        return f"was ended by signal {-returncode}"


def end_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends, even in a call that never returns.

    More precisely, it ends when the thread that started this process ends.
    """
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


@functools.cache
def end_with_pool(parent: int) -> None:
    """End a worker of a process pool when ``parent``, which made the pool, ends.

    Without this such a worker waits for tasks for ever, because it holds both ends of the pipe that they come through.
    """
    import multiprocessing

    made_by = multiprocessing.parent_process()
    if made_by is None or made_by.pid != parent:
        return

    def end_after_it() -> None:
        made_by.join()
        os._exit(0)

    threading.Thread(target=end_after_it, name="end with pool", daemon=True).start()


def adopt_orphans() -> None:
    """Become the parent of every descendant of this process whose own parent has ended."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):  # only Linux has it
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def limit_memory(mib: int) -> None:
    """Limit this process to ``mib`` MiB of address space beyond its present size, and to no core file."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def kill_group(pid: int) -> None:
    """Kill a process and the group that it leads."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """Return the children of a process, including zombies that wait to be reaped."""
    try:
        tasks = [_content(f"{task.path}/children") for task in os.scandir(f"/proc/{pid}/task")]
        return [int(child) for text in tasks for child in text.split()]
    except OSError:  # a kernel without these files
        return [child for child, (parent, _) in _table() if parent == pid]


def end_descendants(root: int) -> None:
    """Kill every descendant of ``root`` that a chain of living parents connects to it, stopped ones too, but not it."""
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
    """Kill every process, of any session, with this ``NAME=value`` in its environment, except those in ``spared``."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) not in spared:
            with contextlib.suppress(OSError):
                if mark.encode() in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)


def cpu_seconds(root: int) -> float:
    """Return the CPU time of a process and its descendants, with those that have ended and were waited for."""
    total, left = 0, [root]
    while left:
        pid = left.pop()
        with contextlib.suppress(OSError):
            total += sum(map(int, _fields_of(pid)[11:15]))  # utime, stime, cutime, cstime
            left += children_of(pid)
    return total / os.sysconf("SC_CLK_TCK")


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
    """Yield (process, (its parent, the letter of its state)) for each process of this machine."""
    for pid, fields in _fields():
        yield pid, (int(fields[1]), fields[0])


def _fields() -> Iterator[tuple[int, list[str]]]:
    """Yield (process, the fields of its ``stat`` from the state on) for each process of this machine."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                yield int(name), _fields_of(int(name))


def _fields_of(pid: int) -> list[str]:
    return _content(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _content(file: str) -> str:
    """Return a file's text, in a fraction of a `Path`'s time: deadlines read many such files."""
    with open(file, errors="replace") as opened:
        return opened.read()
