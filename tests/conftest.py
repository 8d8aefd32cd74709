"""What all tests share: a home of their own, and gpu tests skipped, with the device's own reason, without a GPU."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from workbench.home import home as user_home


def pytest_configure(config: pytest.Config) -> None:
    """One empty home for the whole run: it neither reads nor changes what the user compiled and tuned.

    With a pytest-xdist worker per core torch gets one thread in each: threads that wait for each other's cores spin.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background: tests of Ctrl-C need it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # pytest-xdist's workers and nbval's kernels inherit the environment
        if getattr(config.option, "numprocesses", None):
            os.environ.setdefault("OMP_NUM_THREADS", "1")
        # A wheel of PyCUDA is no result of the workbench: it is built once for all runs (see tests/driver).
        os.environ.setdefault("WORKBENCH_WHEELS", str(user_home() / "wheels"))
        home = tempfile.mkdtemp(prefix="workbench-tests-")
        os.environ["WORKBENCH_HOME"] = home
        os.environ.pop("WORKBENCH_CACHE", None)
        config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))


FIRST_MODULES = (
    "test_paged_attention_grid.py",
    "test_cli.py",
    "test_isolation.py",
    "test_cluster.py",
    "test_kvcache_stateful.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    from workbench import devices
    from workbench.errors import DeviceUnavailableError

    try:
        devices.get("cuda")
    except DeviceUnavailableError as error:
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason=str(error)))


def _turn(item: pytest.Item) -> int:
    """Long modules, the notebooks and what needs a browser come first: a long one at the end keeps a core waiting."""
    if item.path.name in FIRST_MODULES:
        return 0
    if item.get_closest_marker("browser"):
        return 1
    return 2 if item.path.suffix == ".ipynb" else 3


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many gpu tests did not run, and why: a green run without a GPU has not tested the GPU."""
    reports = terminalreporter.stats.get("skipped", [])  # of tests, and of modules that were skipped as a whole
    skipped = [report for report in reports if "gpu" in getattr(report, "keywords", ())]
    if skipped:
        reason = skipped[0].longrepr[2].removeprefix("Skipped: ")
        terminalreporter.write_line(f"{len(skipped)} gpu tests skipped: {reason}")


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the workbench's home, so that nothing comes from an earlier run's cache."""
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WORKBENCH_CACHE", raising=False)
    return tmp_path / "home"
