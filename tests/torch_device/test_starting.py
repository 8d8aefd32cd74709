"""workbench.simulated_gpu where it cannot be had: what is wrong with the process, the machine, or the torch in it."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.driver.host_programs import runtime_path
from workbench.errors import DeviceUnavailableError, MissingToolError
from workbench.torch_device import library

REAL = library.installed_torch()
needs_torch = pytest.mark.skipif(REAL is None or REAL.problem is not None, reason="needs torch's build for CUDA 13")


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        (None, ["is the CPU build", "whl/cu130"]),
        ((), ["is the CPU build", "whl/cu130"]),
        (("libc10.so", "libcudart.so.12"), ["is linked with libcudart.so.12", "whl/cu130"]),
        (("libc10.so", "libcudart.so.13"), []),
    ],
    ids=["no libc10_cuda", "no runtime", "CUDA 12", "CUDA 13"],
)
def test_builds_of_torch(
    needed: tuple[str, ...] | None, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "lib").mkdir()
    if needed is not None:
        (tmp_path / "lib" / "libc10_cuda.so").touch()
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(library, "read_elf", lambda path: SimpleNamespace(needed=needed))
    torch = library.installed_torch.__wrapped__()
    if not words:
        assert torch.problem is None
        return
    with pytest.raises(DeviceUnavailableError) as caught:
        library.compiled(torch)
    assert all(word in str(caught.value) for word in words)


def test_without_torch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(library, "installed_torch", lambda: None)
    with pytest.raises(DeviceUnavailableError, match="There is no torch here"):
        library.prepare()


def test_without_a_compiler(fresh_home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(fresh_home / "empty"))
    monkeypatch.setenv("PATH", str(fresh_home))
    torch = library.Torch(fresh_home, "2.13.0", runtime_path().name)
    with pytest.raises(MissingToolError, match=r"needs g\+\+ once"):
        library.compiled(torch)


def test_two_that_compile_at_once(fresh_home: Path, monkeypatch: pytest.MonkeyPatch):
    calls = []

    def compile_once(sources: list[Path], torch: library.Torch, path: Path) -> None:
        calls.append(path)
        path.touch()

    monkeypatch.setenv("WORKBENCH_CACHE", str(fresh_home / "empty"))
    monkeypatch.setattr(library, "_compile", compile_once)
    torch = library.Torch(fresh_home, "2.13.0", runtime_path().name)
    with ThreadPoolExecutor() as pool:  # each takes the lock by a file of its own, as a process does
        paths = list(pool.map(lambda _: library.compiled(torch), range(8)))
    assert calls == paths[:1]
    assert len(set(paths)) == 1


FORKED = """
import os
import workbench as wb
wb.simulated_gpu()
import torch
x = torch.ones(4, device="cuda")
child = os.fork()
if child == 0:
    try:
        torch.ones(4, device="cuda")
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@needs_torch
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import torch, workbench as wb; wb.simulated_gpu()", ["DeviceUnavailableError", "before import"]),
        ("import workbench as wb; wb.simulated_gpu('rtx-9090')", ["UnknownNameError", "model", "h100-sxm"]),
        ("import workbench as wb; wb.simulated_gpu(devices=9)", ["ArgumentError", "devices", "1 to 8"]),
        ("import workbench as wb; wb.simulated_gpu(memory_bytes=1)", ["ArgumentError", "memory_bytes"]),
        (FORKED, ["Cannot re-initialize CUDA in forked subprocess"]),
    ],
    ids=["torch imported before", "model", "devices", "memory", "fork"],
)
def test_processes_that_cannot_have_one(program: str, words: list[str]):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    said = done.stdout + done.stderr.strip().rpartition("\n")[2]
    assert all(word in said for word in words), done.stdout + done.stderr


@needs_torch
@pytest.mark.parametrize(
    "words", [["-c", "import workbench as wb; wb.simulated_gpu()"], ["-m", "pytest", "--simulated-gpu"]], ids=str
)
def test_tritons_interpreter_is_no_compiler(words: list[str], tmp_path: Path):
    variables = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=variables, cwd=tmp_path)
    assert done.returncode != 0
    assert "TRITON_INTERPRET: got set; allowed: unset" in done.stderr
