"""``workbench run``: whatever a program launches is checked, traced and counted once."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import warm
from test_triton_programs import PLANTED, PROGRAMS

WAYS = (
    "by_load_cuda", "by_load_ptx", "by_check_kernel", "by_trace_kernel", "by_triton", "by_own_cuda", "by_own_triton",
)  # fmt: skip


def workbench_run(*arguments: object, status: int = 0) -> subprocess.CompletedProcess:
    command = [*warm.python("gpu"), "-m", "workbench.cli", "run", "--simulated", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    return done


def test_run_checks_a_program_and_writes_its_page(tmp_path):
    written, instead, _, text = PLANTED["attention"]
    script, page = tmp_path / "attention.py", tmp_path / "page.html"
    script.write_text((PROGRAMS / "attention.py").read_text().replace(written, instead))
    done = workbench_run("--check", "--trace", page, script, "--mine", status=1)
    assert "attention ok" in done.stdout, done.stderr
    line = next(number for number, row in enumerate(script.read_text().splitlines(), 1) if row.strip().startswith(text))
    assert f"attention.py:{line}: attention_kernel: global race" in done.stderr
    assert "1 launch checked, 2 findings" in done.stderr
    content = page.read_text()
    assert not re.findall(r"""(?:src|href)=|https?://(?!www\.w3\.org)""", content)
    views = json.loads(re.search(r'id="views">(.*)</script>', content, re.MULTILINE)[1])
    assert f"{script}:{line}" in views["1"]["details"]
    assert re.search("A100|H200", content), "the model of CPU tensors' kernels, or of torch's cuda device"


def test_every_way_to_the_machine_is_checked_traced_and_counted_once(tmp_path):
    page, program = tmp_path / "page.html", Path(__file__).parent / "every_way.py"
    done = workbench_run("--check", "--trace", page, program, 1, status=1)
    found = re.findall(r"^  \S+:\d+: (\w+): out-of-bounds: 4 bytes", done.stderr, re.MULTILINE)
    assert found == [*WAYS, "by_child"]
    assert "12 launches checked, 8 findings" in done.stderr, "Triton's three, one of each other, copy_blocks' two"
    views = json.loads(re.search(r'id="views">(.*)</script>', page.read_text(), re.MULTILINE)[1])
    traced = [view["state"]["title"].split(",")[0] for view in views.values()]
    assert [name for name in traced if name in (*WAYS, "by_child")] == [*WAYS, "by_child"]
    lines = [place for view in views.values() for place, one in view["details"].items() if one["findings"]]
    assert len(lines) == len(WAYS) + 1


STAGED = """
import numpy as np
import workbench as wb

kernels = wb.load_cuda(
    "extern \\"C\\" __global__ void next(int *y, const int *x) {"
    " __shared__ volatile int tile[32]; tile[threadIdx.x] = x[threadIdx.x]; y[threadIdx.x] = tile[threadIdx.x ^ 1]; }"
)
kernels.next(1, 32, np.zeros(32, np.int32), np.arange(32, dtype=np.int32))
"""


@pytest.mark.parametrize(("option", "status", "told"), [("--check", 0, "nothing found"), ("--strict", 1, "1 finding")])
def test_strict_finds_what_is_a_note_otherwise(option, status, told, tmp_path):
    script = tmp_path / "staged.py"
    script.write_text(STAGED)
    done = workbench_run(option, script, status=status)
    assert told in done.stderr
    assert "volatile access without __syncwarp" in done.stderr


def test_run_shows_a_programs_own_errors_and_status(tmp_path, monkeypatch):
    script = tmp_path / "ends.py"
    script.write_text("import sys\nprint(sys.argv[1:], __name__)\nraise EOFError('no more')\n")
    done = workbench_run(script, "--check", "x", status=1)
    assert done.stdout.strip() == "['--check', 'x'] __main__"
    assert done.stderr.splitlines()[:2] == [
        "Traceback (most recent call last):",
        f'  File "{script}", line 3, in <module>',
    ]
    assert done.stderr.splitlines()[-1] == "EOFError: no more"
    script.write_text("raise SystemExit(7)")
    workbench_run(script, status=7)
    done = workbench_run("--check", "-m", "this", status=2)
    assert "nothing was checked" in done.stderr
    assert "Beautiful" in done.stdout
    assert "nowhere.py" in workbench_run("nowhere.py", status=2).stderr
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET: got set; allowed: unset" in workbench_run(script, status=2).stderr
    monkeypatch.delenv("TRITON_INTERPRET")
    assert "no_such_module" in workbench_run("-m", "no_such_module", status=2).stderr


def test_pytest_and_the_processes_that_it_starts_are_simulated(tmp_path, monkeypatch):
    (tmp_path / "cuda.py").touch()  # a client of the driver by its name
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.own_start = 'seen'\n")
    (tmp_path / "test_program.py").write_text(
        "import subprocess, sys\n"
        "def test_child():\n"
        "    asked = 'import cuda; from workbench.driver import simulated; print(simulated.current(), own_start)'\n"
        "    told = subprocess.run([sys.executable, '-c', asked], capture_output=True, text=True, check=True).stdout\n"
        "    assert 'A100-SXM4-80GB (simulated)' in told and 'seen' in told\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    done = workbench_run("--arch", "sm_80", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_program.py")
    assert "1 passed" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_what_other_processes_launch_is_in_the_report(start, tmp_path):
    script = tmp_path / "processes.py"
    script.write_text(
        f"import multiprocessing, sys\nsys.path.insert(0, {str(PROGRAMS.parent)!r})\n"
        "def work(count):\n"
        "    import torch, triton_kernels\n"
        "    triton_kernels.racy_kernel[(count,)](torch.zeros(1, dtype=torch.int32))\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context({start!r})\n"
        "    for count in (1, 4):\n"
        "        process = context.Process(target=work, args=(count,))\n"
        "        process.start()\n"
        "        process.join()\n"
    )
    done = workbench_run("--check", script, status=1)
    assert re.search(r"in process \d+: racy_kernel, 4x1x1 [\s\S]*global race", done.stderr)
    assert "2 launches checked, 1 finding" in done.stderr
