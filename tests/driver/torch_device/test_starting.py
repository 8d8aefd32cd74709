"""workbench.simulated_gpu where it cannot be had: what is wrong with the process, the machine, or the torch in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import gone, wait_until

from workbench.driver import simulated
from workbench.driver.library_files import runtime_path
from workbench.driver.torch_device import library, starting
from workbench.errors import DeviceUnavailableError, MissingToolError
from workbench.programs import running
from workbench.programs.device_options import DeviceOptions

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
    with pytest.raises(DeviceUnavailableError, match="torch is not installed"):
        library.prepare()


def test_without_a_compiler(fresh_home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(fresh_home / "empty"))
    monkeypatch.setenv("PATH", str(fresh_home))
    torch = library.Torch(fresh_home, "2.13.0", runtime_path().name)
    with pytest.raises(MissingToolError, match=r"needs g\+\+ once"):
        library.compiled(torch)


COMPILED = """
from pathlib import Path
from workbench.driver.library_files import runtime_path
from workbench.driver.torch_device import library
print(library.compiled(library.Torch(Path(), "2.13.0", runtime_path().name)))
"""
COMPILER = """#!/bin/sh
echo call >> {log}
sleep 0.1
for word; do test "$last" = -o && touch "$word"; last=$word; done
"""


def test_two_processes_that_compile_at_once(tmp_path: Path):
    compiler, log = tmp_path / "bin" / "g++", tmp_path / "log"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER.format(log=log))
    compiler.chmod(0o755)
    path = os.pathsep.join([str(compiler.parent), os.environ["PATH"]])
    variables = os.environ | {"PATH": path, "WORKBENCH_CACHE": str(tmp_path / "cache")}
    both = [
        subprocess.Popen([sys.executable, "-c", COMPILED], env=variables, text=True, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    first, second = (one.communicate()[0].strip() for one in both)
    assert first == second
    assert Path(first).is_file()
    assert len(log.read_text().splitlines()) == 1
    Path(first).write_bytes(Path(first).read_bytes()[:20])
    again = subprocess.run([sys.executable, "-c", COMPILED], env=variables, text=True, capture_output=True, check=True)
    assert f"{Path(first).name} is damaged" in again.stderr
    assert len(log.read_text().splitlines()) == 2
    Path(first).parent.chmod(0o777)
    refused = subprocess.run([sys.executable, "-c", COMPILED], env=variables, text=True, capture_output=True)
    assert "UnsafeFileError" in refused.stderr
    assert f"chmod -R go-w {tmp_path / 'cache'}" in refused.stderr


SLOW_COMPILER = """#!/bin/sh
echo $* >> {log}
for word; do test "$last" = -o && made=$word; last=$word; done
test -e {go} || {{ echo $$ > {hung}; sleep 300; }}
touch "$made"
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_ends_its_compiler_and_is_made_again(tmp_path: Path, end: signal.Signals):
    log, go, hung = tmp_path / "log", tmp_path / "go", tmp_path / "hung"
    compiler = tmp_path / "bin" / "g++"
    compiler.parent.mkdir()
    compiler.write_text(SLOW_COMPILER.format(log=log, go=go, hung=hung))
    compiler.chmod(0o755)
    path = os.pathsep.join([str(compiler.parent), os.environ["PATH"]])
    variables = os.environ | {"PATH": path, "WORKBENCH_CACHE": str(tmp_path / "cache")}
    first = subprocess.Popen([sys.executable, "-c", COMPILED], env=variables, text=True, stderr=subprocess.PIPE)
    wait_until(lambda: hung.exists() and hung.read_text().strip())
    first.send_signal(end)
    _, said = first.communicate(timeout=60)
    assert "compiling the simulated device for torch 2.13.0, once, half a minute" in said
    wait_until(lambda: gone(int(hung.read_text())))
    go.touch()
    done = subprocess.run([sys.executable, "-c", COMPILED], env=variables, text=True, capture_output=True, check=True)
    assert Path(done.stdout.strip()).is_file()
    assert len(log.read_text().splitlines()) == 2
    assert sorted(one.suffix for one in Path(done.stdout.strip()).parent.iterdir()) == ["", ".so"], "and .lock"


DRIVER = """
extern "C" int cuInit(unsigned) { return %d; }
extern "C" int cuDeviceGetName(char* name, int room, int device) {
  for (int i = 0; i < room && (name[i] = "A GPU of tests"[i]); ++i) {}
  return device;
}
"""


@pytest.mark.parametrize(
    ("node", "error", "name"),
    [(True, 0, "A GPU of tests"), (True, 100, None), (False, 0, None)],
    ids=["a driver with a GPU", "a driver without one", "no driver's node"],
)
def test_a_real_gpu_is_used_as_it_is(
    node: bool, error: int, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "driver.cpp").write_text(DRIVER % error)
    command = ["g++", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "driver.cpp")]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(simulated, "_NODES", (str(tmp_path if node else tmp_path / "none"),))
    assert simulated.real_device() == name
    if name is None:
        return
    monkeypatch.setattr(simulated, "_current", None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delenv("WORKBENCH_GPU", raising=False)
    driver = starting.simulated_gpu()
    assert (driver.name, driver.simulated) == (name, False)
    assert "WORKBENCH_GPU" not in os.environ  # what this process starts takes the real one, too
    (tmp_path / "program.py").write_text("")
    with pytest.raises(DeviceUnavailableError, match="There is a real GPU, A GPU of tests"):
        running.run_program(str(tmp_path / "program.py"), [], DeviceOptions(check=True))


MORE_THAN_THE_HOST = """
import workbench as wb
wb.simulated_gpu(memory_bytes=1 << 50)
import torch
try:
    torch.empty(1 << 49, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(error, torch.ones(4, device="cuda").sum().item())
"""
FORKED = """
import os
import signal
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
        (MORE_THAN_THE_HOST, ["CUDA out of memory. Tried to allocate 524288.00 GiB", " 4.0"]),
        (FORKED, ["Cannot re-initialize CUDA in forked subprocess"]),
    ],
    ids=["torch imported before", "model", "devices", "memory", "more than the host has", "fork"],
)
def test_processes_that_cannot_have_one(program: str, words: list[str]):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    said = done.stdout + done.stderr.strip().rpartition("\n")[2]
    assert all(word in said for word in words), done.stdout + done.stderr


@needs_torch
@pytest.mark.parametrize(
    "words",
    [["-c", "import workbench as wb; wb.simulated_gpu()"], ["-m", "pytest", "-p", "no:nbval", "--simulated-gpu"]],
    ids=str,
)
def test_tritons_interpreter_is_no_compiler(words: list[str], tmp_path: Path):
    variables = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=variables, cwd=tmp_path)
    assert done.returncode != 0
    assert "TRITON_INTERPRET: got set; allowed: unset" in done.stderr
