"""Executables that another linker than our nvcc's linked: they are processes of their own, and join the report."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.driver.library_files import library_path, runtime_path
from workbench.errors import ArgumentError, MissingToolError
from workbench.programs import targets
from workbench.programs.children import shared_python
from workbench.programs.targets import TargetKind, kind_of

SOURCE = Path(__file__).parent / "linked" / "launches.cpp"
pytestmark = pytest.mark.skipif(
    shared_python() is None or shutil.which("g++") is None, reason="needs g++, and a Python with a shared library"
)
CLEAN = "launch of fill checked: nothing found"


def link(path: Path, *options: str, compiler: str = "g++", libraries: tuple = ()) -> Path:
    command = [compiler, "-pthread", "-o", path, SOURCE, *options, *(libraries or (runtime_path(), library_path()))]
    subprocess.run(command, check=True)
    return path


def workbench_run(*arguments: object, status: int = 0, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "workbench.cli", "run", "--simulated", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return link(tmp_path_factory.mktemp("linked") / "launches")


def test_a_pie_runs_and_its_finding_joins_the_report_and_the_page(program, tmp_path):
    page = tmp_path / "page.html"
    done = workbench_run("--check", "--trace", page, program, "past", status=1)
    assert done.stdout == "mine 7\ncudaSuccess\n"
    assert re.search(r"in process \d+: fill, 1x1x1 x 64x1x1 threads: 1 finding\n.*out-of-bounds: 4 bytes", done.stderr)
    assert f"1 launch written to {page}" in done.stderr
    text = page.read_text()
    assert re.search(r'data-view="1"><td>1</td><td>\d+</td><td>fill</td><td>1x1x1</td>.*<td>✗ 1</td><td></td>', text)
    assert '"facts"' in text  # of the lines of its source view


ENDS = {
    "fork first": ("", 0, f"2 {CLEAN.replace('launch', 'launches')}"),
    "fork late": ("", 3, f"1 {CLEAN}"),  # cudaErrorInitializationError, of the child
    "exec": ("mine 7\nmine 7\ncudaSuccess\n", 0, f"1 {CLEAN}"),
    "thread": ("mine 7\ncudaSuccess\n", 0, f"1 {CLEAN}"),
    "abort": ("mine 7\ncudaSuccess\n", 128 + signal.SIGABRT, "ended by SIGABRT"),
    "_exit": ("mine 7\ncudaSuccess\n", 5, f"1 {CLEAN}"),
    "touch": ("mine 7\ncudaSuccess\n", 128 + signal.SIGSEGV, "device memory; copy it with cudaMemcpy"),
    "handler": ("mine 7\ncudaSuccess\n", 6, f"1 {CLEAN}"),  # the program's own
}


@pytest.mark.long
@pytest.mark.parametrize("way", ENDS)
def test_every_way_of_a_process_is_reported(program, way):
    printed, status, words = ENDS[way]
    done = workbench_run("--check", program, way, status=status)
    assert done.stdout == (printed or "mine 7\n")
    assert words in done.stderr


LINKS = {
    "no PIE": ("g++", ["-no-pie", "-fno-pie"]),
    "clang": ("clang++", []),
    "all symbols": ("g++", ["-rdynamic", "-O2"]),
    "its own C++": ("g++", ["-static-libstdc++", "-static-libgcc"]),
    "an RPATH": ("g++", ["-Wl,--disable-new-dtags,-rpath,."]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LINKS)
def test_every_kind_of_executable_runs(name, tmp_path):
    compiler, options = LINKS[name]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    made = link(tmp_path / "made", *options, compiler=compiler)
    if name == "an RPATH":  # a folder with a library of that name which has nothing inside
        elf(tmp_path / "libcudart.so.13", "-shared", "-Wl,-soname,libcudart.so.13")
    assert CLEAN in workbench_run("--check", made, cwd=tmp_path).stderr


@pytest.mark.long
def test_signals_reach_the_program_and_a_script_starts_it(program, tmp_path):
    command = [sys.executable, "-m", "workbench.cli", "run", "--simulated", "--check", str(program)]
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen([*command, "loop"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            while running.stdout.readline() != "cudaSuccess\n":
                pass
            running.send_signal(number)
            _, told = running.communicate(timeout=60)
        assert (running.returncode, CLEAN in told) == (128 + number, True)
    with subprocess.Popen([*command, "more"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdout.readline()
        running.stdout.close()
        assert running.wait(timeout=60) == 128 + signal.SIGPIPE
        assert CLEAN in running.stderr.read()
    script = tmp_path / "twice.sh"
    script.write_text(f"#!/bin/sh\n{program} && {program}\n")
    script.chmod(0o755)
    page = tmp_path / "page.html"
    assert "2 launches of fill checked" in workbench_run("--check", "--trace", page, script).stderr
    assert re.search(r'data-view="1"><td>2</td><td>\d+</td><td>fill</td>.*<td>as 1</td>', page.read_text())
    script = tmp_path / "once.py"
    script.write_text(f"import subprocess\nsubprocess.run([{str(program)!r}])\n")
    assert CLEAN in workbench_run("--check", script).stderr
    script.write_text('import ctypes\nassert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0\n')  # Python joins by its call
    assert "nothing was checked" in workbench_run("--check", "env", sys.executable, script, status=2).stderr


def elf(path: Path, *options: str, text: str = "int main(void) { return 3; }") -> Path:
    subprocess.run(["gcc", "-o", path, "-x", "c", "-", "-x", "none", *options], input=text, text=True, check=True)
    return path


def test_machine_code_that_is_no_program_is_refused_by_kind(program, tmp_path, monkeypatch):
    old = elf(tmp_path / "libcudart.so.12", "-shared", "-Wl,-soname,libcudart.so.12")
    for name, options, words in (
        ("old", ["-Wl,--no-as-needed", str(old)], "which needs libcudart.so.12"),
        ("library", ["-shared", "-Dmain=other"], r"which has no main\(\)"),
    ):
        with pytest.raises(ArgumentError, match=words):
            kind_of(str(elf(tmp_path / name, *options)), False)
    made = elf(tmp_path / "made")
    assert kind_of(str(made), False) is TargetKind.COMMAND
    made.chmod(0o644)
    with pytest.raises(ArgumentError, match="chmod"):
        kind_of(str(made), False)
    monkeypatch.setattr(targets, "shared_python", lambda: None)
    with pytest.raises(MissingToolError, match=r"workbench run nvcc program\.cu"):
        kind_of(str(program), False)


@pytest.mark.long
def test_what_has_no_kernels_runs_and_says_so(program, tmp_path):
    for name, options in (("plain", []), ("static", ["-static"])):
        done = workbench_run("--check", elf(tmp_path / name, *options), status=3)
        assert "nothing was checked" in done.stderr
    alone = {name: value for name, value in os.environ.items() if not name.startswith("WORKBENCH_")}
    alone["LD_LIBRARY_PATH"] = str(library_path().parent)  # without workbench run: the driver has no Python
    done = subprocess.run([program], capture_output=True, text=True, env=alone)
    assert (done.returncode, done.stdout) == (3, "mine 7\ncudaErrorInitializationError\n")
