"""Elements that nothing has written and that torch's operators, and copies to the host, read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import warm

from workbench.driver.torch_device.library import installed_torch

PROGRAM = Path(__file__).with_name("host_reads.py")
TORCH = installed_torch()
pytestmark = pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")
READ = re.compile(
    r"host_reads\.py:(\d+): uninitialised read by the host: (.+?) reads (\d+) elements? of (a copy of )?out that "
    r"nothing has written, of \d+ that it reads, the first of them element \d+; fill, launched at "
    r"host_reads\.py:(\d+), had out as an argument and left them unwritten; (?:a copy of )?out: float\d\d \(.*\), "
    r"allocated at host_reads\.py:"
)


def line_of(comment: str) -> int:
    return next(at for at, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith(f"# {comment}"))


def run(form: str) -> subprocess.CompletedProcess[str]:
    command = [*warm.python("gpu"), "-m", "workbench.cli", "run", "--simulated", "--check", str(PROGRAM), form]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_each_read_is_found_at_its_line_with_its_elements():
    done = run("faults")
    assert done.returncode == 1, done.stderr
    lines = enumerate(PROGRAM.read_text().splitlines(), 1)
    planted = [
        (at, *found.groups()) for at, line in lines if (found := re.search(r"# (a copy.*|torch's.*), (\d+)$", line))
    ]
    found = READ.findall(done.stderr)
    assert {int(launch) for *_, launch in found} == {line_of("the launch")}
    told = [(int(line), reader, count) for line, reader, count, *_ in found]
    printed = line_of("torch's print")
    assert [one for one in told if one[0] != printed] == planted
    assert any(line == printed for line, *_ in told)
    assert f"{len(planted) + 1} findings" in done.stderr


def test_moves_and_full_writes_are_none():
    done = run("right")
    assert done.returncode == 0, done.stderr
    assert "of fill checked: nothing found" in done.stderr
    launch, allocation = line_of("the launch"), line_of("the allocation")
    note = f"note: fill, launched at host_reads.py:{launch}, leaves 28 elements of out unwritten, of 128, the first of"
    assert f"{note} them element 100; out: float32 (128,), allocated at host_reads.py:{allocation}" in done.stderr
    assert re.search(r"note: host_reads\.py:\d+: a copy to the host reads 100 elements of an allocation", done.stderr)
