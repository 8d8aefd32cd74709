"""Owners of claimed rows in a tuning store, and the test that such a process still lives."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Collection
from pathlib import Path

STALE_SECONDS = 900.0
"""Age at which a claim counts as abandoned if its process cannot be looked up (another host or container)."""


def this_process() -> dict:
    """Describe this process so that another one on this host can tell if it still lives."""
    return {"host": socket.gethostname(), "space": _pid_space(), "pid": os.getpid(), "born": _born(os.getpid())}


def _pid_space() -> str:
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    return ""


def _born(pid: int) -> str:
    """Return a process's start time in the kernel's ticks, or "" if there is no such process (or no /proc)."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        # A zombie has ended; only its parent has not noticed yet.
        return "" if fields[0] in "ZX" else fields[19]
    return ""


def owner_alive(owner: str, claimed: float | None, live_tokens: Collection[str]) -> bool:
    """Return True if the process behind a claim, made at the Unix time ``claimed``, can still finish it.

    ``live_tokens`` are the stores that this very process has open: a notebook's kernel outlives the runs in it.
    """
    who = json.loads(owner)
    if who["host"] == socket.gethostname() and who["space"] and who["space"] == _pid_space():
        if who["pid"] == os.getpid() and who["born"] == _born(os.getpid()):
            return who["token"] in live_tokens
        return who["born"] == _born(who["pid"]) != ""
    return time.time() - (claimed or 0) < STALE_SECONDS
