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

FAULTS = [
    Program(
        "view_bounds.py",
        "bug",
        (r"write: out-of-bounds: .* of cache, .*a view of shape \(16, 16, 32\) with .* at \S*view_bounds.py:21 ",),
        status=1,
    ),
    Program(
        "wrapped_index_inside.py",
        "bug",
        (r"gather: wrapped index at \S*_inside.py:17 .*computed from an index that has wrapped at \S*_inside.py:17 ",),
        status=1,
    ),
    Program(
        "shared_neighbours.py",
        "bug",
        (r"out-of-bounds: .*element -1 of counts, which has 8; it lands in before; .* element -1 to element 8 at",),
        command=(),
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
