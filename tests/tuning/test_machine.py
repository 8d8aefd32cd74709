"""What a result was measured on, as a program in the place of ``nvidia-smi`` tells it, garbage included."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
import torch

from workbench.tuning.bench import machine
from workbench.tuning.measuring.gpu_state import throttle_reasons

STATE = {"sm_clock_mhz": 1410.0, "memory_clock_mhz": 1593.0, "temperature_c": 61.0, "throttled_by": ["power cap"]}
ANSWER = "1410, 1593, 61, [N/A], 0x0000000000000004"
SCRIPTS = {
    "this GPU": (f'[ "$1" = --id=GPU-12 ] && echo "{ANSWER}"', STATE),
    "another's": (f'[ "$1" = --id=GPU-34 ] && echo "{ANSWER}"', {"unknown": "nvidia-smi reports: nothing, status 1"}),
    "two lines": (f'echo "{ANSWER}"; echo "{ANSWER}"', STATE),
    "empty line": ("echo", {"unknown": "nvidia-smi reports: nothing, status 0"}),
    "silent": ("true", {"unknown": "nvidia-smi reports: nothing, status 0"}),
    "too few": ("echo 1410, 1593", {"unknown": "nvidia-smi reports: 1410, 1593"}),
    "too many": (f"echo {ANSWER}, 1", {"unknown": f"nvidia-smi reports: {ANSWER}, 1"}),
    "no numbers": ("echo a, b, c, d, e", {"throttled_by": None}),
    "strange numbers": (
        'echo "1410, 1.5.9, , -3, [Not Supported]"',
        {"sm_clock_mhz": 1410.0, "throttled_by": None},
    ),
    "no text": (
        "printf '\\377\\376, 1, 2, 3, 4'",
        {"memory_clock_mhz": 1.0, "temperature_c": 2.0, "power_w": 3.0, "throttled_by": None},
    ),
    "fails": ("echo No devices >&2; exit 9", {"unknown": "nvidia-smi reports: No devices"}),
    "killed": ("kill -9 $$", {"unknown": "nvidia-smi reports: nothing, status -9"}),
}


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    """Put a program that does so in its place; torch's current GPU is the second of two."""

    def put(script):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    properties = SimpleNamespace(
        name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, total_memory=150, L2_cache_size=60, uuid="12"
    )
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return put


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x1, ()),
        (0x4, ("power cap",)),
        (0x61, ("software thermal", "hardware thermal")),
    ],
)
def test_what_holds_the_clocks_down_is_named(bits, reasons):
    assert throttle_reasons(bits) == reasons


def test_without_nvidia_smi_nothing_is_claimed(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert machine.gpu_state() == {"unknown": "nvidia-smi is not on the PATH"}


@pytest.mark.parametrize(("script", "state"), SCRIPTS.values(), ids=SCRIPTS)
def test_the_state_is_that_of_torchs_current_gpu(nvidia_smi, script, state):
    """Of several GPUs nvidia-smi tells all, the first one first; what cannot be read is left out."""
    nvidia_smi(script)
    assert machine.gpu_state() == state


def test_a_program_that_hangs_is_told_of(nvidia_smi, monkeypatch):
    nvidia_smi("exec sleep 60")
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: run(*args, **options | {"timeout": 0.1}))
    assert "timed out" in machine.gpu_state()["unknown"]


def test_a_program_that_cannot_be_run_is_told_of(nvidia_smi, tmp_path):
    nvidia_smi("")
    (tmp_path / "nvidia-smi").write_text("\x7fELF")
    assert "Exec format error" in machine.gpu_state()["unknown"]


def test_facts_are_torchs_and_the_drivers_version_nvidia_smis(nvidia_smi):
    nvidia_smi("echo 580.65.06")
    assert machine.gpu_facts() == {
        "gpu": "NVIDIA H200",
        "arch": "sm_90",
        "multiprocessors": 132,
        "memory_bytes": 150,
        "l2_bytes": 60,
        "cuda": torch.version.cuda,
        "driver": "580.65.06",
    }
    nvidia_smi("exit 1")
    assert machine.gpu_facts()["driver"] is None


def test_versions_of_what_is_not_installed_are_left_out():
    found = machine.all_versions(("torch", "no-such-package"))
    assert found["torch"]
    assert "no-such-package" not in found
