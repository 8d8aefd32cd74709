"""What ``doctor`` says of a GPU: stand-ins for the driver, for torch's view of it and for the process that launches."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch

import workbench as wb
from workbench import gpu_probes
from workbench.base.processes.process import ProcessEnded, ProcessTimeout
from workbench.base.processes.worker import Worker
from workbench.errors import DeviceUnavailableError, KernelFault, WrongResultError
from workbench.launch.sim import Simulator

doctor_module = importlib.import_module("workbench.doctor")  # the name in the package is its function

ROWS = ("NVRTC and driver", "CUDA on the GPU", "Triton on the GPU")


class StandIn:
    """A worker that answers with what a test says."""

    answers: dict = {}  # noqa: RUF012

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def call(self, function, *arguments, seconds=None):
        assert seconds is not None
        answer = self.answers[function.__name__]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def machine(monkeypatch):
    """A GPU with everything in order; a test breaks parts of it."""
    state = SimpleNamespace(driver=13000, nvrtc="13.0.88", answers={"cuda_kernel": "ran", "triton_kernel": "ran too"})
    driver = SimpleNamespace(get_driver_version=lambda: state.driver)
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(driver=driver))
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("workbench.toolchain.nvrtc.version", lambda: state.nvrtc)
    monkeypatch.setattr(doctor_module, "_cuda_device", lambda: "a GPU")
    monkeypatch.setattr(doctor_module, "_pycuda", lambda: "2026.1")
    monkeypatch.setattr(StandIn, "answers", state.answers)
    monkeypatch.setattr(doctor_module, "Worker", StandIn)
    return state


def test_a_gpu_in_order(machine):
    report = wb.doctor()
    assert [check.name for check in report.checks][-3:] == list(ROWS)
    assert report["NVRTC and driver"].detail == "the driver (CUDA 13.0) loads the code of NVRTC 13.0.88"
    assert report["CUDA on the GPU"].detail == "ran"
    assert report["Triton on the GPU"].detail == "ran too"
    assert report.summary == "Kernels compile here and run on the GPU and in the simulator."


def test_without_a_gpu_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(Worker, "start", lambda self: pytest.fail("a process for nothing"))
    names = [check.name for check in wb.doctor().checks]
    assert not set(ROWS) & set(names)


@pytest.mark.parametrize(
    ("driver", "nvrtc", "detail", "remedies"),
    [
        (13020, "13.0.88", None, ()),
        (13000, "13.2.40", "its machine code loads, its PTX does not", ('arch="sm_90"', "newer", "nvrtc==13.0.*")),
        (12040, "13.0.88", "neither its PTX nor its machine code", ("newer NVIDIA driver", "nvrtc-cu12==12.4.*")),
    ],
)
def test_driver_and_compiler(machine, driver, nvrtc, detail, remedies):
    machine.driver, machine.nvrtc = driver, nvrtc
    check = wb.doctor()["NVRTC and driver"]
    assert check.ok == (detail is None)
    assert (detail or "loads the code") in check.detail
    for remedy in remedies:
        assert remedy in check.remedy


PTX = KernelFault("probe (sm_90) on H200: cuModuleLoadDataEx failed: the provided PTX was compiled with an unsupported "
                  "toolchain.")  # fmt: skip


@pytest.mark.parametrize(
    ("which", "error", "detail", "remedy"),
    [
        ("cuda", PTX, "unsupported toolchain", "NVRTC and driver"),
        (
            "cuda",
            WrongResultError("cuda_vectors ran and left wrong bytes"),
            "wrong bytes",
            "dmesg",
        ),
        ("cuda", ProcessTimeout("stopped after 120 s, in cuda_kernel"), "stopped after 120 s", "does not answer"),
        ("cuda", ProcessEnded("the process that worked on it was ended by SIGSEGV"), "SIGSEGV", "nvidia-smi"),
        ("cuda", DeviceUnavailableError("PyCUDA cannot be imported. workbench setup pycuda"), "PyCUDA", "setup pycuda"),
        ("triton", RuntimeError("Failed to find C compiler. Please specify via CC"), "RuntimeError: ", "gcc"),
        ("triton", AssertionError("libcuda.so cannot found!"), "libcuda", "ldconfig"),
    ],
)
def test_a_launch_that_fails(machine, which, error, detail, remedy):
    machine.answers[f"{which}_kernel"] = error
    report = wb.doctor()
    failed = report["CUDA on the GPU" if which == "cuda" else "Triton on the GPU"]
    assert not failed.ok
    assert detail in failed.detail
    assert remedy in failed.remedy
    assert report.summary.endswith(f"a check failed: {failed.name}.")
    assert report.ok, "nothing that is needed without a GPU is missing"


def test_without_pycuda_triton_is_tried_all_the_same(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    report = wb.doctor()
    assert report["NVRTC and driver"].remedy == "workbench setup pycuda"
    assert "PyCUDA cannot be imported" in report["NVRTC and driver"].detail
    assert report["Triton on the GPU"].ok


@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_what_is_launched_is_judged(language):
    """The probes themselves, in the PTX machine: one kernel that runs, and one that does nothing."""
    sim = Simulator()
    said = gpu_probes.ran(language, sim.arch, "cpu", lambda variant, *run: variant.run(*run, sim))
    assert said.endswith("ran for sm_80, and its output is right")
    with pytest.raises(WrongResultError, match="wrong bytes"):
        gpu_probes.ran(language, sim.arch, "cpu", lambda variant, *run: None)


@pytest.mark.gpu
def test_on_this_gpu():
    report = wb.doctor()
    assert all(report[name].ok for name in ROWS), str(report)
