"""Who works on a row of a tuning store, and whether that process still lives."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Collection
from pathlib import Path

STALE_SECONDS = 900.0
"""After how long a claim counts as abandoned if its process cannot be looked at (another host or container)."""


def this_process() -> dict:
    """This process, such that another one on this host can tell whether it still lives."""
    return {"host": socket.gethostname(), "space": _pid_space(), "pid": os.getpid(), "born": _born(os.getpid())}


def _pid_space() -> str:
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    return ""


def _born(pid: int) -> str:
    """When a process started, in the kernel's ticks; "" if there is no such process (or no /proc)."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        # A zombie has ended; it only waits for its parent to notice.
        return "" if fields[0] in "ZX" else fields[19]
    return ""


def owner_alive(owner: str, claimed: float | None, live_tokens: Collection[str]) -> bool:
    """Whether the process behind a claim, made at the Unix time ``claimed``, can still finish it.

    ``live_tokens`` are the stores that this very process has open: a notebook's kernel outlives the runs in it.
    """
    who = json.loads(owner)
    if who["host"] == socket.gethostname() and who["space"] and who["space"] == _pid_space():
        if who["pid"] == os.getpid() and who["born"] == _born(os.getpid()):
            return who["token"] in live_tokens
        return who["born"] == _born(who["pid"]) != ""
    return time.time() - (claimed or 0) < STALE_SECONDS
