"""``doctor`` reports whatever is there or missing, and never fails itself."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb


def test_this_machine_has_what_is_needed():
    report = wb.doctor()
    assert report.ok, str(report)
    names = [check.name for check in report.checks]
    assert len(set(names)) == len(names)
    for name in ("Python", "torch", "Triton", "NVRTC", "CUDA headers", "cuobjdump", "nvcc", "PyCUDA", "cache folder"):
        assert report[name].detail
    assert all(check.remedy for check in report.checks if not check.ok)
    with pytest.raises(wb.errors.UnknownNameError, match="NVRTC"):
        report["nvrtc"]


def test_a_table_in_text_and_html():
    report = wb.doctor()
    assert re.match(rf"ok +workbench +{re.escape(wb.__version__)}\nok +Python", str(report))
    assert " ".join(str(report).split()).endswith(report.summary)
    for check in report.checks:
        assert check.name in report._repr_html_()
    assert "0x" not in str(report)


def test_missing_parts_are_rows_with_remedies(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path):
    """Torch, Triton, NVIDIA's packages and a toolkit all absent, the cache folder in the way."""
    fresh_cache.write_text("a file where the folder should be")
    real = importlib.util.find_spec
    absent = ("torch", "triton", "nvidia", "pycuda", "jupyterlab", "ipywidgets")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in absent else real(name, *rest))
    monkeypatch.setattr("workbench.toolchain.tools.toolkit_folders", list)
    monkeypatch.setattr("workbench.toolchain.tools.pip_folders", list)
    monkeypatch.setattr("shutil.which", lambda *_: None)
    monkeypatch.setattr("os.access", lambda *_: False)
    report = wb.doctor()
    assert not report.ok
    for name in (
        "torch",
        "Triton",
        "CUDA headers",
        "cuobjdump",
        "ptxas",
        "cache folder",
        "nvcc",
        "PyCUDA",
        "JupyterLab",
    ):
        assert not report[name].ok, name
        assert report[name].remedy, name
    assert "pip install" in report["torch"].remedy
    assert "WORKBENCH_HOME" in report["cache folder"].remedy
    assert report.summary.startswith("Missing: ")


@pytest.mark.parametrize(
    ("version", "ok", "detail"),
    [
        (None, False, "not installed"),
        ("14.2.0", False, "14.2.0, which only runs on NVIDIA's driver"),
        ("14.2.0+workbench", True, "14.2.0+workbench, for the simulated driver too"),
    ],
)
def test_which_cupy_is_there(version: str | None, ok: bool, detail: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("workbench.driver.clients.cupy_client.installed", lambda: version)
    monkeypatch.setattr("workbench.driver.simulated.real_device", lambda: None)
    check = wb.doctor()["CuPy"]
    assert (check.ok, check.detail) == (ok, detail)
    assert check.remedy == ("" if ok else "workbench setup cupy")


def test_a_part_that_breaks_is_a_row_too(monkeypatch: pytest.MonkeyPatch):
    def broken() -> str:
        raise RuntimeError("half installed")

    monkeypatch.setattr(importlib.import_module("workbench.doctor"), "_nvrtc", broken)
    check = wb.doctor()["NVRTC"]
    assert not check.ok
    assert "half installed" in check.detail


def test_the_name_works_whatever_was_imported_first():
    for first in ("import workbench.doctor", "from workbench.doctor import DoctorReport", "import workbench"):
        code = f"{first}; import workbench as wb; assert callable(wb.doctor), wb.doctor"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_it_runs_where_torch_and_triton_cannot_be_imported(tmp_path: Path):
    for name in ("torch", "triton", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('broken on purpose')")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import workbench as wb; report = wb.doctor(); print(report)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "broken on purpose" in done.stdout
    assert "Missing: " in done.stdout


def test_fix_runs_the_remedies_that_are_commands(monkeypatch: pytest.MonkeyPatch):
    doctor = importlib.import_module("workbench.doctor")
    checks = (
        doctor.DoctorCheck("torch", True, "2.13"),
        doctor.DoctorCheck("Triton", False, "not installed", "python -m pip install 'triton>=3.6'"),
        doctor.DoctorCheck("GPU and driver", False, "not found", "Needs an NVIDIA GPU and its driver."),
        doctor.DoctorCheck("PyCUDA", False, "not installed", "workbench setup pycuda"),
    )
    report, ran, told = doctor.DoctorReport(checks), [], []
    status = {"pip": 0, "workbench.cli": 0}

    def run(command, **options):
        ran.append(command[1:])
        return subprocess.CompletedProcess(command, status[command[2]])

    monkeypatch.setattr(doctor.subprocess, "run", run)
    doctor.fix(report, tell=told.append)
    assert ran == [["-m", "pip", "install", "triton>=3.6"], ["-m", "workbench.cli", "setup", "pycuda"]]
    assert told[1] == "GPU and driver: nothing to run. Needs an NVIDIA GPU and its driver."

    ran.clear()
    doctor.fix(report, ["PyCUDA"], told.append)
    assert ran == [["-m", "workbench.cli", "setup", "pycuda"]]
    with pytest.raises(wb.errors.UnknownNameError, match="PyCUDA"):
        doctor.fix(report, ["pycuda"], told.append)
    status["pip"] = 1
    with pytest.raises(wb.errors.WorkbenchError, match="failed with status 1"):
        doctor.fix(report, tell=told.append)
