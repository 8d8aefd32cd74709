"""``workbench prove PROGRAM``: verdicts on what it launched, however it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import warm

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

PROGRAM = '''
import ctypes
import os
import sys
import numpy as np
import workbench as wb

SOURCE = """
extern "C" __global__ void add(float *out, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + 1;
}
extern "C" __global__ void one_more(float *out, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = x[i] + 1;
}
"""
if sys.argv[1] != "nothing":
    module = wb.load_cuda(SOURCE, device="sim")
    for n in (100, 133):
        module.add(3, 64, np.zeros(n, np.float32), np.zeros(n, np.float32), n)
    print("added")
if sys.argv[1] == "killed":
    try:
        module.one_more(3, 64, np.zeros(100, np.float32), np.zeros(100, np.float32), 100)
    except wb.WorkbenchError as error:
        print(error)
    ctypes.string_at(0)
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def prove(*words: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([*warm.python("gpu"), "-m", "workbench.cli", "prove", *words], capture_output=True, text=True)


def test_a_program_that_is_killed_has_verdicts_on_what_it_launched(program):
    done = prove("--json", program, "killed")
    found = {one["kernel"]: one for one in json.loads(done.stdout)["proofs"]}
    assert {name: one["status"] for name, one in found.items()} == {"add": "proved", "one_more": "refuted"}
    assert found["add"]["scope"] == "all sizes"
    assert done.returncode == 128 + 11, done.stderr
    assert "SIGSEGV ended the program; what it had launched by then is proved" in done.stderr
    assert "added" in done.stderr
    assert "out-of-bounds" in done.stderr


def test_a_program_that_launches_nothing_proves_nothing(program):
    done = prove(program, "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        f"launched nothing on a simulated device: nothing was proved. An op in a file is {program}:NAME" in done.stderr
    )


@pytest.mark.long
def test_a_program_that_ends_well_has_the_status_of_its_verdicts(program):
    done = prove(program, "well")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("added\nadd: proved for all n >= 1")
    assert done.stdout.endswith("1 proved, 0 refuted, 0 unknown\n")


def test_without_z3_no_program_runs(program, monkeypatch):
    from click.testing import CliRunner

    from workbench.cli import main
    from workbench.proof import solver

    monkeypatch.setitem(sys.modules, "z3", None)
    monkeypatch.setattr(solver, "z3", None)
    done = CliRunner().invoke(main, ["prove", str(program), "well"])
    assert done.exit_code != 0
    assert (
        'Proofs need Z3, which is not installed. Remedy: python -m pip install "kernel-workbench[proof]"' in done.output
    )
    assert "added" not in done.output
