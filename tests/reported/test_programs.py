"""Whole programs with reported faults: each form ends with the verdict, and the words, that its row has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PROGRAMS = Path(__file__).parent / "programs"
CHECKED = ("-m", "workbench.cli", "run", "--simulated", "--check")


class Program(NamedTuple):
    """A form of a program. ``says`` are patterns that its output matches, ``silent`` those that it does not match."""

    file: str
    form: str = ""
    says: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    status: int = 0
    command: tuple[str, ...] = CHECKED

    @property
    def id(self) -> str:
        options = [word for word in self.command if word.startswith("sm_")]
        return "-".join([Path(self.file).stem, *options, *([self.form] if self.form else [])])


CLEAN = ("checked: nothing found",)

FAULTS: list[Program] = [
    Program(
        "floor_grid.py",
        "bug",
        (
            r"floor_grid\.py:\d+: uninitialised read by the host: torch's sum reads 208 elements of out that",
            r"the first of them element 1,792; double, launched at floor_grid\.py:\d+, had out as an argument",
            r"out: float32 \(2000,\), allocated at floor_grid\.py:\d+",
        ),
        status=1,
    ),
    Program(
        "partly_copied.cu",
        "bug",
        (
            r"partly_copied\.cu:28: uninitialised read by the host: a copy to the host reads 928 bytes of out",
            r"the first of them byte 3,072; twice had out as an argument .* out: allocated at partly_copied\.cu:22",
            r"partly_copied\.cu:11: twice: out-of-bounds: .* 0 bytes past the end of in, which has 4000 bytes",
            "Perhaps it is the padding of structs",
            r"; in: allocated at partly_copied\.cu:23",
        ),
        status=1,
    ),
]

RIGHT = [
    Program("grid_limit.cu", "fixed", ("sum 65536", *CLEAN)),
    Program("view_bounds.py", "fixed", CLEAN),
    Program("wrapped_index_inside.py", "fixed", CLEAN),
    Program("shared_neighbours.py", "fixed", silent=("out-of-bounds",), command=()),
    Program("floor_grid.py", "fixed", ("4000.0 of 4000.0", *CLEAN)),
    Program("partly_copied.cu", "fixed", ("sum 2000", *CLEAN)),
    Program("atomic_order.py", "fixed", silent=("order of",), command=()),
    Program("grid_barrier_reused.cu", "fixed", ("no error", *CLEAN)),
]


def verdict(program: Program) -> None:
    form = [program.form] if program.form else []
    command = [sys.executable, *program.command, str(PROGRAMS / program.file), *form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    output = done.stdout + done.stderr
    assert done.returncode == program.status, output
    for pattern in program.says:
        assert re.search(pattern, output), f"{pattern!r} is not in:\n{output}"
    for pattern in program.silent:
        assert not re.search(pattern, output), f"{pattern!r} is in:\n{output}"


@pytest.mark.parametrize("program", FAULTS, ids=lambda program: program.id)
def test_a_fault_is_reported(program):
    verdict(program)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.id)
def test_its_twin_is_clean(program):
    verdict(program)
