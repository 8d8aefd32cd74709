"""The README: its length, and its example, run as it stands, with the output that it shows."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fenced import block, fenced

from workbench.cli import main

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
MOST_WORDS = 1000


@pytest.fixture
def folder(fresh_home, tmp_path, monkeypatch):
    """A folder with the two files of the example, as the current one."""
    (tmp_path / "transpose.cu").write_text(block(README, "cpp", "transpose"))
    (tmp_path / "transpose.py").write_text(block(README, "python", "@wb.op"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "transpose", raising=False)  # each test loads its own transpose.py
    yield tmp_path
    sys.modules.pop("transpose", None)


def run(command: str) -> list[str]:
    words = shlex.split(command.removeprefix("$ "))
    assert words[0] == "workbench"
    return [masked(line) for line in CliRunner().invoke(main, words[1:]).output.splitlines()]


def masked(line: str) -> str:
    """Return a line without the bounds of errors, which depend on the seeds that a check draws."""
    return re.sub(r"\d\.\d+e-\d+", "#", line.rstrip())


def test_it_is_short():
    assert len(README.split()) <= MOST_WORDS


def test_the_example_prints_what_it_shows(folder):
    shown = [text for _, text in fenced(README, "console")]
    assert [text.split()[2] for text in shown] == ["check", "trace", "tune"]
    for text in shown:
        command, *lines = text.splitlines()
        printed = iter(run(command))
        missing = [line for line in lines if line != "..." and masked(line) not in printed]  # in this order
        assert not missing, command


def test_the_example_without_its_barrier_fails_as_it_says(folder):
    kernel = folder / "transpose.cu"
    kernel.write_text(kernel.read_text().replace("  __syncthreads();\n", "\n"))
    (said,) = re.findall(r"Without `__syncthreads\(\)` it fails: `(.*?)`", README, re.S)
    parts = [part.strip() for part in " ".join(said.split()).split("...")]
    printed = "\n".join(run("workbench check transpose.py:transpose"))
    assert re.search(".*".join(map(re.escape, parts)), printed), printed
