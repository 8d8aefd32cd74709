"""The processes that came of another one, found under /proc and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Set
from pathlib import Path

_LONGEST_SECONDS = 5.0


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is this one, those that wait to be reaped included."""
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
