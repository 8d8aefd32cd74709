"""A fork of the warm server stands for a Python of its own: arguments, streams, its end and its signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from waiting import gone, wait_until

from workbench.driver.torch_device.library import installed_torch

TORCH = installed_torch()
SAYS = "import os, sys, torch; print(sys.argv, os.getcwd(), os.environ['SAID'], sys.stdin.read(), __name__)"

WAITS = """
import os, signal
try:
    print(os.getpid(), flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("stopped")
"""


def run(*words: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*warm.python(), *words], capture_output=True, text=True, **options)


@pytest.mark.parametrize("kind", ["program", "file", "module"])
def test_it_has_its_callers_arguments_folder_environment_and_streams(tmp_path: Path, kind: str):
    assert len(warm.python()) > 1, "this machine has no warm server"
    (tmp_path / "says.py").write_text(SAYS)
    words = {"program": ["-c", SAYS], "file": ["says.py"], "module": ["-m", "says"]}[kind]
    done = run(*words, "a", "-b", cwd=tmp_path, env={"SAID": "here", "PATH": ""}, input="typed")
    first = {"program": "-c", "file": "says.py", "module": str(tmp_path / "says.py")}[kind]
    assert done.stdout == f"{[first, 'a', '-b']} {tmp_path} here typed __main__\n", done.stderr


@pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")
def test_a_simulated_gpu_starts_after_torch_was_imported():
    program = (
        "import torch, workbench as wb; wb.simulated_gpu('h100-sxm', devices=2, force=True)\n"
        "print(torch.cuda.get_device_name(1), torch.ones(3, device='cuda').sum().item())"
    )
    done = subprocess.run([*warm.python("gpu"), "-c", program], capture_output=True, text=True)
    assert done.stdout == "H100-SXM5-80GB (simulated) 3.0\n", done.stderr


def test_its_end_is_that_of_the_program():
    assert run("-c", "raise SystemExit(3)").returncode == 3
    assert run("-c", "import os; os.kill(os.getpid(), 11)").returncode == -signal.SIGSEGV
    failed = run("-c", "import atexit; atexit.register(print, 'at exit')\n1/0")
    assert (failed.returncode, failed.stdout) == (1, "at exit\n")
    said = 'Traceback (most recent call last):\n  File "<string>", line 2, in <module>\nZeroDivisionError'
    assert failed.stderr.startswith(said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_signals_reach_it(number: int):
    started = subprocess.Popen([*warm.python(), "-c", WAITS], stdout=subprocess.PIPE, text=True)
    fork = int(started.stdout.readline())
    started.send_signal(number)
    said, _ = started.communicate(timeout=60)
    assert (said, started.returncode) == (("stopped\n", 0) if number == signal.SIGINT else ("", -number))
    wait_until(lambda: gone(fork))


def test_workers_are_forks_of_what_has_collected():
    """Workers that could not be forked would collect again, and only the time would tell."""
    if "PYTEST_XDIST_WORKER" not in os.environ or not warm.workers_are_forks():
        pytest.skip("needs workers of pytest-xdist that are forks")
    assert "warm.collected" in sys.modules
