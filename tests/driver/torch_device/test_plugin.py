"""The plugin for pytest, on a copy of a small repository of kernels (repository/) with two planted faults."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm

from workbench import pytest_plugin
from workbench.driver.torch_device import library
from workbench.driver.torch_device.library import installed_torch

_OPTIONS = (
    "gpu_devices",
    "gpu_check",
    "gpu_schedules",
    "gpu_prove",
    "gpu_trace",
    "gpu_first_config",
    "gpu_seconds_limit",
)
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:nbval")
"""Arguments of Python; nbval imports for three CPU seconds."""
REPOSITORY = Path(__file__).with_name("repository")
KERNELS = "kernels/triton_kernels.py"
MARKED = """
import pytest
import torch
from kernels import triton_kernels

@pytest.mark.gpu_findings_ok("its total may be off")
def test_marked(device):
    triton_kernels.total(torch.ones(256, device=device), atomic=False)
"""
UNWRITTEN = """
import atexit
import gc
import torch
from kernels import triton_kernels

atexit.register(lambda: print("frozen at the end:", gc.get_freeze_count() > 1000, flush=True))

def test_rounded_down(device):
    out = torch.empty(300, device=device)
    triton_kernels._scale[(300 // 128,)](torch.ones(300, device=device), out, 300, 2.0, BLOCK=128, MASKED=True)
    assert out.cpu()[0] == 2  # READ
"""
TORCH = installed_torch()
needs_torch = pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests" / "test_marked.py").write_text(MARKED)
    (folder / "tests" / "test_unwritten.py").write_text(UNWRITTEN)
    return folder


def run(folder: Path, *words: str, fresh: bool = False, **variables: str) -> subprocess.CompletedProcess:
    """Run pytest in a repository, in an environment without that of this run; ``fresh`` in a Python of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "GITHUB"))}
    python = [sys.executable] if fresh else warm.python("gpu")
    command = [*python, *PYTEST, *words]
    return subprocess.run(command, cwd=folder, env=kept | variables, capture_output=True, text=True)


def line_of(comment: str) -> int:
    """Return the line of a planted fault, by its comment."""
    lines = (REPOSITORY / KERNELS).read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))


def properties(junit: Path) -> dict[str, dict[str, list[str]]]:
    """Return the properties of each test in a JUnit file."""
    found: dict[str, dict[str, list[str]]] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        row = found.setdefault(case.attrib["name"], {})
        for one in case.iter("property"):
            row.setdefault(one.attrib["name"], []).append(one.attrib["value"])
    return found


@needs_torch
def test_a_finding_fails_its_test_at_the_line_of_the_kernel(repository: Path, tmp_path: Path):
    tests = ["test_triton.py::test_scale_without_a_mask", "test_triton.py::test_scale[100]", "test_marked.py"]
    tests.append("test_unwritten.py")
    options = ["--simulated-gpu=h100-sxm", "--gpu-check", f"--gpu-trace={tmp_path / 'pages'}", "--junitxml=junit.xml"]
    done = run(repository, *[f"tests/{one}" for one in tests], *options, fresh=True, GITHUB_ACTIONS="true")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout
    at = line_of("OUT OF BOUNDS")
    assert f"triton_kernels.py:{at}: _scale: out-of-bounds" in done.stdout
    annotations = [line for line in done.stdout.splitlines() if line.startswith("::")]
    read = 1 + next(at for at, line in enumerate(UNWRITTEN.splitlines()) if line.endswith("# READ"))
    places = [(KERNELS, at), ("tests/test_unwritten.py", read)]
    assert [line.split(",title=")[0] for line in annotations] == [f"::error file={a},line={b}" for a, b in places]
    assert "a copy to the host reads 44 elements of out that nothing has written, of 300" in done.stdout
    assert "out: float32 (300,), allocated at test_unwritten.py:10" in done.stdout
    assert "frozen at the end: True" in done.stdout
    assert "4 launches" in done.stdout
    assert "3 findings" in done.stdout
    by_test = properties(repository / "junit.xml")
    failed = by_test["test_scale_without_a_mask"]
    assert failed["gpu_finding"][0].startswith(f"{KERNELS}:{at}: _scale: out-of-bounds")
    assert (failed["gpu_launches"], failed["gpu_findings"]) == (["1"], ["1"])
    assert by_test["test_scale[100]"]["gpu_findings"] == ["0"]
    assert int(by_test["test_scale[100]"]["gpu_instructions"][0]) > 0
    assert "gpu_finding" not in by_test["test_marked"]
    pages = sorted(page.name for page in (tmp_path / "pages").iterdir())
    assert len(pages) == 4
    assert "# OUT OF BOUNDS" in next((tmp_path / "pages").glob("*without_a_mask*")).read_text()


@needs_torch
def test_kernels_are_proved_for_the_sizes_that_launches_stand_for(repository: Path):
    pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')
    tests = ["test_scale[100]", "test_softmax[shape1]", "test_total_without_atomics", "test_scale_without_a_mask"]
    options = ["--simulated-gpu", "--gpu-prove", "--junitxml=junit.xml"]
    done = run(repository, *[f"tests/test_triton.py::{one}" for one in tests], *options)
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "kernels: 1 proved, 2 refuted, 0 unknown" in done.stdout
    race = f"refuted: _total: two threads of a block race: line {line_of('RACE')} reads out, line {line_of('RACE')} "
    assert race in done.stdout
    assert f"line {line_of('OUT OF BOUNDS')} writes out out of bounds" in done.stdout
    by_test = properties(repository / "junit.xml")
    assert by_test["test_scale[100]"]["gpu_proof"] == ["_scale proved"]
    assert by_test["test_total_without_atomics"]["gpu_proof"] == ["_total refuted"]


