"""The head and the table of the page of ``workbench run --trace``, without a browser."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("anywidget", reason='no widgets: python -m pip install -e ".[lab]"')

import workbench as wb
from workbench.analysis.device_models import device_model
from workbench.analysis.host_calls import HostCall
from workbench.analysis.launches import Launches
from workbench.programs.launch_page import write_page

KERNEL = (
    "__global__ void k(float *x) {\n  __shared__ float t[64];\n  t[threadIdx.x] = 1;\n  x[threadIdx.x] = t[AT];\n}\n"
)


def launches_of(at: str, *, checks: bool) -> Launches:
    kernel = wb.load_cuda(KERNEL.replace("AT", at), device="sim").k
    traced = wb.trace_kernel(kernel, grid=1, block=64, args=[np.zeros(64, np.float32)], checks=checks)
    launches = Launches()
    launches.add(traced.kernel, traced.report, device_model(), traced.report.findings)
    return launches


@pytest.mark.parametrize(
    ("at", "checks", "cell"),
    [
        ("threadIdx.x", False, "not checked"),
        ("threadIdx.x ^ 32", False, "not checked"),
        ("threadIdx.x", True, "none"),
        ("threadIdx.x ^ 32", True, "✗ "),
    ],
)
def test_the_findings_of_a_launch_are_counted_where_it_was_checked(tmp_path, at, checks, cell):
    launches = launches_of(at, checks=checks)
    write_page(launches, tmp_path / "page.html", title="a program")
    text = (tmp_path / "page.html").read_text()
    assert f"<td>{cell}" in text
    assert ("not checked: workbench run --check checks" in text) is not checks
    assert ("findings (not checked)" in text) is not checks
    assert ("not checked" in repr(launches[0])) is not checks


def test_the_time_is_said_to_be_that_of_the_launches(tmp_path, monkeypatch):
    launches = launches_of("threadIdx.x", checks=True)
    launches.called(HostCall("cublasSgemm", "m=2, n=2, k=2"))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    write_page(launches, tmp_path / "page.html", title="a program")
    text = (tmp_path / "page.html").read_text()
    assert "in all" not in text
    assert "predicted for it on" in text
    assert "without the time of 1 call of cublasSgemm on the host, which is not predicted" in text
    assert "torch's operators" not in text

    class Initialized:
        class cuda:  # as torch spells it
            is_initialized = staticmethod(lambda: True)

    monkeypatch.setitem(sys.modules, "torch", Initialized)
    write_page(launches, tmp_path / "page.html", title="a program")
    told = "without the time of torch&#x27;s operators and of 1 call of cublasSgemm on the host"
    assert told in (tmp_path / "page.html").read_text()
