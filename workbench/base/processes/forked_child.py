"""A fork of this process, with what `subprocess.Popen` has for a program that was started."""

from __future__ import annotations

import os
import subprocess
import time

_LOOK_SECONDS = 0.001


class ForkedChild:
    """A fork of this process: its number, and its return code as in `subprocess.Popen` once it has ended."""

    def __init__(self, pid: int):
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the return code, or None while the process runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the return code. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while (found := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(_LOOK_SECONDS)
        return found