@needs_torch
@pytest.mark.long
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "xdist"])
def test_all_but_the_planted_faults_pass(repository: Path, workers: list[str]):
    options = [
        "--simulated-gpu",
        "--gpu-check",
        "--deselect=tests/test_marked.py",
        "--ignore=tests/test_unwritten.py",
        "--junitxml=junit.xml",
        *workers,
    ]
    done = run(repository, *options, TORCH_EXTENSIONS_DIR=str(repository / "built"))
    assert "2 failed, 28 passed" in done.stdout, done.stdout + done.stderr
    found = {
        name: row["gpu_finding"] for name, row in properties(repository / "junit.xml").items() if "gpu_finding" in row
    }
    lines = {name: [one.split(": ")[0] for one in places] for name, places in found.items()}
    assert lines == {
        "test_total_without_atomics": [f"{KERNELS}:{line_of('RACE')}"],
        "test_scale_without_a_mask": [f"{KERNELS}:{line_of('OUT OF BOUNDS')}"],
    }


@needs_torch
def test_without_the_option_nothing_is_simulated(repository: Path):
    done = run(repository, "tests/test_triton.py::test_scale[1]", "-rs", fresh=True)
    assert "1 skipped" in done.stdout
    assert "needs a GPU" in done.stdout
    assert "launches" not in done.stdout


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gpu_check", True),
        ("gpu_devices", 2),
        ("gpu_schedules", 8),
        ("gpu_prove", True),
        ("gpu_trace", "pages"),
        ("gpu_first_config", True),
        ("gpu_seconds_limit", 3.0),
    ],
)
def test_options_that_need_another(option: str, value: object):
    options = dict.fromkeys(("simulated_gpu", *_OPTIONS))
    config = SimpleNamespace(known_args_namespace=SimpleNamespace(**options | {option: value}))
    with pytest.raises(pytest.UsageError, match=f"--{option.replace('_', '-')} needs --simulated-gpu"):
        pytest_plugin.pytest_load_initial_conftests(config)


def test_a_model_that_is_not_known(tmp_path: Path):
    done = run(tmp_path, "--simulated-gpu=rtx-9090")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "model: got 'rtx-9090'; allowed: a100-sxm-80gb" in done.stderr


AUTOTUNED = """
import torch
import triton
import triton.language as tl

RUNS = []


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}) for block in (32, 64, 128)],
    key=[],
    pre_hook=lambda arguments, reset_only=False: RUNS.append(arguments["BLOCK"]),
)
@triton.jit
def double(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.static_assert(BLOCK != 32)
    tl.store(x + at, tl.load(x + at) * 2)


def test_double():
    double[(1,)](torch.ones(128, device="cuda"))
    assert RUNS[-1] == 64  # the first that compiles
    assert 128 not in RUNS
    assert torch.cuda.device_count() == 2
"""


@needs_torch
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--gpu-first-config", "--gpu-devices=2"], id="first"),
        pytest.param([], id="all", marks=pytest.mark.long),
    ],
)
def test_an_autotuner_takes_its_first_configuration(words: list[str], tmp_path: Path):
    (tmp_path / "test_autotuned.py").write_text(AUTOTUNED)
    done = run(tmp_path, "--simulated-gpu", *words)
    assert (done.returncode == 0) is bool(words), done.stdout + done.stderr
    assert ("1 failed" in done.stdout) is not bool(words)


FIRST_ALONE = """
import math, os, pathlib, torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": n}) for n in (64, 128, 256)], key=["n"], cache_results=True)
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, at < n), at < n)

def test_double():
    double[(4,)](torch.ones(256, device="cuda"), 256)
    times = double.configs_timings
    assert len(times) == 1
    assert all(math.isfinite(time[0]) for time in times.values())
    assert not [*pathlib.Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.autotune.json")]
"""


@needs_torch
def test_the_first_configuration_is_kept_in_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    (tmp_path / "test_first_alone.py").write_text(FIRST_ALONE)
    done = run(tmp_path, "--simulated-gpu", "--gpu-first-config")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("runtime", [None, "libcudart.so.12", "libcudart.so.13"])
def test_the_summary_names_a_torch_without_a_simulated_device(monkeypatch: pytest.MonkeyPatch, runtime: str | None):
    monkeypatch.setattr(library, "installed_torch", lambda: library.Torch(Path(), "2.13.0", runtime))
    lines: list[str] = []
    reporter = SimpleNamespace(stats={}, section=lambda title: None, line=lines.append)
    config = SimpleNamespace(getoption=lambda name, default=None: {"simulated_gpu": "h200"}.get(name, default))
    pytest_plugin.pytest_terminal_summary(reporter, config)
    assert ["python -m pip install" in line for line in lines] == [False] + [True] * (runtime != "libcudart.so.13")


ANNOUNCES = """
import functools
from workbench import pytest_plugin
from workbench.base import progress

def test_that_waits(request):
    progress.announce_by(functools.partial(pytest_plugin._uncaptured, request.config))
    progress.announce("compiling the simulated device")
    print("captured")
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_line_about_a_long_wait_is_seen_although_pytest_captures(tmp_path: Path, workers: str):
    (tmp_path / "test_it.py").write_text(ANNOUNCES)
    command = [sys.executable, *PYTEST, "-n", workers, "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stderr.count("workbench: compiling the simulated device\n") == 1
    assert "captured" not in done.stdout + done.stderr
