"""Which device is taken, and what is said where one cannot run."""

from __future__ import annotations

import builtins
import importlib.util

import pytest
import torch

from workbench.errors import DeviceUnavailableError, UnknownNameError
from workbench.launch import devices, gpu


def test_the_simulator_is_always_there():
    device = devices.get("sim")
    assert (device.name, device.arch) == ("sim", "sm_80")
    assert devices.get("sim") is device
    assert repr(device) == "<device sim: PTX machine on the CPU, sm_80>"


def test_an_unknown_name_lists_the_names():
    with pytest.raises(UnknownNameError, match="auto, sim, cuda"):
        devices.get("gpu")


def test_auto_says_why_it_is_not_the_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu, "problem", lambda: "for a reason. Do something.")
    assert devices.get("auto").name == "sim"
    assert "for a reason" in devices.get("auto").description
    assert "for a reason" not in devices.get("sim").description
    with pytest.raises(DeviceUnavailableError, match=r"for a reason\. Do something"):
        devices.get("cuda")
    with pytest.raises(DeviceUnavailableError, match="cannot run here"):
        gpu.Gpu()


def test_each_missing_part_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "without CUDA" in gpu.problem()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "nvidia-smi" in gpu.problem()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    real_import = builtins.__import__

    def without_pycuda(name: str, *rest: object) -> object:
        if name.startswith("pycuda"):
            raise ImportError("libcuda.so.1: cannot open shared object file")
        return real_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_pycuda)
    assert "libcuda.so.1" in gpu.problem()
    assert "pip install" in gpu.problem()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "torch is not installed" in gpu.problem()
    assert 'device="sim"' in gpu.problem()
