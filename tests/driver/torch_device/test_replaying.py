"""What a process does to torch's simulated device is recorded, and another process repeats it with other inputs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import warm

from workbench.driver.torch_device.library import installed_torch

PROGRAM = Path(__file__).with_name("recorded_calls.py")
TORCH = installed_torch()
pytestmark = pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")


def run(form: str, folder: Path) -> str:
    command = [*warm.python("gpu"), str(PROGRAM), form, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_recorded_calls_give_the_results_of_other_inputs(tmp_path):
    run("record", tmp_path)
    assert "launches repeated" in run("repeat", tmp_path)


def test_a_broken_log_touches_nothing(tmp_path):
    lines = run("bad", tmp_path).splitlines()
    kinds = {name: kind for name, kind, *_ in (line.split(": ") for line in lines)}
    assert kinds.pop("beyond") == "Unrepeatable"
    assert len(kinds) == 14
    assert {name: kind for name, kind in kinds.items() if kind != "BadLog"} == {}, lines
