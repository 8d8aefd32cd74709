"""Deadlines of answers: by the clock, or by the CPU time of a process and all that it has started."""

from __future__ import annotations

import functools
import os
import time

from workbench.base.busy import over_limit, patience, told
from workbench.base.processes.ending import cpu_seconds

_LEAST_SECONDS = 0.02
"""Least time between two looks at the CPU time, which read two files for each process."""


class Deadline:
    """A deadline in wall-clock time, a number of seconds from now."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.begun = time.monotonic()
        self._next = self.begun + seconds

    @property
    def left(self) -> float:
        """Seconds until `reached` can be true; not below 0."""
        return max(self._next - time.monotonic(), 0.0)

    def reached(self) -> bool:
        """Return True if the time is up. Call it when nothing is `left`."""
        return True

    def __str__(self) -> str:
        return f"stopped after {self.seconds:g} s"


@functools.lru_cache(maxsize=8)
def _recent_seconds(pid: int, _interval: int) -> float:
    """Return the CPU time of a process at some time in an interval: answers that come at once are not worth a look."""
    return cpu_seconds(pid)


class CpuDeadline(Deadline):
    """A deadline in CPU seconds of a process and its descendants, and `patience` times as many by the clock."""

    def __init__(self, seconds: float, pid: int):
        super().__init__(seconds)
        self._pid, self._before = pid, _recent_seconds(pid, int(self.begun / _LEAST_SECONDS))
        self._used = self._passed = 0.0

    def reached(self) -> bool:
        """Return True if the CPU time, or the patience, is used up; otherwise there is more time `left`."""
        self._used = max(cpu_seconds(self._pid) - self._before, 0.0)
        self._passed = time.monotonic() - self.begun
        if over_limit(self.seconds, self._used, self._passed):
            return True
        cores = len(os.sched_getaffinity(0))
        wanted = min((self.seconds - self._used) / cores, patience() * self.seconds - self._passed)
        self._next = time.monotonic() + max(wanted, _LEAST_SECONDS)
        return False

    def __str__(self) -> str:
        return f"stopped after {told(self.seconds, self._used, self._passed)}"
