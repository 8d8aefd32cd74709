"""What all tests share: a home of their own, and for the gpu tests a GPU, where there is none a simulated one."""

from __future__ import annotations

import functools
import gc
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import durations
import pytest
import warm
from sampling import mark_sampled
from simulated_gpu.plugin import SimulatedGpu

from workbench.base.home import home as user_home

IN_CHILD = bool(os.environ.get("WORKBENCH_SIMULATED_GPU"))  # see simulated_gpu/plugin.py


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(durations.OPTION, action="store_true", help="write tests/durations.json for the modules that run")


def pytest_configure(config: pytest.Config) -> None:
    """One empty home for the whole run: it neither reads nor changes what the user compiled and tuned.

    With a pytest-xdist worker per core torch gets one thread in each: threads that wait for each other's cores spin.
    """
    if config.getoption(durations.OPTION, False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(durations.Recorder())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background: tests of Ctrl-C need it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if (
        not hasattr(config, "workerinput") and not IN_CHILD
    ):  # pytest-xdist's workers and nbval's kernels inherit the environment
        if getattr(config.option, "numprocesses", None):
            os.environ.setdefault("OMP_NUM_THREADS", "1")
        # Images of containers often set it. Each of some 500 processes would compile all modules that it imports.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        # A wheel of PyCUDA is no result of the workbench: it is built once for all runs (see tests/driver).
        os.environ.setdefault("WORKBENCH_WHEELS", str(user_home() / "wheels"))
        os.environ.setdefault("WORKBENCH_HEADERS", str(user_home() / "headers"))  # of workbench setup nvcc
        home = tempfile.mkdtemp(prefix="workbench-tests-")
        os.environ["WORKBENCH_HOME"] = home
        os.environ["WORKBENCH_CACHE"] = f"{home}/cache"
        os.environ |= {warm.FOLDER: f"{home}/warm", warm.RUN: str(os.getpid())}
        Path(home, "warm").mkdir()
        if os.environ.get("WORKBENCH_REQUIRE_PYCUDA"):
            import pycuda_setup

            pycuda_setup.begin()  # while the tests are collected
        config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say how long the run takes, where that is more than a moment."""
    if hasattr(config, "workerinput") or IN_CHILD or config.option.collectonly:
        return None
    paths = [config.invocation_params.dir / one.split("::")[0] for one in config.args]
    workers = getattr(config.option, "numprocesses", None) or 1
    seconds = durations.expected(_recorded(), paths, config.rootpath, workers)
    if seconds < durations.LONG:
        return None
    return f"expected: about {seconds * durations.pace() / 60:.0f} minutes on this machine, less with -k or -m"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Collect once: the workers are forks of the process that did."""
    from xdist.plugin import _sys_path

    arguments = [str(one) for one in config.invocation_params.args or ()]
    for spec in specs:
        if spec.popen and not spec.python:
            spec.python = shlex.join(warm.workers(arguments, _sys_path, len(specs)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_getremotemodule() -> Any:
    """Return what the workers execute."""
    from warm import worker

    return worker


BEFORE_PYCUDA = ("ptx", "toolchain")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """What is imported here stays to the end: the garbage collector need not look at it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m leaves tests out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_sampled(items)
    items.sort(key=_turn)
    for item in items:
        if item.get_closest_marker("long") or item.get_closest_marker("full"):
            item.add_marker(pytest.mark.timeout(0))
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items or IN_CHILD:
        return
    from workbench.launch import devices

    if devices.cuda_problem() is None:
        _skip(gpu_items, "simulated_only", "needs the simulated GPU")
        return
    import pycuda_setup

    pycuda_setup.begin()
    _skip(gpu_items, "real_gpu", "needs a real GPU")
    config.pluginmanager.register(SimulatedGpu(), "simulated-gpu")


def _skip(items: list[pytest.Item], name: str, why: str) -> None:
    for item in items:
        if (marker := item.get_closest_marker(name)) is not None:
            item.add_marker(pytest.mark.skip(reason=f"{why}: {marker.args[0]}"))


@functools.cache
def _uses_pycuda(notebook: Path) -> bool:
    return "pycuda" in notebook.read_text()


@functools.cache
def _recorded() -> dict[str, int]:
    return durations.read()


def _turn(item: pytest.Item) -> tuple[int, int]:
    """Long modules, the notebooks and what needs a browser come first, what needs PyCUDA when it is built; of each kind
    the longest first: one that begins late keeps a core waiting at the end."""
    seconds = _recorded().get(item.nodeid.split("::")[0], 0)
    return _kind(item, seconds), -seconds


def _kind(item: pytest.Item, seconds: int) -> int:
    is_notebook = item.path.suffix == ".ipynb"
    if is_notebook and not _uses_pycuda(item.path):
        return 2
    if is_notebook or item.get_closest_marker("gpu") or item.path.name == "test_ci_gpu.py":
        return 4
    if item.get_closest_marker("browser"):
        return 1
    if seconds >= durations.LONG:
        return 0
    return 3 if item.path.parent.name in BEFORE_PYCUDA else 5


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say where the gpu tests ran: on a simulated GPU nothing was measured."""
    ran = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if "gpu" in getattr(report, "keywords", ()) and getattr(report, "when", "") == "call"
    ]
    if not ran:
        return
    from workbench.launch import devices

    if devices.cuda_problem() is not None:  # pytest-xdist's workers have the plugin, this process need not
        terminalreporter.write_line(f"{len(ran)} gpu tests ran on a simulated GPU (workbench.simulated_gpu)")


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the workbench's home: nothing is tuned. Compilations are those of the whole run."""
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def fresh_cache(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, and nothing is compiled."""
    monkeypatch.delenv("WORKBENCH_CACHE", raising=False)
    return fresh_home
