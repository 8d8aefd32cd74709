"""torch.profiler on the simulated device: rows of kernels and operators with predicted times on the device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

pytestmark = [pytest.mark.gpu, pytest.mark.simulated_only("its kernels of operators have other names")]


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def launch() -> None:
    x = torch.ones(1024, device="cuda")
    with record_function("doubled"):
        double[(2,)](x, torch.empty_like(x), 1024, BLOCK=512)
    torch.cuda.synchronize()


def kernels(found: profile) -> dict[str, float]:
    """Return microseconds by the names of the kernels on the device."""
    return {
        event.name: event.time_range.elapsed_us()
        for event in found.events()
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation
    }


def test_kernels_have_rows_with_predicted_times(capfd: pytest.CaptureFixture, tmp_path: Path):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        launch()
    times = kernels(found)
    assert {"double", "aten::fill_"} <= set(times)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.ones(1024, device="cuda")
    out = torch.empty_like(x)
    start.record()
    double[(2,)](x, out, 1024, BLOCK=512)
    end.record()
    assert times["double"] == pytest.approx(start.elapsed_time(end) * 1e3, rel=0.01)
    rows = {row.key: row for row in found.key_averages()}
    assert rows["double"].self_device_time_total == pytest.approx(times["double"], rel=0.01)
    assert rows["aten::fill_"].device_time_total > 0
    table = found.key_averages().table(sort_by="cuda_time_total")
    assert "Self CUDA time total" in table
    assert "double" in table
    assert "CUPTI" not in "".join(capfd.readouterr())
    found.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (event,) = [one for one in events if one.get("cat") == "kernel" and one["name"] == "double"]
    assert event["args"]["grid"] == [2, 1, 1]
    assert event["args"]["block"] == [128, 1, 1]
    ids = {one["cat"]: one["args"]["External id"] for one in events if one["name"] == "aten::fill_"}
    assert ids["kernel"] == ids["cpu_op"]


def test_the_device_alone():
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        launch()
    assert "double" in kernels(found)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        launch()
    assert kernels(found) == {}
