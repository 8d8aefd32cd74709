"""Time limits in CPU seconds, and words for how busy the machine was when one was reached.

On a machine that others use, too, work takes several times its CPU time. A limit therefore ends work that has used its
seconds of CPU time. Work that waits uses none: it ends after `patience` times the limit.
"""

from __future__ import annotations

import os
import time

_PATIENCE = 4.0

_BUSY = 1.5
"""The least ratio of time to CPU time at which a machine is called busy."""


def patience() -> float:
    """Return the longest time, as a multiple of its limit, for work that uses little CPU time.

    It grows with the number of programs that share a core: work that waits for the CPU is not work that waits.
    """
    return _PATIENCE * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def over_limit(limit: float, used: float, passed: float) -> bool:
    """Return True if work has reached its limit: of CPU seconds ``used``, or of seconds ``passed`` by the clock."""
    return passed >= limit and (used >= limit or passed >= patience() * limit)


def told(limit: float, used: float, passed: float) -> str:
    """Describe the limit that ended work: ``"10 s of CPU time; 31 s passed: the machine was busy (load ...)"``."""
    if used < limit:
        words = f"{passed:.3g} s, {passed / limit:.0f} times the limit, with {used:.2g} s of CPU time"
        return f"{words}: it waited, or the machine was busy ({_load()})"
    words = f"{limit:g} s of CPU time"
    return words if passed < _BUSY * used else f"{words}; {passed:.3g} s passed: the machine was busy ({_load()})"


class OwnDeadline:
    """A deadline after some seconds of this process's CPU time; time that it waits is not counted."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._begun = time.monotonic(), time.process_time()

    @property
    def left(self) -> float:
        """Seconds that are left, of CPU time."""
        passed, used = time.monotonic() - self._begun[0], time.process_time() - self._begun[1]
        return self._seconds - min(passed, used)


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores"
