"""Files and folders that an owner keeps below a limit: those unused for longest go first, none that is in use.

A process that uses an entry holds a shared lock on it (`hold`), which ends with the process; `trim_entries` removes
entries that no process holds. An entry's date is that of its last use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def hold(path: Path) -> int | None:
    """Mark an entry as in use, until the descriptor that this returns is closed; None if there is no such entry."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    fcntl.flock(fd, fcntl.LOCK_SH)
    with contextlib.suppress(OSError):
        os.utime(path)
    return fd


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Mark an entry as in use within the block."""
    fd = hold(path)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def trim_entries(folder: Path, limit: int) -> int:
    """Remove entries of a folder that is over ``limit`` bytes, down to 9/10 of it; return the number of bytes removed.

    Entries whose name begins with a dot are not entries.
    """
    entries = []
    for path in folder.glob("[!.]*"):
        with contextlib.suppress(OSError):  # removed by another process in between
            entries.append((path.stat().st_mtime_ns, _size(path), path))
    whole = left = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries) if whole > limit else ():
        if left <= limit * 9 // 10:
            break
        if _removed(path):
            left -= size
    return whole - left


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    total = 0
    for inside, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(inside, name)).st_size
    return total


def _removed(path: Path) -> bool:
    """Remove an entry unless a process holds it; return False for one in use, and for one that cannot be removed."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        return True
    except OSError:  # BlockingIOError, if it is in use
        return False
    finally:
        os.close(fd)
