"""The process with the simulated GPU: runs the tests that it is asked for, and tells how each went.

python -m simulated_gpu.child REQUESTS REPORTS, two open file descriptors.
"""

from __future__ import annotations

import json
import os
import sys

import pytest


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


def main() -> None:
    """Serve until the other side closes."""
    requests, reports = (os.fdopen(int(number), mode) for number, mode in zip(sys.argv[1:3], "rw", strict=True))
    for line in requests:
        request = json.loads(line)
        os.chdir(request["root"])
        left_out = ("cacheprovider", "nbval", "nbval.plugin", "unraisableexception", "threadexception")
        options = [part for name in left_out for part in ("-p", f"no:{name}")]
        options += ["-o", "addopts=", "-q", f"--rootdir={request['root']}"]
        pytest.main([*options, *request["nodes"]], plugins=[Reporter(reports)])


if __name__ == "__main__":
    main()
