"""Compilers that run beside each other, and end with this process, however it ends."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from workbench.base.processes.ending import kill_group

_Item = TypeVar("_Item")

# g++ starts programs of its own, so that a signal at the death of the parent would reach only g++. The shell's
# background part reads from a pipe that this process holds open; when that ends, it kills the shell's whole group.
_WATCHED = """exec 3<&0
{ read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &
watcher=$!
"$@" 3<&- </dev/null
status=$?
kill -KILL $watcher
exit $status
"""


class CompilerRuns:
    """Runs of compilers, as many at once as this process may use cores; leaving the block ends those that are left."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        self._running: set[int] = set()
        self._changing = threading.Lock()
        self._over = False

    def __enter__(self) -> CompilerRuns:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._over = True
            for pid in self._running:
                kill_group(pid)
        self._pool.shutdown(cancel_futures=True)

    def each(self, function: Callable[[_Item], str], items: Sequence[_Item]) -> Iterator[str]:
        """Yield ``function(item)`` for each item, called on several threads."""
        for one in [self._pool.submit(function, item) for item in items]:
            yield one.result()

    def run(self, *command: str) -> tuple[int, str]:
        """Run a program to its end; return its exit status and its error output."""
        ours, theirs = self._start(command)
        try:
            with theirs:
                assert theirs.stderr is not None
                log = theirs.stderr.read()
        finally:
            os.close(ours)
            with self._changing:
                self._running.discard(theirs.pid)
        return theirs.returncode, log

    def _start(self, command: Sequence[str]) -> tuple[int, subprocess.Popen[str]]:
        """Start a program; return the end of the pipe whose closing ends it, and its process."""
        read, write = os.pipe()
        try:
            with self._changing:
                if self._over:
                    raise RuntimeError("the compilers were ended")
                process = subprocess.Popen(
                    ["sh", "-c", _WATCHED, "sh", *command], stdin=read, stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE, text=True, errors="replace", process_group=0,
                )  # fmt: skip
                self._running.add(process.pid)
        except BaseException:
            os.close(write)
            raise
        finally:
            os.close(read)
        return write, process
