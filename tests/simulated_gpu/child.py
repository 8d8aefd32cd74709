"""The process with the simulated GPU: runs the tests that it is asked for, and tells how each went.

python -m simulated_gpu.child: requests come by its standard input, reports go to its standard output.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import TextIO

import pytest

PATH = "WORKBENCH_TESTS_PYTHONPATH"
"""A variable: the PYTHONPATH that a fork of `warm.python`, which can have none, gives those that it starts."""


class Reporter:
    """Writes every report of a test as a line; ends the process after a test that left the device in error."""

    def __init__(self, out):
        self._out = out
        self._config: pytest.Config | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._write(data)
        if report.when == "teardown" and _in_error():
            self._write({"ended": "the device is in error, as for the rest of a process on a GPU"})
            os._exit(0)

    def _write(self, data: dict) -> None:
        self._out.write(json.dumps(data) + "\n")
        self._out.flush()


def _in_error() -> bool:
    import torch

    try:
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def take_streams() -> tuple[TextIO, TextIO]:
    """Take the standard streams away from what runs here."""
    requests, reports = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return requests, reports


def main() -> None:
    """Serve until the other side closes."""
    requests, reports = take_streams()
    if (path := os.environ.pop(PATH, None)) is not None:
        os.environ["PYTHONPATH"] = path
        sys.path[:0] = path.split(os.pathsep)
        runpy.run_path(str(Path(__file__).with_name("site") / "sitecustomize.py"))
    for line in requests:
        request = json.loads(line)
        os.chdir(request["root"])
        left_out = ("cacheprovider", "nbval", "nbval.plugin", "unraisableexception", "threadexception")
        options = [part for name in left_out for part in ("-p", f"no:{name}")]
        options += ["-o", "addopts=", "-q", f"--rootdir={request['root']}"]
        pytest.main([*options, *request["nodes"]], plugins=[Reporter(reports)])


if __name__ == "__main__":
    main()
