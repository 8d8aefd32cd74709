"""PyCUDA for the tests: built in the background while other tests run, and then waited for.

It takes about a minute of one core where no wheel of it is kept, and a package index. Without one the tests that need
it are skipped with the reason, unless WORKBENCH_REQUIRE_PYCUDA says that they must run.
"""

from __future__ import annotations

import fcntl
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

from workbench.base.home import home

_PATIENCE_SECONDS = 900


def _status() -> Path:
    return home() / "pycuda-setup.status"


def begin() -> None:
    """Start ``workbench setup pycuda`` where it is missing, once for all of pytest-xdist's workers."""
    if importlib.util.find_spec("pycuda") is not None:
        return
    home().mkdir(parents=True, exist_ok=True)
    with open(home() / ".pycuda-setup", "a+") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        if mark.tell():
            return
        mark.write("begun")
    log, status = home() / "pycuda-setup.log", _status()
    command = f'"{sys.executable}" -m workbench.cli setup pycuda >"{log}" 2>&1; echo $? >"{status}.new"; '
    command += f'mv "{status}.new" "{status}"'
    subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True)


def problem() -> str | None:
    """Waits until PyCUDA is there; why it is not, where it cannot be had."""
    if importlib.util.find_spec("pycuda") is not None and not (home() / ".pycuda-setup").exists():
        return None
    begin()
    end = time.monotonic() + _PATIENCE_SECONDS
    while not _status().exists() and time.monotonic() < end:
        time.sleep(0.5)
    if _status().exists() and _status().read_text().strip() == "0":
        importlib.invalidate_caches()
        return None
    return "PyCUDA could not be built: " + (home() / "pycuda-setup.log").read_text().strip()[-600:]
