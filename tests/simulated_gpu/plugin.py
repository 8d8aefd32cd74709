"""Runs the tests that need a GPU where there is none: in a process of their own, with `workbench.simulated_gpu`.

Everything else of the run stays in a process in which torch has no GPU. The reports come back one by one, as if the
tests had run here; a process that dies costs the test that it was running, and the next one starts a new process.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pycuda_setup
import pytest
import warm

from simulated_gpu.child import PATH
from workbench.driver.torch_device.library import installed_torch

TESTS = Path(__file__).resolve().parent.parent
LIMIT = 900
"""Seconds without a report: a test of the child is failed by its own limit before (``timeout`` in pyproject.toml)."""


def environment() -> dict[str, str]:
    """That of a process with a simulated GPU, and of those that it starts in turn."""
    folders = [str(TESTS / "simulated_gpu" / "site"), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    # What is there of pytest-xdist belongs to the worker that starts it.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return kept | {"WORKBENCH_SIMULATED_GPU": "1", "PYTHONPATH": os.pathsep.join(folders)}


def missing() -> str | None:
    """Why there can be no simulated GPU here; None where there can be one. Waits for PyCUDA."""
    torch = installed_torch()
    return (torch.problem if torch is not None else "there is no torch") or pycuda_setup.problem()


class Child:
    """The process with the simulated GPU."""

    def __init__(self):
        python, variables = warm.python("gpu"), environment()
        if len(python) > 1 and "PYTHONPATH" not in os.environ:
            variables[PATH] = variables.pop("PYTHONPATH")  # for those that the fork starts
        self.process = subprocess.Popen(
            [*python, "-m", "simulated_gpu.child"],
            env=variables,
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._reports = self.process.stdout
        self._received = b""

    def ask(self, nodes: list[str], root: str) -> None:
        """Let it run these tests."""
        self.process.stdin.write((json.dumps({"nodes": nodes, "root": root}) + "\n").encode())

    def report(self) -> dict | None:
        """The next report; None when there is none: the process ended, or said nothing for so long that it was killed.

        The end of the pipe alone would not tell: what the process started may still have it open.
        """
        deadline = time.monotonic() + LIMIT
        while b"\n" not in self._received:
            ended = self.process.poll() is not None
            if select.select([self._reports], [], [], 1)[0]:
                part = self._reports.read(1 << 16)
                if not part:
                    return None
                self._received += part
            elif ended:
                return None
            elif time.monotonic() > deadline:
                self.process.kill()
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()


class SimulatedGpu:
    """The plugin: answers for the tests of this process that are marked gpu."""

    def __init__(self):
        self._child: Child | None = None
        self._asked: set[str] = set()
        self._reports: dict[str, list[dict]] = defaultdict(list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if item.get_closest_marker("gpu") is None or item.get_closest_marker("skip") is not None:
            return None
        problem = missing()
        if problem is not None and not os.environ.get("WORKBENCH_REQUIRE_GPU_DOUBLE"):
            item.add_marker(pytest.mark.skip(problem))
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports_of(item) if problem is None else [_failed(item, problem)]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # Of the test before this one there may be left what this one would have shared, had it run here.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def pytest_sessionfinish(self) -> None:
        if self._child is not None:
            self._child.close()

    def _reports_of(self, item: pytest.Item) -> list[pytest.TestReport]:
        if item.nodeid not in self._asked:
            self._ask(item)
        while not any(report["when"] == "teardown" for report in self._reports[item.nodeid]):
            received = self._child.report()
            if received is None:
                self._asked.clear()  # whatever it had still to do
                return [self._died(item)]
            if "ended" in received:
                self._child.process.wait()
                self._ask(item)
                continue
            self._reports[received["nodeid"]].append(received)
        hook, config = item.ihook, item.config
        return [
            hook.pytest_report_from_serializable(config=config, data=data) for data in self._reports.pop(item.nodeid)
        ]

    def _ask(self, item: pytest.Item) -> None:
        """All of the module from this one on, so that its fixtures are made once."""
        items = [one for one in item.session.items if one.path == item.path and one.get_closest_marker("gpu")]
        nodes = [one.nodeid for one in items[items.index(item) :] if one.get_closest_marker("skip") is None]
        if self._child is None or self._child.process.poll() is not None:
            self._child = Child()
        try:
            self._child.ask(nodes, str(item.config.rootpath))
        except BrokenPipeError:  # it has just ended
            self._child.process.wait()
            self._ask(item)
        self._asked.update(nodes)

    def _died(self, item: pytest.Item) -> pytest.TestReport:
        status = self._child.process.wait()
        what = f"signal {-status}" if status < 0 else f"status {status}"
        return _failed(item, f"The process with the simulated GPU ended with {what} while it ran this test.")


def _failed(item: pytest.Item, why: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed", why, "call")
