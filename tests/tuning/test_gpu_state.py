"""Whether a GPU was disturbed while it was timed, seen by a probe that says what it is told to."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import toy

from workbench.base.trials.trial import Trial
from workbench.launch import devices
from workbench.tuning import device_model
from workbench.tuning.measuring import isolation, measure
from workbench.tuning.measuring.attempt import Attempt
from workbench.tuning.measuring.gpu_state import GpuState, Unwatched, disturbance, disturbances, gpu_lost, nvml_probe


class ToldClock:
    """Each run takes as long as it is told to; the GPU is in the states that it is told of, in turn."""

    method = "told"

    def __init__(self, *states: GpuState | Unwatched, seconds=(1e-6,)):
        self._states, self._seconds = itertools.cycle(states), itertools.cycle(seconds)
        self.order = []

    def look(self, prepared):
        return next(self._states)

    def prepare(self, run):
        run()
        return run

    def load(self, prepared):
        pass

    def sample(self, prepared):
        prepared()
        self.order.append(prepared)
        return next(self._seconds)


QUIET = GpuState(1980)


def timed(clock: ToldClock) -> Trial:
    case, variant, device = toy.ToyCase(count=64), toy.steps_variant(), devices.get("sim")
    problem = case.problem()
    tensors = measure.Inputs(case, "sim").of(problem)
    attempt = Attempt.of(variant, {"STEPS": 1}, case, device, problem=problem, tensors=tensors)
    return measure._timed(attempt, clock)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (QUIET, ""),
        (GpuState(1950), ""),
        (GpuState(1400, held_back=("power cap",)), "clock fell from 1980 to 1400 MHz (power cap)"),
        (GpuState(1980, others=(7, 9)), "in use by process 7, 9"),
        (GpuState(1000, others=(7,)), "in use by process 7; clock fell from 1980 to 1000 MHz"),
        (GpuState(2200, held_back=("power cap",)), "clock rose from 1980 to 2200 MHz"),
    ],
)
def test_a_timing_says_what_disturbed_it(after: GpuState, said: str):
    assert disturbance(QUIET, after) == said
    trial = timed(ToldClock(QUIET, after))
    assert trial.timing["disturbed"] == said
    assert (trial.timing["clock_mhz_before"], trial.timing["clock_mhz_after"]) == (1980, after.clock_mhz)
    notes = disturbances([trial, timed(ToldClock(QUIET))])
    assert notes == [] if not said else f"1 of 2 timings: {said}." in notes[0]
    assert disturbances([replace(trial, reused=True)]) == [], "said when it was measured"


def test_without_nvml_it_says_that_nobody_looked(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    trial = timed(ToldClock(nvml_probe()()))
    assert trial.timing["disturbed"] == "not watched: nvidia-ml-py is not installed"
    assert "clock_mhz_before" not in trial.timing
    (note,) = disturbances([trial])
    assert note.endswith("(1 timings). python -m pip install nvidia-ml-py")


class FakeNvml(SimpleNamespace):
    """What the probe asks of pynvml."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1

    def nvmlInit(self): ...

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != b"GPU-12":
            raise self.NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in (os.getpid(), os.getppid(), 1, 2**22 + 1)]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return 0x1 | 0x4 | 0x20 | 0x40

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return {self.NVML_CLOCK_SM: 1410}[kind]


def test_the_probe_reads_nvml_and_knows_its_own(monkeypatch):
    import torch

    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="12"))
    monkeypatch.setattr(os, "getppid", lambda: 2**22 + 2)
    others = (1,) if os.getpid() != 1 else ()
    assert nvml_probe()() == GpuState(1410, others, ("power cap", "software thermal", "hardware thermal"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="34"))
    assert nvml_probe()() == Unwatched("NVML reports Not Found for GPU-34")


def failing(error: Exception):
    def ask(*_, **options):
        raise error

    return ask


@pytest.mark.parametrize(
    ("function", "error", "reason", "remedy"),
    [
        (
            "nvmlInit",
            FakeNvml.NVMLError("Driver/library version mismatch"),
            "NVML reports Driver/library",
            "nvidia-smi",
        ),
        ("nvmlDeviceGetClockInfo", FakeNvml.NVMLError("Not Supported"), "NVML reports Not Supported", "nvidia-smi"),
        (
            "nvmlDeviceGetCurrentClocksEventReasons",
            AttributeError("module 'pynvml' has no attribute 'nvmlDeviceGetCurrentClocksEventReasons'"),
            "nvidia-ml-py is too old: module 'pynvml' has no",
            "install --upgrade nvidia-ml-py",
        ),
    ],
)
def test_what_nvml_refuses_is_said_and_costs_no_trial(monkeypatch, function, error, reason, remedy):
    import torch

    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(**{function: failing(error)}))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="12"))
    trial = timed(ToldClock(nvml_probe()()))
    assert trial.ok
    assert trial.timing["disturbed"].startswith(f"not watched: {reason}")
    (note,) = disturbances([trial])
    assert remedy in note
    assert "pip install nvidia-ml-py" not in note, "it is installed"


def test_what_can_be_seen_once_only_is_no_quiet_timing():
    trial = timed(ToldClock(QUIET, Unwatched("NVML reports GPU is lost for GPU-12")))
    assert trial.timing["disturbed"] == "not watched: NVML reports GPU is lost for GPU-12"
    assert trial.timing["clock_mhz_before"] == 1980
    assert "clock_mhz_after" not in trial.timing


def test_rows_of_before_are_read_as_they_are():
    """They have one clock, read when the GPU was idle."""
    row = Trial("steps", "steps", "cuda", "small", {"STEPS": 1}, "cuda", "sm_90", "ok", measured_seconds=1e-6)
    old = replace(row, timing={"method": "m", "samples": 10, "disturbed": "", "clock_mhz": 345})
    assert disturbances([old]) == []


def test_a_gpu_without_memory_is_not_lost(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for error, lost in ((torch.OutOfMemoryError("full"), False), (RuntimeError("CUDA error: illegal access"), True)):
        monkeypatch.setattr(torch, "zeros", failing(error))
        assert gpu_lost() is lost


def test_leaders_are_timed_again_in_turns_on_inputs_of_their_own():
    clock, variant = ToldClock(seconds=(1.0, 2.0, 3.0)), toy.steps_variant()
    with contextlib.closing(isolation.InProcess(devices.get("sim"), device_model(), clock=clock)) as measurer:
        leaders = [(variant, {"STEPS": steps}) for steps in (1, 2, 3)]
        samples = measurer.time_again(leaders, toy.ToyCase(count=64), rounds=3)
    assert samples == [(1.0, 3.0, 2.0), (2.0, 1.0, 3.0), (3.0, 2.0, 1.0)]
    assert len(set(clock.order)) == 3
