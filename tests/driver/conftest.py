"""PyCUDA for the tests of the simulated driver: built in the background while other tests run, and then waited for.

It takes about a minute of one core where no wheel of it is kept, and a package index. Without one these tests are
skipped with the reason, unless WORKBENCH_REQUIRE_PYCUDA says that they must run.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench.driver import Driver, simulated_driver
from workbench.home import home

_PATIENCE_SECONDS = 900


def _status() -> Path:
    return home() / "pycuda-setup.status"


def pytest_collection_finish(session: pytest.Session) -> None:
    if importlib.util.find_spec("pycuda") is None and any(
        "pycuda" in getattr(item, "fixturenames", ()) for item in session.items
    ):
        _begin_setup()


def _begin_setup() -> None:
    """Start ``workbench setup pycuda``, once for all of pytest-xdist's workers."""
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


def _problem() -> str | None:
    """Waits until PyCUDA is there; why it is not, where it cannot be had."""
    if importlib.util.find_spec("pycuda") is not None and not (home() / ".pycuda-setup").exists():
        return None
    _begin_setup()
    end = time.monotonic() + _PATIENCE_SECONDS
    while not _status().exists() and time.monotonic() < end:
        time.sleep(0.5)
    if _status().exists() and _status().read_text().strip() == "0":
        importlib.invalidate_caches()
        return None
    return "PyCUDA could not be built: " + (home() / "pycuda-setup.log").read_text().strip()[-600:]


@pytest.fixture(scope="session")
def driver() -> Driver:
    """The simulated driver in this process, with 64 MiB of memory."""
    return simulated_driver(force=True, memory_bytes=64 << 20)


@pytest.fixture(scope="session")
def pycuda(driver: Driver):
    """``pycuda.driver``, initialised, on the simulated driver."""
    problem = _problem()
    if problem is not None:
        if os.environ.get("WORKBENCH_REQUIRE_PYCUDA"):
            pytest.fail(problem)
        pytest.skip(problem)
    import pycuda.driver

    pycuda.driver.init()
    return pycuda.driver


@pytest.fixture
def context(pycuda):
    """A context of the test's own: a fault in it hurts nobody else."""
    made = pycuda.Device(0).make_context()
    yield made
    made.pop()
    made.detach()
