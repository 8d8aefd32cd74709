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
        "atomic_order.py", "bug", (r"note: total: order of float additions: .* of y, .*at source.cu:13 ",), command=()
    ),
]

RIGHT = [
    Program("grid_limit.cu", "fixed", ("sum 65536", *CLEAN)),
    Program("view_bounds.py", "fixed", CLEAN),
    Program("wrapped_index_inside.py", "fixed", CLEAN),
    Program("shared_neighbours.py", "fixed", silent=("out-of-bounds",), command=()),
    Program("floor_grid.py", "fixed", ("4000.0 of 4000.0", *CLEAN)),
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
